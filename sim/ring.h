// SPDX-License-Identifier: Apache-2.0
// A queue whose entries keep the number they were added under. Slots are used again with what they own.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace verbena::sim {

template <class T>
class Ring {
 public:
  explicit Ring(std::uint64_t capacity = 16) : slots_(capacity) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  std::uint64_t size() const { return end_ - begin_; }
  bool holds(std::uint64_t number) const { return number >= begin_ && number < end_; }
  T& operator[](std::uint64_t number) { return slots_[number & (slots_.size() - 1)]; }
  const T& operator[](std::uint64_t number) const { return slots_[number & (slots_.size() - 1)]; }

  // The new last entry holds whatever its slot held before.
  T& add() {
    if (size() == slots_.size()) grow();
    return (*this)[end_++];
  }
  void pop() {
    VERBENA_ASSERT(begin_ != end_);
    ++begin_;
  }
  void reset(std::uint64_t first) { begin_ = end_ = first; }

 private:
  void grow() {
    std::vector<T> bigger(slots_.size() * 2);
    for (std::uint64_t i = begin_; i != end_; ++i) bigger[i & (bigger.size() - 1)] = std::move((*this)[i]);
    slots_.swap(bigger);
  }
  std::vector<T> slots_;
  std::uint64_t begin_ = 0, end_ = 0;
};

}  // namespace verbena::sim
