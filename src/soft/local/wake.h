// SPDX-License-Identifier: Apache-2.0
// Sleep without a lost wake-up. One word, written by the sleeper alone: another number each time, and in its two lower
// bits 0 while it is awake, 1 while it sleeps or is about to, 3 while nobody looks at this connection, awake or not.
// Whoever gave it work reads the word, and wakes it once for each number.
//
//   sleeper: announce(); look for work once more; none: sleep until signalled; withdraw()
//   waker:   publish work; must_wake(): signal
//
// Whoever takes a signal and leaves the sleeper announced calls renew() instead of announce(): the number that was
// signalled wakes nobody again.
//
// Either the waker sees the announcement, or the sleeper sees the work: between its store and its load each has a full
// fence. What a hostile word can cause is a signal too many, or none: the sleeper harms itself. Knows nothing of how a
// signal travels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fence.h"

namespace verbena::local {

// What a word says.
inline constexpr std::uint64_t kStates = 3, kAsleep = 1, kUnwatched = 3;

class WakeMemory {
 public:
  // `word`: 8 aligned bytes of shared memory, zero at first, two lines away from other writers' words.
  explicit WakeMemory(std::byte* word) : word_(reinterpret_cast<std::uint64_t*>(word)) {}

  std::uint64_t load_sleeping() const {
    return std::atomic_ref<std::uint64_t>(*word_).load(std::memory_order_relaxed);
  }
  void store_sleeping(std::uint64_t value) {
    std::atomic_ref<std::uint64_t>(*word_).store(value, std::memory_order_relaxed);
  }
  void fence() { full_fence(); }
  bool operator==(const WakeMemory&) const = default;

 private:
  std::uint64_t* word_;
};

// One thread at a time, as what it wakes up for.
template <class Memory>
class BasicSleeper {
 public:
  explicit BasicSleeper(Memory memory) : memory_(memory) {}

  void announce() { announce_as(kAsleep); }
  void renew() {
    withdraw();
    announce();
  }
  void renew_unwatched() {
    withdraw();
    announce_as(kUnwatched);
  }
  void withdraw() {
    if (is_announced()) memory_.store_sleeping(number_ = (number_ | kStates) + 1);
  }
  bool operator==(const BasicSleeper&) const = default;

 private:
  void announce_as(std::uint64_t state) {
    if (!is_announced()) memory_.store_sleeping(number_ += state);
    memory_.fence();
  }
  bool is_announced() const { return (number_ & kStates) != 0; }

  Memory memory_;
  std::uint64_t number_ = 0;
};

// One thread at a time for each waker; a word may have several.
template <class Memory>
class BasicWaker {
 public:
  explicit BasicWaker(Memory memory) : memory_(memory) {}

  // After work was published: whether a signal is due.
  bool must_wake() {
    memory_.fence();
    const std::uint64_t number = memory_.load_sleeping();
    if ((number & kStates) == 0 || number == woken_) return false;
    woken_ = number;
    return true;
  }
  // Of whom must_wake() spoke last: a signal must reach whoever looks at all, not only who sleeps.
  bool is_unwatched() const { return (woken_ & kStates) != kAsleep; }
  bool operator==(const BasicWaker&) const = default;

 private:
  Memory memory_;
  std::uint64_t woken_ = 0;
};

using Sleeper = BasicSleeper<WakeMemory>;
using Waker = BasicWaker<WakeMemory>;

}  // namespace verbena::local
