// SPDX-License-Identifier: Apache-2.0
// What ends an engine's wait, in a loop of its own and in one that waits for its descriptor; and devices that nothing
// tells of what comes.
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/sanitizer.h"
#include "test_pair.h"

namespace {
bool refuses_to_watch = false;
}

#if !defined(VERBENA_THREAD_SANITIZER) && !defined(VERBENA_ADDRESS_SANITIZER)
extern "C" int epoll_ctl(int set, int operation, int fd, epoll_event* event) noexcept {
  if (refuses_to_watch) return errno = ENOSPC, -1;
  return static_cast<int>(::syscall(SYS_epoll_ctl, set, operation, fd, event));
}
#endif

namespace verbena {
namespace {

using test::must;

// Until there is nothing to do.
void rest(ProgressEngine& engine) {
  while (engine.run_once()) continue;
}
bool is_readable(ProgressEngine& engine, int timeout_ms) {
  pollfd one{engine.fd(), POLLIN, 0};
  return ::poll(&one, 1, timeout_ms) == 1;
}

// Though it comes between two looks of the engine at what wake() leaves.
TEST(EngineWait, a_wake_is_heard_once) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  std::atomic<int> asked{0}, given{0};
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    while (!stop)
      if (given.load() != asked.load()) engine.wake(), given.fetch_add(1);
  });
  for (int round = 0; round < 200; ++round) {
    asked.fetch_add(1);
    while (given.load() != asked.load()) {
      rest(engine);
      static_cast<void>(engine.prepare_wait());
    }
    int readable = 0, turns = 0;
    while (turns < 20) {
      rest(engine);
      if (!engine.prepare_wait()) continue;
      ++turns;
      readable += is_readable(engine, 0) ? 1 : 0;
    }
    EXPECT_LT(readable, 10) << round;
  }
  stop = true;
  waker.join();
}

TEST(EngineWait, a_device_that_cannot_be_watched_is_not_attached) {
  if (kSanitized) GTEST_SKIP() << "the system's call is the sanitizer's";
  Device first = must(Device::open()), second = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(first));
  refuses_to_watch = true;
  const auto refused = engine.add(second);
  refuses_to_watch = false;
  EXPECT_FALSE(refused);
  EXPECT_FALSE(Listener::create(engine, {.device = &second}));
  EXPECT_TRUE(engine.add(second));
}

// Nothing else is to happen there, neither by time nor by a connection management.
TEST(EngineWait, what_is_begun_meanwhile_is_told_by_the_descriptor) {
  Device here = must(Device::open({.path = PathChoice::Roce})), there = must(Device::open({.path = PathChoice::Roce}));
  ProgressEngine engine = must(ProgressEngine::create(here)), other = must(ProgressEngine::create(there));
  MemoryRegion inbox = must(here.allocate_memory(64)), outbox = must(there.allocate_memory(64));
  do rest(engine);
  while (!engine.prepare_wait());
  Connection near = must(Connection::prepare(engine, {.keep_alive = Duration{}}));
  Connection far = must(Connection::prepare(other));
  const auto of_near = must(near.describe()), of_far = must(far.describe());
  must(near.connect_to(of_far));
  must(far.connect_to(of_near));
  Operation receive;
  near.receive(receive, inbox.local(0, 8));
  EXPECT_TRUE(far.send(outbox.local(0, 8)).wait(Duration::seconds(10)));
  EXPECT_TRUE(is_readable(engine, 10'000));
  EXPECT_TRUE(engine.run_until([&] { return receive.done(); }, Duration::seconds(10)));
}

// What stands between two turns of a loop that waits for fd().
void expect_woken_by_what_begins(ProgressEngine& engine, const std::function<void()>& handler) {
  for (int round = 0; round < 3; ++round) {
    do rest(engine);
    while (!engine.prepare_wait());
    handler();
    bool begun = false;
    engine.spawn([](bool& flag) -> Task<void> {
      flag = true;
      co_return;
    }(begun));
    EXPECT_TRUE(is_readable(engine, 5000)) << round;
    rest(engine);
    EXPECT_TRUE(begun);
  }
}

TEST(EngineWait, a_handler_that_runs_the_engine_leaves_the_loop_its_wake_up) {
  test::Pair pair;
  expect_woken_by_what_begins(pair.engine, [&] { pair.engine.run_once(); });
  expect_woken_by_what_begins(pair.engine, [&] {
    bool ran = false;
    pair.engine.spawn([](bool& flag) -> Task<void> {
      flag = true;
      co_return;
    }(ran));
    EXPECT_TRUE(pair.engine.run_once());
    EXPECT_TRUE(ran);
  });
}

TEST(EngineWait, a_handler_that_looks_for_a_message_leaves_the_loop_its_wake_up) {
  test::Pair pair;
  auto receiver = must(messaging::Receiver::create(pair.engine, {.kind = {messaging::Protocol::SendReceive}}));
  expect_woken_by_what_begins(pair.engine, [&] { EXPECT_FALSE(receiver.try_receive()); });
}

// The queues that asked for an event are to be asked again.
TEST(EngineWait, what_comes_after_a_handler_ran_the_engine_wakes_the_loop) {
  test::Pair pair;
  Connection near = pair.connect();
  const MemoryRegion from = must(pair.client.allocate_memory(64)), to = must(pair.server.allocate_memory(64));
  Operation receive, first, second;
  pair.far_end().receive(receive, to.local());
  do rest(pair.engine);
  while (!pair.engine.prepare_wait());
  near.send(first, from.local());
  while (!receive.done()) pair.engine.run_once();
  EXPECT_TRUE(is_readable(pair.engine, 5000));
  do rest(pair.engine);
  while (!pair.engine.prepare_wait());
  near.write(second, from.local(), to.remote());
  EXPECT_TRUE(is_readable(pair.engine, 5000));
}

class Unserved : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Devices, Unserved, ::testing::Values(1, 2));

// Whoever has no service thread looks by itself.
TEST_P(Unserved, devices_hear_of_peers_while_their_engine_sleeps) {
  const OpenOptions unserved{.path = PathChoice::Roce, .service_thread = false};
  Device first = must(Device::open(unserved)), second = must(Device::open(unserved)), there = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(first, {.wait = WaitMode::Event}));
  if (GetParam() == 2) must(engine.add(second));
  EXPECT_EQ(engine.fd(), -1);
  EXPECT_FALSE(engine.prepare_wait());
  Listener listener = must(Listener::create(engine));
  std::optional<Connection> accepted;
  listener.on_request([&] { accepted.emplace(must(listener.poll_request()->accept())); });
  std::atomic<bool> over{false};
  std::string how;
  std::thread peer([&, address = listener.address().to_string()] {
    ProgressEngine other = must(ProgressEngine::create(there));
    ::usleep(20'000);
    const auto made = Connection::connect(other, address);
    how = made ? "well" : made.error().to_string();
    over = true;
  });
  EXPECT_TRUE(engine.run_until([&] { return over.load(); }, Duration::seconds(20)));
  peer.join();
  EXPECT_EQ(how, "well");
}

}  // namespace
}  // namespace verbena
