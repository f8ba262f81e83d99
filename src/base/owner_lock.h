// SPDX-License-Identifier: Apache-2.0
// A mutex for what one thread after the other owns, often without anybody in the way: one word, one locked instruction
// to take it and one to let it go. Who finds it taken may sleep.
//
// try_lock() and unlock() are sequentially consistent. So who leaves word where the owner looks after unlock(), and
// then fails at try_lock(), is seen.
//
// Where all who take it are one thread at a time, as the program promised, no instruction needs to be locked. Whoever
// breaks the promise and meets the owner inside finds out, mostly.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/assert.h"

namespace verbena {

class OwnerLock {
 public:
  enum class Takers : std::uint8_t { AnyThread, OneThread };  // OneThread: at a time
  explicit OwnerLock(Takers takers = Takers::AnyThread) : shared_(takers == Takers::AnyThread) {}
  OwnerLock(const OwnerLock&) = delete;
  OwnerLock& operator=(const OwnerLock&) = delete;

  bool try_lock() {
    std::uint32_t word = word_.load(shared_ ? std::memory_order_seq_cst : std::memory_order_relaxed);
    if (!shared_) {
      word_.store(word | kHeld, std::memory_order_relaxed);
      return (word & kHeld) == 0;
    }
    while ((word & kHeld) == 0)
      if (word_.compare_exchange_weak(word, word | kHeld)) return true;
    return false;
  }
  void lock() {
    if (try_lock()) return;
    VERBENA_ASSERT(shared_);  // two threads at once use what was made single_threaded
    wait_and_lock();
  }
  // In a forked child, where whoever held it is not.
  void let_go() { word_.store(0); }
  void unlock() {
    if (!shared_) return word_.store(0, std::memory_order_relaxed);
    if (word_.fetch_sub(kHeld) != kHeld) wake_one();
  }

 private:
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kWaiter = 2;  // each of those that wait

  [[gnu::cold]] void wait_and_lock();
  [[gnu::cold]] void wake_one();

  const bool shared_;
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace verbena
