// SPDX-License-Identifier: Apache-2.0
// The hot path takes no memory from the heap: not in the operations, not in the engine, not in the device.
#include <cstdlib>
#include <new>

#include "test_pair.h"

namespace {
thread_local std::size_t allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace verbena {
namespace {

using test::must;
using test::Pair;

// The service thread is out of the way, so that all work is counted here.
struct Quiet {
  explicit Quiet(PathChoice path = PathChoice::Auto, WaitMode wait = WaitMode::Busy,
                 const ConnectionOptions& options = {})
      : client(open(path)), server(open(path)), engine(must(ProgressEngine::create(client, {.wait = wait}))) {
    must(engine.add(server));
    Listener listener = must(Listener::create(engine, {.device = &server}));
    listener.on_request([&] { far.emplace(must(listener.poll_request()->accept(options))); });
    near.emplace(must(Connection::connect(engine, listener.address().to_string(), options)));
    must(far->wait_established());
  }
  static Device open(PathChoice path) {
    OpenOptions options;
    options.path = path;
    options.service_thread = false;
    return must(Device::open(options));
  }
  Device client, server;
  ProgressEngine engine;
  std::optional<Connection> near, far;
};

// What may still grow are a few buffers of the device that live as long as it does.
void expect_thousands_of_operations_allocate_nothing_each(PathChoice path) {
  Quiet pair(path);
  MemoryRegion here = must(pair.client.allocate_memory(8192));
  MemoryRegion there = must(pair.server.allocate_memory(8192));
  Operation write, read, add, send, receive;
  const auto round = [&] {
    pair.far->receive(receive, there.local());
    pair.near->write(write, here.local(), there.remote());
    pair.near->read(read, here.local(), there.remote());
    pair.near->fetch_and_add(add, there.remote(), 1);
    pair.near->send(send, here.local());
    pair.engine.run_until(
        [&] { return write.done() && read.done() && add.done() && send.done() && receive.done(); });
  };
  for (int i = 0; i < 100; ++i) round();
  const std::size_t before = allocations;
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_LE(allocations - before, 100u);  // growth of a heap here and there, not one for each of 5,000 operations
  EXPECT_TRUE(send.result() && receive.result() && read.result());
}
TEST(Allocation, thousands_of_operations_in_packets_allocate_nothing_each) {
  expect_thousands_of_operations_allocate_nothing_each(PathChoice::Roce);
}
TEST(Allocation, thousands_of_operations_in_shared_memory_allocate_nothing_each) {
  expect_thousands_of_operations_allocate_nothing_each(PathChoice::Local);
}

// Each form of completion, over the same WRITE.
template <class Round>
std::size_t allocations_of(Round&& rounds) {
  rounds(100);
  const std::size_t before = allocations;
  rounds(1000);
  return allocations - before;
}

TEST(Allocation, callbacks_allocate_nothing_each) {
  Quiet pair;
  MemoryRegion here = must(pair.client.allocate_memory(64));
  MemoryRegion there = must(pair.server.allocate_memory(64));
  int left = 0;
  Operation write;
  write.on_done([&](Operation& self) {
    if (--left != 0) self.submit();
  });
  const auto rounds = [&](int count) {
    left = count;
    pair.near->write(write, here.local(), there.remote());
    pair.engine.run_until([&] { return left == 0; });
  };
  EXPECT_LE(allocations_of(rounds), 32u);
}

TEST(Allocation, a_coroutine_allocates_its_frame_and_nothing_for_each_operation) {
  Quiet pair;
  MemoryRegion here = must(pair.client.allocate_memory(64));
  MemoryRegion there = must(pair.server.allocate_memory(64));
  const auto write_often = [](Connection& connection, ScatterGather from, RemoteMemory to,
                              int count) -> Task<int> {
    int good = 0;
    Operation kept;
    for (int i = 0; i < count; ++i) {
      auto temporary = co_await connection.write(from, to);
      auto again = co_await connection.write(kept, from, to);
      good += temporary && again ? 1 : 0;
    }
    co_return good;
  };
  const auto rounds = [&](int count) {
    EXPECT_EQ(pair.engine.run(write_often(*pair.near, here.local(), there.remote(), count)), count);
  };
  EXPECT_LE(allocations_of(rounds), 32u);
}

TEST(Allocation, sleeping_allocates_nothing_each) {
  Quiet pair;
  const auto sleep_often = [](ProgressEngine& engine, int count) -> Task<void> {
    for (int i = 0; i < count; ++i) co_await engine.sleep(Duration{});
  };
  EXPECT_LE(allocations_of([&](int count) { pair.engine.run(sleep_often(pair.engine, count)); }), 8u);
}

TEST(Allocation, keep_alives_allocate_nothing_each) {
  ConnectionOptions options;
  options.keep_alive = Duration::microseconds(100);
  Quiet pair(PathChoice::Roce, WaitMode::Event, options);
  const auto packets = [&] {
    for (const NamedCounter& counter : pair.client.counters())
      if (counter.name == "sent_pkts") return counter.value;
    return std::uint64_t{0};
  };
  const auto allocated_by = [&](std::uint64_t count) {
    std::size_t sum = 0;
    for (const std::uint64_t end = packets() + count; packets() < end;) {
      const Instant until = pair.engine.now() + Duration::milliseconds(5);
      const std::size_t before = allocations;
      pair.engine.run_until([&] { return pair.engine.now() >= until; }, until);
      sum += allocations - before;
    }
    return sum;
  };
  allocated_by(100);
  EXPECT_LE(allocated_by(500), 50u);
}

}  // namespace
}  // namespace verbena
