// SPDX-License-Identifier: Apache-2.0
// Every public class, used from several threads exactly as far as its comment allows; ThreadSanitizer is the
// judge.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "test_pair.h"

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

TEST(ThreadRules, plain_values_are_read_by_any_thread) {
  const RemoteMemory memory{.address = 4096, .length = 100, .rkey = Key{7}};
  const Error error = Error::from_errno(98, "bind");
  const Result<Endpoint> endpoint = Endpoint::parse("127.0.0.1:7471");
  const ScatterGather piece{.address = 1, .length = 2, .lkey = Key{3}};
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
