// SPDX-License-Identifier: Apache-2.0
// Who sleeps is woken, each time, by whatever way the peer wakes it: often enough that its bell is rung.
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

class Sleeping : public ::testing::TestWithParam<PathChoice> {
 protected:
  Device open() { return must(Device::open(OpenOptions{.path = GetParam()})); }
};

INSTANTIATE_TEST_SUITE_P(Paths, Sleeping, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         [](const auto& path) { return path.param == PathChoice::Local ? "local" : "roce"; });

constexpr Duration kTooLong = Duration::seconds(20);

TEST_P(Sleeping, two_that_answer_each_other_do_so_from_sleep) {
  constexpr int kTurns = 300;
  Device near = open(), far = open();
  ProgressEngine far_engine = must(ProgressEngine::create(far, {WaitMode::Event}));
  Listener listener = must(Listener::create(far_engine));
  std::thread echo([&] {
    ConnectionRequest request = must(listener.wait_request(kTooLong));
    Connection peer = must(request.accept());
    for (int i = 0; i < kTurns; ++i) {
      EXPECT_TRUE(peer.receive(Segments{}).wait(kTooLong)) << i;
      EXPECT_TRUE(peer.send(Segments{}).wait(kTooLong)) << i;
    }
    far_engine.run_until([&] { return peer.closed(); }, kTooLong);
  });
  ProgressEngine engine = must(ProgressEngine::create(near, {WaitMode::Event}));
  Connection peer = must(Connection::connect(engine, listener.address().to_string()));
  for (int i = 0; i < kTurns; ++i) {
    Operation answer = peer.receive(Segments{});
    ASSERT_TRUE(peer.send(Segments{}).wait(kTooLong)) << i;
    ASSERT_TRUE(answer.wait(kTooLong)) << i;
  }
  must(peer.close());
  echo.join();
}

// Each message wakes one of two threads that sleep on the device, or finds them awake.
TEST_P(Sleeping, of_two_threads_that_wait_for_a_device_one_is_woken) {
  constexpr int kMessages = 300;
  Device near = open(), far = open();
  CompletionQueue sent = must(near.create_completion_queue(64)), received = must(far.create_completion_queue(64));
  QueuePair one = must(near.create_queue_pair(sent)), two = must(far.create_queue_pair(received));
  must(one.connect(two.address()));
  must(two.connect(one.address()));
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(two.post_receive(ReceiveRequest{}));
  std::mutex mutex;
  std::atomic<int> seen{0}, awake{2}, overslept{0};
  const auto wait = [&] {
    while (seen.load() < kMessages) {
      const Instant until = far.now() + kTooLong;
      far.wait_event(until);
      while (far.poll_event()) continue;
      if (far.now() >= until) ++overslept;
      const std::lock_guard guard(mutex);
      received.arm();
      while (received.poll_one()) ++seen, static_cast<void>(two.post_receive(ReceiveRequest{}));
    }
    --awake;
  };
  received.arm();
  std::array<std::thread, 2> threads{std::thread(wait), std::thread(wait)};
  SendRequest request;
  request.flags = SendFlags::Signaled;
  for (int i = 0; awake.load() != 0; ++i) {
    ASSERT_TRUE(one.post_send(request));
    std::optional<Completion> done;
    while (!(done = sent.poll_one())) near.progress();
    ASSERT_EQ(done->status, CompletionStatus::Success);
    // Nor are there receives for many that nobody has taken yet.
    while (seen.load() <= i && awake.load() != 0 && overslept.load() == 0) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overslept.load(), 0);
}

TEST(Sleeping, a_wait_until_long_ago_returns) {
  test::Pair pair;  // two devices: the engine sleeps itself
  pair.engine.run_until([] { return false; }, Duration::milliseconds(20));
  for (const std::int64_t ns : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()})
    for (int i = 0; i < 100; ++i) pair.engine.wait(Instant{ns});
}

}  // namespace
}  // namespace verbena
