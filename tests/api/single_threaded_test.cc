// SPDX-License-Identifier: Apache-2.0
// Devices that one thread at a time uses, as OpenOptions::single_threaded promises.
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

struct SingleThreaded : ::testing::TestWithParam<PathChoice> {
  static OpenOptions options() { return {.path = GetParam(), .single_threaded = true}; }
};
INSTANTIATE_TEST_SUITE_P(Api, SingleThreaded, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         [](const auto& path) { return path.param == PathChoice::Local ? "local" : "roce"; });

TEST_P(SingleThreaded, devices_do_what_others_do) {
  test::Pair pair({WaitMode::Busy}, options());
  EXPECT_EQ(pair.engine.fd(), -1) << "nobody looks for it";
  const MemoryRegion here = must(pair.client.allocate_memory(4096)), there = must(pair.server.allocate_memory(4096));
  Connection near = pair.connect();
  Connection& far = pair.far_end();
  for (const std::uint32_t bytes : {8u, 100u, 4096u}) {
    test::fill(here, bytes);
    Operation receive = far.receive(there.local(0, bytes)), send = near.send(here.local(0, bytes));
    must(receive.wait());
    must(send.wait());
    EXPECT_EQ(std::memcmp(here.data(), there.data(), bytes), 0);
  }
  test::fill(here, 1);
  must(near.write(here.local(), there.remote()).wait());
  EXPECT_TRUE(test::same(here, there));
  test::fill(there, 2);
  must(near.read(here.local(), there.remote()).wait());
  EXPECT_TRUE(test::same(here, there));
  must(near.close());
}

TEST_P(SingleThreaded, an_engine_sleeps_and_another_thread_wakes_it) {
  Device device = must(Device::open(options()));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  std::atomic<bool> over{false};
  std::thread waker([&] {
    over = true;
    engine.wake();
  });
  EXPECT_TRUE(engine.run_until([&] { return over.load(); }, Duration::seconds(20)));
  waker.join();
}

TEST_P(SingleThreaded, an_engine_that_sleeps_hears_of_a_peer) {
  Device device = must(Device::open(options())), other = must(Device::open({.path = GetParam()}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  const MemoryRegion here = must(device.allocate_memory(8));
  Listener listener = must(Listener::create(engine));
  std::optional<Connection> accepted;
  listener.on_request([&] { accepted.emplace(must(listener.poll_request()->accept())); });
  std::thread peer([&, address = listener.address().to_string()] {
    ProgressEngine own = must(ProgressEngine::create(other));
    const MemoryRegion there = must(other.allocate_memory(8));
    there.bytes()[7] = std::byte{9};
    Connection connection = must(Connection::connect(own, address));
    must(connection.send(there.local()).wait());
    must(connection.close());
  });
  EXPECT_TRUE(engine.run_until([&] { return accepted.has_value(); }, Duration::seconds(20)));
  Operation receive = accepted->receive(here.local());
  EXPECT_TRUE(engine.run_until([&] { return receive.done(); }, Duration::seconds(20)));
  EXPECT_EQ(here.bytes()[7], std::byte{9});
  engine.run_until([&] { return accepted->closed(); }, Duration::seconds(20));
  peer.join();
}

// A thread of ours reads the counters then.
TEST_P(SingleThreaded, a_device_that_keeps_a_file_of_its_counters_takes_its_locks) {
  std::string folder = ::testing::TempDir() + "verbena_single_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ::setenv("VERBENA_COUNTERS", folder.c_str(), 1);
  {
    test::Pair pair({WaitMode::Busy}, options());
    ::unsetenv("VERBENA_COUNTERS");
    const MemoryRegion here = must(pair.client.allocate_memory(8)), there = must(pair.server.allocate_memory(8));
    Connection near = pair.connect();
    const auto wrote = [&folder, first = std::filesystem::last_write_time(folder)] {
      return std::filesystem::last_write_time(folder) != first;
    };
    EXPECT_TRUE(pair.engine.run_until(
        [&] {
          Operation receive = pair.far_end().receive(there.local());
          must(near.send(here.local()).wait());
          must(receive.wait());
          return wrote();
        },
        Duration::seconds(20)));
  }
  std::filesystem::remove_all(folder);
}

// One after the other is no two at once.
TEST_P(SingleThreaded, a_device_goes_from_thread_to_thread) {
  test::Pair pair({WaitMode::Busy}, options());
  const MemoryRegion here = must(pair.client.allocate_memory(8)), there = must(pair.server.allocate_memory(8));
  Connection near = pair.connect();
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      here.bytes()[0] = static_cast<std::byte>(i);
      Operation receive = pair.far_end().receive(there.local());
      must(near.send(here.local()).wait());
      must(receive.wait());
      EXPECT_EQ(there.bytes()[0], static_cast<std::byte>(i));
    }).join();
}

}  // namespace
}  // namespace verbena
