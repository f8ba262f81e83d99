// SPDX-License-Identifier: Apache-2.0
// Operations in a row, linked through themselves. One is in at most one list.
#pragma once

#include "verbena/async/operation.h"

namespace verbena {

class OperationList {
 public:
  bool empty() const { return first_ == nullptr; }
  std::size_t size() const { return size_; }
  Operation* first() const { return first_; }
  static Operation* next(const Operation& o) { return o.next_; }

  void push_back(Operation& o) {
    o.previous_ = last_;
    o.next_ = nullptr;
    (last_ == nullptr ? first_ : last_->next_) = &o;
    last_ = &o;
    ++size_;
  }
  void remove(Operation& o) {
    (o.previous_ == nullptr ? first_ : o.previous_->next_) = o.next_;
    (o.next_ == nullptr ? last_ : o.next_->previous_) = o.previous_;
    o.previous_ = o.next_ = nullptr;
    --size_;
  }

 private:
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace verbena
