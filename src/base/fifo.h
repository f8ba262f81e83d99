// SPDX-License-Identifier: Apache-2.0
// First in, first out, in memory that is kept: a queue that is drained now and then allocates no more once it has
// grown to the most that ever waited, which std::deque does with every few elements that pass through.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace verbena {

template <class T>
class Fifo {
 public:
  bool empty() const { return next_ == items_.size(); }
  std::size_t size() const { return items_.size() - next_; }
  T& front() { return items_[next_]; }

  // Invalidates references.
  void push_back(T item) {
    // Half of it is past: moving the rest down costs no more than what was taken since.
    if (items_.size() == items_.capacity() && next_ > items_.size() / 2) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
    items_.push_back(std::move(item));
  }
  T take_front() {
    T item = std::move(items_[next_++]);
    if (empty()) {
      items_.clear();
      next_ = 0;
    }
    return item;
  }

 private:
  std::vector<T> items_;  // those before next_ were taken
  std::size_t next_ = 0;
};

}  // namespace verbena
