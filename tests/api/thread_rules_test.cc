// SPDX-License-Identifier: Apache-2.0
// Every public class, used from several threads exactly as far as its comment allows; ThreadSanitizer is the
// judge.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "test_pair.h"
#include "verbena/messaging/receiver.h"
#include "verbena/messaging/sender.h"
#include "verbena/testing/virtual_network.h"

namespace verbena {
namespace {

using test::must;

// Runs f(0) ... f(count - 1), each on a thread of its own.
template <class F>
void on_threads(std::size_t count, const F& f) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& thread : threads) thread.join();
}

// Nothing waits any more for what will not come.
bool failed() { return ::testing::Test::HasFailure(); }

// Calls post() until the queue has room.
template <class Post>
void post_patiently(const Post& post) {
  while (!failed()) {
    const PostResult result = post();
    if (result) return;
    ASSERT_EQ(result.status, PostStatus::QueueFull);
    std::this_thread::yield();
  }
}

TEST(ThreadRules, devices_are_listed_opened_and_closed_by_any_thread) {
  on_threads(4, [](std::size_t) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_FALSE(Device::list().empty());
      Device first = must(Device::open());
      Device moved = std::move(first);
      EXPECT_EQ(must(moved.allocate_memory(100)).size(), 100u);
    }
  });
}

TEST(ThreadRules, a_device_gives_every_method_to_any_thread) {
  const std::string capture = ::testing::TempDir() + "thread_rules_" + std::to_string(::getpid()) + ".pcapng";
  {
    Device device = must(Device::open(OpenOptions{.pcap_file = capture}));
    ProtectionDomain& shared = device.protection_domain();
    on_threads(4, [&](std::size_t) {
      for (int i = 0; i < 20; ++i) {
        std::vector<std::uint64_t> cells(16);
        ProtectionDomain domain = must(device.create_protection_domain());
        MemoryRegion mine = must(domain.register_memory(cells));
        MemoryRegion also = must(shared.allocate_memory(64));
        CompletionQueue queue = must(device.create_completion_queue(8));
        QueuePair pair = must(device.create_queue_pair(domain, queue, queue));
        must(pair.to_init());
        queue.arm();
        EXPECT_NE(mine.lkey(), also.lkey());
        EXPECT_EQ(device.address(), pair.address().gid);
        EXPECT_FALSE(device.explain().empty());
        EXPECT_FALSE(device.counters().empty());
        EXPECT_GE(device.event_fd(), 0);
        device.progress();
        while (device.poll_event()) {
        }
        device.wait_event(device.now() + Duration::microseconds(10));
        if (i == 10) must(device.close_capture());
      }
    });
  }
  EXPECT_EQ(std::remove(capture.c_str()), 0);
}

// Two threads for each of: sending, receiving, polling either side; and one that modifies.
TEST(ThreadRules, one_queue_pair_is_posted_to_polled_and_modified_at_once) {
  constexpr std::uint32_t kEach = 200, kPosters = 2, kAll = kEach * kPosters;
  Device a = must(Device::open()), b = must(Device::open());
  // Room for all: nobody waits for the polling before posting more.
  CompletionQueue here = must(a.create_completion_queue(kAll)), there = must(b.create_completion_queue(kAll));
  QueuePair one = must(a.create_queue_pair(here)), two = must(b.create_queue_pair(there));
  const ReliabilityOptions patient{.timeout = 19};  // 2 s: a loaded machine may hold a thread up for long
  must(one.connect(two.address(), patient));
  must(two.connect(one.address(), patient));
  const MemoryRegion out = must(a.allocate_memory(64)), in = must(b.allocate_memory(64 * kPosters));
  std::atomic<std::uint32_t> sent{0}, received{0};

  const auto send = [&] {
    const ScatterGather piece = out.local();
    SendRequest request;
    request.local = {&piece, 1};
    for (std::uint32_t i = 0; i < kEach; ++i) post_patiently([&] { return one.post_send(request); });
  };
  const auto receive = [&](std::size_t which) {
    const ScatterGather piece = in.local(64 * which, 64);
    for (std::uint32_t i = 0; i < kEach; ++i)
      post_patiently([&] { return two.post_receive({.id = i, .local = {&piece, 1}}); });
  };
  const auto poll = [&](CompletionQueue& queue, std::atomic<std::uint32_t>& count) {
    std::array<Completion, 4> some;
    while (count < kAll && !failed()) {
      queue.arm();
      const std::size_t found = queue.poll(some);
      for (std::size_t i = 0; i < found; ++i) EXPECT_EQ(some[i].status, CompletionStatus::Success);
      count += static_cast<std::uint32_t>(found);
      std::this_thread::yield();
    }
  };
  const auto modify = [&] {
    QueuePairAttributes values;
    values.state = QueuePairState::Rts;
    for (std::uint8_t timer = 1; (sent < kAll || received < kAll) && !failed(); timer = timer % 10 + 1) {
      values.min_rnr_timer = timer;
      must(two.modify(values, AttributeMask::State | AttributeMask::MinRnrTimer));
      EXPECT_EQ(must(two.query()).min_rnr_timer, timer);
      EXPECT_EQ(two.state(), QueuePairState::Rts);
      EXPECT_EQ(one.state(), QueuePairState::Rts);
      std::this_thread::yield();
    }
  };
  on_threads(9, [&](std::size_t i) {
    switch (i) {
      case 0:
        return modify();
      case 1:
      case 2:
        return send();
      case 3:
      case 4:
        return receive(i - 3);
      case 5:
      case 6:
        return poll(here, sent);
      default:
        return poll(there, received);
    }
  });
  EXPECT_EQ(sent, kAll);
  EXPECT_EQ(received, kAll);
}

