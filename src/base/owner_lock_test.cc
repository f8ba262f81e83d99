// SPDX-License-Identifier: Apache-2.0
#include "base/owner_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace verbena {
namespace {

TEST(OwnerLock, has_one_owner) {
  OwnerLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(OwnerLock, of_one_thread_at_a_time_has_one_owner_and_nobody_waits) {
  OwnerLock lock(OwnerLock::Takers::OneThread);
  lock.lock();
  EXPECT_FALSE(lock.try_lock());
  EXPECT_DEATH(lock.lock(), "shared_");
  lock.unlock();
  std::thread([&lock] { EXPECT_TRUE(lock.try_lock()); }).join();
  lock.unlock();
}

TEST(OwnerLock, whoever_waits_gets_it) {
  constexpr int kThreads = 6, kTimes = 5'000;
  OwnerLock lock;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kTimes; ++n) {
        const std::lock_guard guard(lock);
        ++count;
        if (n % 64 == 0) std::this_thread::yield();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kTimes);
}

// One lets go and looks; the other leaves word and tries.
TEST(OwnerLock, word_left_before_a_try_that_fails_is_there_after_letting_go) {
  constexpr int kRounds = 20'000;
  OwnerLock lock;
  std::atomic<int> word{0}, begun{0}, ended{0};
  bool got = false;
  std::thread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load() != round) std::this_thread::yield();
      word.store(round);
      got = lock.try_lock();
      if (got) lock.unlock();
      ended.store(round);
    }
  });
  int missed = 0;
  for (int round = 1; round <= kRounds; ++round) {
    lock.lock();
    begun.store(round);
    for (volatile int pause = round % 64; pause > 0;) pause = pause - 1;
    lock.unlock();
    const bool seen = word.load() == round;
    while (ended.load() != round) std::this_thread::yield();
    if (!seen && !got) ++missed;
  }
  other.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace verbena
