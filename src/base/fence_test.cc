// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/test_processors.h"

namespace verbena {
namespace {

// One side counts what it says until it is told to stop; the other tells it, fences for both, and looks what was said.
// What was said by who was not told it must see. As often as two seconds allow: two threads of one processor take long.
int count_missed(Reach reach, int turns) {
  constexpr int kOver = -1;
  struct alignas(128) Word {
    std::atomic<int> value{0};
  };
  Word said, told, begun, counted;
  std::thread often([&] {
    for (int turn = 0; turn != kOver; turn = begun.value.load()) {
      if (turn == 0) {
        std::this_thread::yield();
        continue;
      }
      for (int i = 1;; ++i) {
        said.value.store(i, std::memory_order_relaxed);
        light_fence();
        if (told.value.load(std::memory_order_relaxed) == turn) break;
        counted.value.store(i, std::memory_order_relaxed);
      }
      begun.value.store(0);
    }
  });
  int missed = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int turn = 1; turn <= turns && std::chrono::steady_clock::now() < until; ++turn) {
    said.value = counted.value = 0;
    begun.value = turn;
    while (said.value.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    for (int i = 0; i < turn % 100 * 10; ++i) light_fence();
    told.value.store(turn, std::memory_order_relaxed);
    heavy_fence(reach);
    const int seen = said.value.load(std::memory_order_relaxed);
    while (begun.value.load() != 0) std::this_thread::yield();
    missed += counted.value > seen ? 1 : 0;
  }
  begun.value = kOver;
  often.join();
  return missed;
}

TEST(Fence, who_fences_for_both_sees_what_the_other_thread_said_before) {
  if (!has_heavy_fences(Reach::ThisProcess)) GTEST_SKIP() << "the kernel has none";
  testing::end_a_thread_on_each_processor();
  EXPECT_EQ(count_missed(Reach::ThisProcess, 300000), 0);
}

TEST(Fence, so_it_does_where_the_kernel_has_lost_sight_of_who_asked_for_fences) {
  if (!has_heavy_fences(Reach::AllProcesses)) GTEST_SKIP() << "none between processes";
  testing::end_a_thread_on_each_processor();
  EXPECT_EQ(count_missed(Reach::AllProcesses, 2000), 0);
}

}  // namespace
}  // namespace verbena
