// SPDX-License-Identifier: Apache-2.0
// What waits to be taken, oldest first. It allocates when it is told how much may wait, and never else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/assert.h"

namespace verbena::messaging {

template <class T>
class WaitingQueue {
 public:
  // Room for so many; never less than before.
  void reserve(std::size_t most) {
    if (most <= all_.size()) return;
    std::rotate(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(first_), all_.end());
    first_ = 0;
    all_.resize(most);
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == all_.size(); }
  T& front() { return all_[first_]; }
  T& at(std::size_t i) { return all_[(first_ + i) % all_.size()]; }
  // It is not full.
  void push(const T& what) {
    VERBENA_ASSERT(!full());
    at(size_++) = what;
  }
  T pop() {
    const T what = all_[first_];
    first_ = first_ + 1 == all_.size() ? 0 : first_ + 1;
    --size_;
    return what;
  }

 private:
  std::vector<T> all_;
  std::size_t first_ = 0, size_ = 0;
};

}  // namespace verbena::messaging
