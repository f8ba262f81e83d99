// SPDX-License-Identifier: Apache-2.0
// What several threads may do at once.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

// A loaded machine may hold a thread up for long.
ConnectionOptions patient() {
  ConnectionOptions options;
  options.reliability.timeout = 19;  // 2 s
  options.connect_timeout = Duration::seconds(60);
  return options;
}

TEST(Threads, an_engine_per_thread_serves_its_own_device) {
  constexpr int kRounds = 300;
  Device server_device = must(Device::open());
  std::atomic<bool> ready{false};
  std::string address;
  std::thread server([&] {
    ProgressEngine engine = must(ProgressEngine::create(server_device));
    MemoryRegion memory = must(server_device.allocate_memory(4096));
    Listener listener = must(Listener::create(engine));
    address = listener.address().to_string();
    ready = true;
    Connection connection = must(listener.accept(patient()));
    for (int i = 0; i < kRounds; ++i) {
      Operation receive = connection.receive(memory.local());
      const auto got = must(receive.wait());
      must(connection.send(memory.local(0, got.bytes)).wait());
    }
    engine.run_until([&] { return connection.closed(); });
  });
  while (!ready) std::this_thread::yield();
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion out = must(device.allocate_memory(100)), in = must(device.allocate_memory(100));
  Connection connection = must(Connection::connect(engine, address, patient()));
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    test::fill(out, i);
    Operation receive = connection.receive(in.local());
    must(connection.send(out.local()).wait());
    must(receive.wait());
    ASSERT_TRUE(test::same(in, out)) << "round " << i;
  }
  must(connection.close());
  server.join();
}

// A ring: each sends to the next and receives from the one before.
class Shard {
 public:
  Shard(Device& device, std::uint32_t number) : device_(device), number_(number) {
    listener_.on_request([this] { inbound_.emplace(must(must(listener_.wait_request(kLong)).accept(patient()))); });
  }
  std::string address() const { return listener_.address().to_string(); }
  // How many messages were not what the one before sent.
  std::uint32_t run(const std::string& next, std::uint32_t before, std::uint32_t rounds) {
    MemoryRegion out = must(device_.allocate_memory(100)), in = must(device_.allocate_memory(100));
    MemoryRegion expected = must(device_.allocate_memory(100));
    Connection outbound = must(Connection::connect(engine_, next, patient()));
    engine_.run_until([&] { return inbound_ && inbound_->phase() == ConnectionPhase::Established; }, kLong);
    std::uint32_t wrong = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      test::fill(out, number_ * 1'000 + round);
      test::fill(expected, before * 1'000 + round);
      Operation receive = inbound_->receive(in.local());
      must(outbound.send(out.local()).wait());
      must(receive.wait());
      wrong += !test::same(in, expected);
    }
    must(outbound.close());
    engine_.run_until([&] { return inbound_->closed(); }, kLong);
    return wrong;
  }

 private:
  static constexpr Duration kLong = Duration::seconds(60);
  Device& device_;
  const std::uint32_t number_;
  ProgressEngine engine_ = must(ProgressEngine::create(device_));
  Listener listener_ = must(Listener::create(engine_));
  std::optional<Connection> inbound_;
};

TEST(Threads, each_has_a_device_of_its_own_at_one_address) {
  constexpr std::uint32_t kShards = 3, kRounds = 100;
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    std::vector<Device> devices;
    devices.push_back(must(Device::open({.path = path})));
    const std::string address = devices[0].address().to_string();
    while (devices.size() < kShards) devices.push_back(must(Device::open({.device = address, .path = path})));
    std::array<std::string, kShards> addresses;
    std::atomic<std::uint32_t> ready{0}, wrong{0};
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kShards; ++i)
      threads.emplace_back([&, i] {
        Shard shard(devices[i], i);
        addresses[i] = shard.address();
        for (++ready; ready < kShards;) std::this_thread::yield();
        wrong += shard.run(addresses[(i + 1) % kShards], (i + kShards - 1) % kShards, kRounds);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    for (const std::string& one : addresses) EXPECT_EQ(one.substr(0, address.size()), address);
  }
}

// Only this thread could take the signal, and it does not: so it stays pending.
TEST(Threads, no_handler_of_the_program_runs_on_a_thread_of_the_library) {
  static std::atomic<int> handled{0};
  sigset_t one, before, pending;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR1);
  const auto handler = ::signal(SIGUSR1, [](int) { ++handled; });
  {
    const Device device = must(Device::open());  // with its service thread
    ::pthread_sigmask(SIG_BLOCK, &one, &before);
    ::kill(::getpid(), SIGUSR1);
    ::sigpending(&pending);
    EXPECT_EQ(::sigismember(&pending, SIGUSR1), 1);
    EXPECT_EQ(handled, 0);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(handled, 1);
  ::signal(SIGUSR1, handler);
}

TEST(Threads, a_client_that_calls_early_meets_a_server_that_starts_late) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  // One that nobody takes by itself.
  const auto pid = static_cast<unsigned>(::getpid());
  const std::string free_address =
      "127." + std::to_string(64 + pid % 128) + "." + std::to_string(pid / 128 % 256) + ".9";
  std::atomic<bool> asked{false};
  std::thread server([&] {
    while (!asked) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));  // some requests find nobody
    Device late = must(Device::open(free_address));
    ProgressEngine its_engine = must(ProgressEngine::create(late));
    Listener listener = must(Listener::create(its_engine, {.port = 7471}));
    Connection connection = must(listener.accept(patient(), Duration::seconds(60)));
    its_engine.run_until([&] { return connection.closed(); });
  });
  asked = true;
  // The device is there a moment before its listener.
  const std::string address = free_address + ":7471";
  auto connection = Connection::connect(engine, address, patient());
  while (!connection && connection.error().code() == ErrorCode::ConnectionRefused)
    connection = Connection::connect(engine, address, patient());
  must(must(std::move(connection)).close());
  server.join();
}