TEST(ThreadRules, posts_from_any_thread_meet_the_end_of_their_queue_pair) {
  constexpr std::uint32_t kEach = 30;  // two of them fit into the queue
  Device device = must(Device::open());
  CompletionQueue queue = must(device.create_completion_queue(128));
  QueuePair one = must(device.create_queue_pair(queue)), two = must(device.create_queue_pair(queue));
  must(one.connect(two.address()));
  must(two.connect(one.address()));
  std::atomic<std::uint32_t> posted{0};
  on_threads(3, [&](std::size_t i) {
    if (i == 0) {
      while (posted == 0) std::this_thread::yield();
      must(one.to_error());
      return;
    }
    for (std::uint32_t n = 0; n < kEach; ++n, ++posted) EXPECT_TRUE(one.post_receive({.id = n, .local = {}}));
  });
  for (std::uint32_t flushed = 0; flushed < posted;) {
    const auto done = queue.poll_one();
    if (!done) continue;
    EXPECT_EQ(done->status, CompletionStatus::Flushed);
    ++flushed;
  }
}

// Two threads post receives; one posts others and takes back what nobody has begun to fill; one watches the limit; two
// poll what two queue pairs received into them.
TEST(ThreadRules, a_shared_receive_queue_is_posted_to_withdrawn_from_and_watched_at_once) {
  constexpr std::uint32_t kEach = 100, kPairs = 2, kAll = kEach * kPairs;
  constexpr std::uint64_t kPassing = 1'000'000;  // ids of receives that are to be withdrawn
  Device a = must(Device::open()), b = must(Device::open());
  CompletionQueue here = must(a.create_completion_queue(kAll)), there = must(b.create_completion_queue(kAll));
  SharedReceiveQueue shared = must(b.create_shared_receive_queue({.max_requests = kAll + 1, .max_segments = 1}));
  std::vector<QueuePair> near, far;
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    near.push_back(must(a.create_queue_pair(here, {.capabilities = {.max_send_requests = kEach}})));
    far.push_back(must(b.create_queue_pair(there, {.shared_receive_queue = &shared})));
    const ReliabilityOptions patient{.timeout = 19};
    must(near[i].connect(far[i].address(), patient));
    must(far[i].connect(near[i].address(), patient));
  }
  std::atomic<std::uint32_t> sent{0}, received{0}, begun{0};

  const auto post = [&](std::size_t which) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      post_patiently([&] { return near[which].post_send(SendRequest{}); });
      post_patiently([&] { return shared.post({.id = which * kEach + i, .local = {}}); });
    }
  };
  const auto withdraw = [&] {
    for (std::uint64_t id = kPassing; received < kAll && !failed(); ++id) {
      post_patiently([&] { return shared.post({.id = id, .local = {}}); });
      if (!shared.withdraw(id)) ++begun;
    }
  };
  const auto watch = [&] {
    while (received < kAll && !failed()) {
      must(shared.arm_limit(kAll / 2));
      EXPECT_EQ(must(shared.query()).max_segments, 1u);
      while (b.poll_event()) {
      }
      std::this_thread::yield();
    }
  };
  const auto poll = [&](CompletionQueue& queue, std::atomic<std::uint32_t>& count) {
    while (count < kAll && !failed()) {
      const auto done = queue.poll_one();
      if (!done) continue;
      EXPECT_EQ(done->status, CompletionStatus::Success);
      ++count;
    }
  };
  on_threads(7, [&](std::size_t i) {
    if (i < kPairs) return post(i);
    if (i == 2) return withdraw();
    if (i == 3) return watch();
    return i == 4 ? poll(here, sent) : poll(there, received);
  });
  EXPECT_EQ(sent, kAll);
  EXPECT_EQ(received, kAll);
  // Each receive went to a message or can be taken back, and none to both.
  std::uint32_t left = 0;
  for (std::uint64_t id = 0; id < kAll; ++id) left += shared.withdraw(id) ? 1u : 0u;
  EXPECT_EQ(left, begun);
}

