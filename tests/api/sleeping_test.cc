// SPDX-License-Identifier: Apache-2.0
// Who sleeps is woken, each time, by whatever way the peer wakes it: often enough that its bell is rung.
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

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

// What came with the message that woke him, by that queue pair and another, is not left to the next signal.
TEST_P(Sleeping, who_is_woken_by_the_first_of_several_hears_of_all) {
  constexpr std::uint32_t kTurns = 300, kEach = 3;
  Device near = open(), far = open();
  CompletionQueue sent = must(near.create_completion_queue(64)), received = must(far.create_completion_queue(64));
  MemoryRegion source = must(near.allocate_memory(8)), target = must(far.allocate_memory(8));
  const ScatterGather message = source.local(), place = target.local();
  const ReceiveRequest receive{0, {&place, 1}};
  std::vector<QueuePair> from, to;
  for (std::size_t i = 0; i < 2; ++i) {
    from.push_back(must(near.create_queue_pair(sent)));
    to.push_back(must(far.create_queue_pair(received)));
    must(from[i].connect(to[i].address()));
    must(to[i].connect(from[i].address()));
    for (int k = 0; k < 16; ++k) ASSERT_TRUE(to[i].post_receive(receive));
  }
  std::atomic<std::uint32_t> seen{0};
  std::atomic<bool> overslept{false};
  received.arm();
  std::thread sleeper([&] {
    while (seen.load() < kTurns * 2 * kEach && !overslept.load()) {
      const Instant until = far.now() + kTooLong;
      far.wait_event(until);
      if (far.now() >= until) overslept = true;
      while (far.poll_event()) continue;
      received.arm();
      while (const auto done = received.poll_one()) {
        static_cast<void>(to[done->qpn == to[1].qpn() ? 1 : 0].post_receive(receive));
        ++seen;
      }
    }
  });
  SendRequest request;
  request.flags = SendFlags::Signaled;
  request.local = {&message, 1};
  for (std::uint32_t turn = 1; turn <= kTurns && !overslept.load(); ++turn) {
    for (std::uint32_t i = 0; i < 2 * kEach; ++i) EXPECT_TRUE(from[i % 2].post_send(request));
    for (std::uint32_t done = 0; done < 2 * kEach && !overslept.load();) {
      const auto one = sent.poll_one();
      if (!one) continue;
      EXPECT_EQ(one->status, CompletionStatus::Success);
      ++done;
    }
    while (seen.load() < turn * 2 * kEach && !overslept.load()) std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_FALSE(overslept.load());
}

// One queue pair gets messages without end, which nobody is to be told of.
TEST(Sleeping, who_waits_hears_of_one_queue_pair_beside_another_that_is_never_empty) {
  constexpr int kTurns = 5, kFlood = 200'000;
  OpenOptions local;
  local.path = PathChoice::Local;
  Device near = must(Device::open(local)), other = must(Device::open(local)), far = must(Device::open(local));
  CompletionQueue sent = must(near.create_completion_queue(4096)), asked = must(other.create_completion_queue(64));
  CompletionQueue ignored = must(far.create_completion_queue(kFlood + 4096));
  CompletionQueue heard = must(far.create_completion_queue(64));
  QueuePairOptions deep;
  deep.capabilities.max_send_requests = deep.capabilities.max_receive_requests = 4096;
  deep.capabilities.max_inline_bytes = 8;
  QueuePair flood = must(near.create_queue_pair(sent, deep)), flooded = must(far.create_queue_pair(ignored, deep));
  QueuePair one = must(other.create_queue_pair(asked)), two = must(far.create_queue_pair(heard));
  must(flood.connect(flooded.address()));
  must(flooded.connect(flood.address()));
  must(one.connect(two.address()));
  must(two.connect(one.address()));
  MemoryRegion source = must(near.allocate_memory(8)), question = must(other.allocate_memory(8));
  MemoryRegion target = must(far.allocate_memory(8));
  const ScatterGather message = source.local(), asks = question.local(), place = target.local();
  const ReceiveRequest receive{0, {&place, 1}};
  for (int i = 0; i < 4096; ++i) ASSERT_TRUE(flooded.post_receive(receive));
  for (int i = 0; i < kTurns; ++i) ASSERT_TRUE(two.post_receive(receive));
  SendRequest request;
  request.local = {&message, 1};
  request.flags = SendFlags::Inline;
  std::vector<SendRequest> list(32, request);
  list.back().flags = SendFlags::Inline | SendFlags::Signaled;
  const std::vector<ReceiveRequest> receives(32, receive);  // posted blindly: to look would be to drive
  request.local = {&asks, 1};
  request.flags = SendFlags::Signaled;
  std::array<Completion, 64> done;
  for (int turn = 0; turn < kTurns; ++turn) {
    heard.arm();
    std::atomic<bool> woken{false};
    std::thread sleeper([&] {
      far.wait_event(far.now() + kTooLong);
      woken = true;
    });
    bool is_asked = false;
    int out = 0, left = kFlood;  // lists
    for (; !woken.load() && left > 0; left -= 32) {
      while (out >= 16) out -= static_cast<int>(sent.poll(done));
      EXPECT_TRUE(flood.post_send(list));
      ++out;
      static_cast<void>(flooded.post_receive(receives));
      if (left < kFlood / 2 && !std::exchange(is_asked, true)) {
        EXPECT_TRUE(one.post_send(request));
      }
    }
    EXPECT_TRUE(is_asked || one.post_send(request));
    EXPECT_GT(left, 0) << "turn " << turn;
    sleeper.join();
    while (out > 0) out -= static_cast<int>(sent.poll(done));
    while (heard.poll_one() || ignored.poll_one()) continue;
    while (far.poll_event()) continue;
  }
}

TEST(Sleeping, a_wait_until_long_ago_returns) {
  test::Pair pair;  // two devices: the engine sleeps itself
  pair.engine.run_until([] { return false; }, Duration::milliseconds(20));
  for (const std::int64_t ns : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()})
    for (int i = 0; i < 100; ++i) pair.engine.wait(Instant{ns});
}

}  // namespace
}  // namespace verbena