TEST(Threads, a_client_whose_listener_goes_while_it_calls_is_refused) {
  Device server = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(server));
  std::optional<Listener> listener = must(Listener::create(engine));
  const std::string address = listener->address().to_string();
  std::atomic<bool> over{false};
  std::thread client([&] {
    Device device = must(Device::open());
    ProgressEngine its_engine = must(ProgressEngine::create(device));
    test::expect_error(Connection::connect(its_engine, address, patient()), ErrorCode::ConnectionRefused);
    over = true;
    engine.wake();
  });
  // The device has the request, and nobody took its event yet.
  pollfd poll_fd{server.event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&poll_fd, 1, 60'000), 1);
  listener.reset();
  EXPECT_TRUE(engine.run_until([&] { return over.load(); }, Duration::seconds(60)));
  client.join();
}

// Who has taken a request says no by dropping it, though his listener went first.
TEST(Threads, a_client_whose_request_was_taken_and_dropped_is_rejected) {
  Device server = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(server));
  std::optional<Listener> listener = must(Listener::create(engine));
  const std::string address = listener->address().to_string();
  std::atomic<bool> over{false};
  std::thread client([&] {
    Device device = must(Device::open());
    ProgressEngine its_engine = must(ProgressEngine::create(device));
    test::expect_error(Connection::connect(its_engine, address, patient()), ErrorCode::Rejected);
    over = true;
    engine.wake();
  });
  std::optional<ConnectionRequest> request;
  const auto taken = [&] { return (request = listener->poll_request()).has_value(); };
  EXPECT_TRUE(engine.run_until(taken, Duration::seconds(30)));
  listener.reset();
  request.reset();
  EXPECT_TRUE(engine.run_until([&] { return over.load(); }, Duration::seconds(30)));
  client.join();
}