// What doc/tour.md promises of the order inside a WRITE.
TEST(ThreadRules, a_reader_that_sees_the_last_word_of_a_write_sees_all_of_it) {
  constexpr std::size_t kWords = 1024;
  constexpr std::uint64_t kRounds = 20;
  test::Pair pair;
  std::vector<std::uint64_t> target(kWords, 0);
  MemoryRegion region = must(pair.server.register_memory(target));
  MemoryRegion source = must(pair.client.allocate_memory(kWords * 8));
  Connection near = pair.connect();
  std::atomic<std::uint64_t> seen{0};
  std::thread reader([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::atomic_ref<std::uint64_t> last(target.back());
      while (last.load(std::memory_order_acquire) != round && !failed()) std::this_thread::yield();
      EXPECT_THAT(target, ::testing::Each(round));
      seen = round;
      pair.engine.wake();
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::fill_n(reinterpret_cast<std::uint64_t*>(source.data()), kWords, round);
    must(near.write(source.local(), region.remote()).wait());
    EXPECT_TRUE(pair.engine.run_until([&] { return seen == round; }, Duration::seconds(60)));
  }
  reader.join();
}

// The engine, its connections, listener, requests and operations: one thread at a time, and any. wake()
// always.
TEST(ThreadRules, an_engine_and_all_made_with_it_go_from_thread_to_thread) {
  constexpr int kTurns = 8;
  std::optional<test::Pair> pair;
  pair.emplace();
  const MemoryRegion cell = must(pair->server.allocate_memory(8));
  std::optional<Connection> kept = pair->connect();
  std::mutex turn;
  std::atomic<int> left{3};
  on_threads(4, [&](std::size_t i) {
    if (i == 0) {
      while (left > 0) {
        pair->engine.wake();
        std::this_thread::yield();
      }
      return;
    }
    for (int n = 0; n < kTurns; ++n) {
      const std::lock_guard lock(turn);
      must(kept->fetch_and_add(cell.remote(), 1).wait());
      Connection own = pair->connect();
      Operation receive = pair->far_end().receive(Segments{});
      must(own.send(Segments{}).wait());
      must(receive.wait());
      must(own.close());
      pair->engine.run_once();
    }
    --left;
  });
  EXPECT_EQ(must(kept->fetch_and_add(cell.remote(), 0).wait()).value, 3u * kTurns);
  // They may end on another thread than they began on.
  std::thread([&] {
    must(kept->close());
    kept.reset();
  }).join();
}

// Receives of many connections, which complete whenever the engine runs: by whoever has it.
TEST(ThreadRules, a_pool_of_receives_goes_from_thread_to_thread) {
  constexpr std::uint32_t kThreads = 3, kTurns = 20;
  test::Pair pair;
  std::optional<ReceivePool> pool = must(ReceivePool::create(pair.engine, {.device = &pair.server}));
  pair.server_options.receive_pool = &*pool;
  std::array<Connection, 2> near{pair.connect(), pair.connect()};
  const MemoryRegion inbox = must(pair.server.allocate_memory(64));
  std::uint32_t received = 0;
  Operation kept;  // submitted again by its callback, on whichever thread that is
  kept.on_done([&](Operation& self) {
    if (!self.result()) return;
    ++received;
    self.submit();
  });
  pool->receive(kept, inbox.local(0, 32));
  std::mutex turn;
  on_threads(kThreads, [&](std::size_t) {
    for (std::uint32_t n = 0; n < kTurns && !failed(); ++n) {
      const std::lock_guard lock(turn);
      Operation own = pool->receive(inbox.local(32, 32));
      const std::uint32_t before = received;
      for (Connection& each : near) must(each.send_inline(test::bytes_of("one of two")).wait());
      must(own.wait(Duration::seconds(60)));
      EXPECT_TRUE(pair.engine.run_until([&] { return received > before; }, Duration::seconds(60)));
    }
  });
  EXPECT_EQ(received, kThreads * kTurns);
  std::thread([&] {
    for (Connection& each : near) must(each.close());
    pair.accepted.clear();
    pool.reset();
  }).join();
  test::expect_error(kept.result(), ErrorCode::Flushed, "destroyed here");
}

// A network in virtual time: it, its hosts and all that is made on them, one thread at a time.
TEST(ThreadRules, a_network_in_virtual_time_goes_from_thread_to_thread) {
  constexpr std::uint64_t kThreads = 3, kTurns = 20;
  testing::VirtualNetwork network = must(testing::VirtualNetwork::create(1, {.loss = 0.05}));
  const testing::VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  std::optional<Connection> far_end;
  server.engine().spawn([](Listener& from, std::optional<Connection>& to) -> Task<void> {
    to = must(co_await from.async_accept());
  }(listener, far_end));
  Connection near = must(Connection::connect(client.engine(), "10.0.0.1:7471"));
  const MemoryRegion cell = must(server.device().allocate_memory(8));
  std::mutex turn;
  on_threads(kThreads, [&](std::size_t) {
    for (std::uint64_t n = 0; n < kTurns && !failed(); ++n) {
      const std::lock_guard lock(turn);
      must(near.fetch_and_add(cell.remote(), 1).wait());
      must(network.run(client, [](ProgressEngine& engine) -> Task<void> {
        co_await engine.sleep(Duration::milliseconds(1));
      }(client.engine())));
    }
  });
  EXPECT_EQ(must(near.fetch_and_add(cell.remote(), 0).wait()).value, kThreads * kTurns);
}

// stop() from any thread, and from several; the rest is the engine's.
TEST(ThreadRules, any_thread_stops_a_reconnector) {
  test::Pair pair;
  const std::string nobody = Endpoint{pair.server.address().to_string(), 9}.to_string();
  const RetryPolicy patient{.first_pause = Duration::seconds(3600),
                            .longest_pause = Duration::seconds(3600),
                            .give_up_after = Duration::seconds(36000)};
  for (const bool after_a_failure : {true, false}) {
    Reconnector again(pair.engine, nobody, {}, patient);
    std::atomic<bool> may_stop{!after_a_failure};
    again.on_failure([&](const Error&, std::uint32_t, Duration) { may_stop = true; });
    on_threads(4, [&](std::size_t i) {
      if (i == 0) return test::expect_error(again.connect(), ErrorCode::Cancelled, "stopped");
      while (!may_stop) std::this_thread::yield();
      again.stop();
    });
    EXPECT_EQ(again.last_error().has_value(), again.attempts() != 0);
    test::expect_error(again.connect(), ErrorCode::Cancelled);
  }
}

class ThreadRulesOfMessages : public ::testing::TestWithParam<std::tuple<messaging::Protocol, PathChoice>> {
 protected:
  Device open() const { return must(Device::open(OpenOptions{.path = std::get<1>(GetParam())})); }
  messaging::Options options() const {
    messaging::Options wanted;
    wanted.kind.protocol = std::get<0>(GetParam());
    wanted.connection.reliability.timeout = 20;  // 4 s
    wanted.max_senders = 2;  // who share the receives of SharedReceive
    return wanted;
  }
};

// Accepts every sender that comes.
void serve(Listener& listener, messaging::Receiver& receiver) {
  listener.on_request([&] {
    while (auto request = listener.poll_request()) must(receiver.accept(std::move(*request)));
  });
}

// Each thread has a device, an engine and an end; they share nothing but the address.
TEST_P(ThreadRulesOfMessages, ends_of_several_threads_speak_with_each_other) {
  constexpr std::uint32_t kSenders = 2, kEach = 50;
  std::promise<std::string> address;
  const std::shared_future<std::string> known = address.get_future().share();
  on_threads(kSenders + 1, [&](std::size_t i) {
    Device device = open();
    ProgressEngine engine = must(ProgressEngine::create(device));
    if (i < kSenders) {
      messaging::Sender sender = must(messaging::Sender::connect(engine, known.get(), options()));
      for (std::uint32_t n = 0; n < kEach && !failed(); ++n)
        must(sender.send(std::as_bytes(std::span{&n, 1}), Duration::seconds(60)));
      return must(sender.close(Duration::seconds(60)));
    }
    Listener listener = must(Listener::create(engine));
    messaging::Receiver receiver = must(messaging::Receiver::create(engine, options()));
    serve(listener, receiver);
    address.set_value(listener.address().to_string());
    std::map<messaging::PeerId, std::uint32_t> next;
    for (std::uint32_t got = 0; got < kSenders * kEach && !failed();) {
      const auto message = receiver.try_receive();
      if (!message) continue;
      EXPECT_TRUE(std::ranges::equal(message->bytes(), std::as_bytes(std::span{&next[message->peer()], 1})));
      ++next[message->peer()];
      ++got;
    }
    EXPECT_TRUE(engine.run_until([&] { return receiver.peers() == 0; }, Duration::seconds(60)));
  });
}

// Ends, and messages that are held: one thread at a time, and any.
TEST_P(ThreadRulesOfMessages, ends_and_messages_go_from_thread_to_thread) {
  constexpr int kTurns = 20;
  Device device = open();
  ProgressEngine engine = must(ProgressEngine::create(device));
  std::optional<messaging::Receiver> receiver = must(messaging::Receiver::create(engine, options()));
  Listener listener = must(Listener::create(engine));
  serve(listener, *receiver);
  std::optional<messaging::Sender> sender =
      must(messaging::Sender::connect(engine, listener.address().to_string(), options()));
  std::deque<messaging::Message> held;
  std::mutex turn;
  on_threads(3, [&](std::size_t) {
    for (int n = 0; n < kTurns && !failed(); ++n) {
      const std::lock_guard lock(turn);
      must(sender->send(test::bytes_of("from thread to thread"), Duration::seconds(60)));
      held.push_back(must(receiver->receive(Duration::seconds(60))));
      EXPECT_EQ(test::text_of(held.back().bytes()), "from thread to thread");
      if (held.size() > 3) held.pop_front();  // of another thread, as a rule
    }
  });
  std::thread([&] {
    held.clear();
    must(sender->close(Duration::seconds(60)));
    sender.reset();
    receiver.reset();
  }).join();
}

std::string name_of_way(const ::testing::TestParamInfo<std::tuple<messaging::Protocol, PathChoice>>& info) {
  std::string name(messaging::to_string(std::get<0>(info.param)));
  std::ranges::replace(name, '-', '_');
  return name + (std::get<1>(info.param) == PathChoice::Local ? "_local" : "_roce");
}

INSTANTIATE_TEST_SUITE_P(Each, ThreadRulesOfMessages,
                         ::testing::Combine(::testing::ValuesIn(messaging::all_protocols().begin(),
                                                                messaging::all_protocols().end()),
                                            ::testing::Values(PathChoice::Roce, PathChoice::Local)),
                         name_of_way);

TEST(ThreadRules, plain_values_are_read_by_any_thread) {
  const RemoteMemory memory{.address = 4096, .length = 100, .rkey = RKey{7}};
  const Error error = Error::from_errno(98, "bind");
  const Result<Endpoint> endpoint = Endpoint::parse("127.0.0.1:7471");
  const ScatterGather piece{.address = 1, .length = 2, .lkey = LKey{3}};
  const Segments segments = piece;
  on_threads(4, [&](std::size_t) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(must(RemoteMemory::from_bytes(memory.to_bytes())), memory);
      EXPECT_THAT(error.to_string(), ::testing::HasSubstr("bind"));
      EXPECT_EQ(must(endpoint->resolve()), Gid::from_ipv4(127, 0, 0, 1));
      EXPECT_EQ(segments.view().size(), 1u);
    }
  });
}

}  // namespace
}  // namespace verbena