TEST(Threads, a_callback_may_destroy_a_connection_that_the_peer_has_closed_meanwhile) {
  std::string address;
  std::atomic<bool> listens{false}, go{false}, closed{false};
  std::thread server([&] {
    Device device = must(Device::open());
    ProgressEngine its_engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(its_engine));
    address = listener.address().to_string();
    listens = true;
    Connection connection = must(listener.accept(patient()));
    while (!go) std::this_thread::yield();
    must(connection.send(Segments{}).wait());
    must(connection.close(Duration::seconds(60)));
    closed = true;
  });
  while (!listens) std::this_thread::yield();
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  std::optional<Connection> near = must(Connection::connect(engine, address, patient()));
  Operation first, second;
  first.on_done([&](Operation& self) {
    must(self.result());
    near.reset();
  });
  near->receive(first, Segments{});
  near->receive(second, Segments{});
  go = true;
  while (!closed) std::this_thread::yield();
  // The message and the end are both there, and the engine has seen neither.
  EXPECT_TRUE(engine.run_until([&] { return !near; }, Duration::seconds(60)));
  test::expect_error(second.result(), ErrorCode::Flushed, "destroyed here");
  server.join();
}

// A callback that looks at no result, on a connection and on a pool that go.
TEST(Threads, an_operation_that_is_always_started_anew_does_not_hold_up_the_end_of_what_it_is_started_on) {
  constexpr int kFar = 10'000;
  test::Pair pair;
  int told = 0;
  Operation operation;
  operation.on_done([&](Operation& self) {
    if (++told < kFar) self.submit();
  });
  {
    Connection near = pair.connect();
    near.receive(operation, Segments{});
  }
  EXPECT_LT(told, kFar);
  test::expect_error(operation.result(), ErrorCode::Flushed, "destroyed here");
  told = 0;
  {
    ReceivePool pool = must(ReceivePool::create(pair.engine));
    pool.receive(operation, Segments{});
  }
  EXPECT_LT(told, kFar);
  test::expect_error(operation.result(), ErrorCode::Flushed, "destroyed here");
}

// An event loop that knows nothing of Verbena but one descriptor.
TEST(Threads, one_descriptor_carries_an_engine_through_a_foreign_loop) {
  test::Pair pair;
  Connection near = pair.connect();
  std::vector<std::uint64_t> cell{0};
  MemoryRegion region = must(pair.server.register_memory(cell));
  Operation operation;
  int left = 50;
  operation.on_done([&](Operation& self) {
    must(self.result());
    if (--left > 0) self.submit();
  });
  near.fetch_and_add(operation, region.remote(), 1);
  Operation never = near.receive(Segments{});
  never.expires_at(pair.engine.now() + Duration::milliseconds(300));  // a deadline wakes the descriptor, too
  while (!never.done()) {
    while (pair.engine.run_once()) {
    }
    if (never.done() || !pair.engine.prepare_wait()) continue;
    pollfd poll_fd{pair.engine.fd(), POLLIN, 0};
    ASSERT_GE(::poll(&poll_fd, 1, 60'000), 1);
  }
  EXPECT_EQ(left, 0);
  EXPECT_EQ(cell[0], 50u);
  test::expect_error(never.result(), ErrorCode::DeadlineExceeded);
}

// What waits in a handler of the loop takes the events that the descriptor would have shown.
TEST(Threads, a_wait_inside_a_foreign_loop_leaves_the_descriptor_as_good_as_it_was) {
  test::Pair pair;
  pair.server_options.keep_alive = {};  // nothing else wakes
  Connection near = pair.connect({.keep_alive = {}});
  std::vector<std::uint64_t> here{0}, there{0};
  MemoryRegion near_cell = must(pair.client.register_memory(here));
  MemoryRegion far_cell = must(pair.server.register_memory(there));
  Operation message = near.receive(Segments{});
  do {
    while (pair.engine.run_once()) {
    }
  } while (!pair.engine.prepare_wait());
  must(near.fetch_and_add(far_cell.remote(), 1).wait());
  must(pair.far_end().fetch_and_add(near_cell.remote(), 1).wait());
  Operation sent = pair.far_end().send(Segments{});
  while (!message.done() || !sent.done()) {
    pollfd poll_fd{pair.engine.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&poll_fd, 1, 10'000), 1);
    do {
      while (pair.engine.run_once()) {
      }
    } while (!pair.engine.prepare_wait());
  }
  must(message.result());
}

// What is to wake the loop still does so after a wait that it ended.
TEST(Threads, waits_inside_a_foreign_loop_keep_what_was_to_wake_it) {
  test::Pair pair;
  ProgressEngine& engine = pair.engine;
  const auto readable = [&] {
    pollfd poll_fd{engine.fd(), POLLIN, 0};
    return ::poll(&poll_fd, 1, 0) == 1;
  };
  const auto wait = [&] { EXPECT_FALSE(engine.run_until([] { return false; }, Duration::milliseconds(1))); };
  pair.server_options.keep_alive = {};  // nothing else wakes
  Connection near = pair.connect({.keep_alive = {}});
  do {
    while (engine.run_once()) {
    }
  } while (!engine.prepare_wait());
  EXPECT_FALSE(readable());
  for (int i = 0; i < 3; ++i) {
    wait();
    EXPECT_TRUE(readable()) << "after wait " << i;
  }
  do {
    while (engine.run_once()) {
    }
  } while (!engine.prepare_wait());
  EXPECT_FALSE(readable());
  Operation never = near.receive(Segments{});
  never.expires_at(engine.now() + Duration::seconds(60));
  EXPECT_TRUE(readable());
  wait();
  EXPECT_TRUE(readable());
}

// An event that ended a wait is the engine's to dispatch, whatever its descriptor says.
TEST(Threads, an_engine_that_has_waited_runs_before_a_foreign_loop_waits_for_it) {
  std::atomic<bool> ready{false}, leave{false};
  std::string address;
  std::thread server([&] {
    Device device = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine));
    address = listener.address().to_string();
    ready = true;
    Connection connection = must(listener.accept(patient()));
    engine.run_until([&] { return leave.load(); }, Duration::seconds(60));
    must(connection.close());
  });
  while (!ready) std::this_thread::yield();
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device, {WaitMode::Event}));
  ConnectionOptions options = patient();
  options.keep_alive = {};
  Connection connection = must(Connection::connect(engine, address, options));
  do {
    while (engine.run_once()) {
    }
  } while (!engine.prepare_wait());
  leave = true;
  for (int waits = 0; waits < 1000 && !connection.closed(); ++waits) {
    engine.wait(engine.now() + Duration::seconds(5));
    EXPECT_FALSE(engine.prepare_wait());
    while (engine.run_once()) {
    }
  }
  EXPECT_TRUE(connection.closed());
  server.join();
}

TEST(Threads, queue_pairs_of_one_device_are_posted_to_and_polled_from_any_thread) {
  constexpr std::uint64_t kEach = 200;
  Device a = must(Device::open()), b = must(Device::open());
  std::vector<std::uint64_t> cells(4, 0);
  MemoryRegion target = must(b.register_memory(cells));
  const auto count_on = [&](std::size_t cell) {
    CompletionQueue here = must(a.create_completion_queue(64)), there = must(b.create_completion_queue(64));
    QueuePair one = must(a.create_queue_pair(here)), two = must(b.create_queue_pair(there));
    must(one.connect(two.address()));
    must(two.connect(one.address()));
    MemoryRegion result = must(a.allocate_memory(8));
    const ScatterGather piece = result.local();
    SendRequest request;
    request.opcode = SendOpcode::FetchAndAdd;
    request.local = {&piece, 1};
    request.remote_address = target.remote().address + cell * 8;
    request.rkey = target.rkey();
    request.swap_or_add = 1;
    for (std::uint64_t i = 0; i < kEach; ++i) {
      ASSERT_TRUE(one.post_send(request));
      std::optional<Completion> done;
      while (!(done = here.poll_one())) std::this_thread::yield();
      ASSERT_EQ(done->status, CompletionStatus::Success);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cells.size(); ++i) threads.emplace_back([&, i] { count_on(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(cells, ::testing::Each(kEach));
}

}  // namespace
}  // namespace verbena
