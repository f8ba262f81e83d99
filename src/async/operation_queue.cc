// SPDX-License-Identifier: Apache-2.0
#include "async/operation_queue.h"

#include <utility>

#include "base/assert.h"

namespace verbena {

void OperationQueue::Slots::open(std::uint32_t count) {
  all_.resize(count, Slot{.taken = false});
  order_.reserve(count);
  for (std::uint32_t i = count; i > 0; --i) order_.push_back(i - 1);
  free_ = count;
}

// They may outlive it.
OperationQueue::~OperationQueue() {
  while (bound_ != nullptr) forget(*bound_);
}

void OperationQueue::remember(Operation& operation) {
  operation.queue_ = this;
  operation.bound_previous_ = nullptr;
  operation.bound_next_ = bound_;
  if (bound_ != nullptr) bound_->bound_previous_ = &operation;
  bound_ = &operation;
}

void OperationQueue::forget(Operation& operation) {
  Operation* const next = operation.bound_next_;
  (operation.bound_previous_ != nullptr ? operation.bound_previous_->bound_next_ : bound_) = next;
  if (next != nullptr) next->bound_previous_ = operation.bound_previous_;
  operation.queue_ = nullptr;
}

void OperationQueue::start(Operation& operation) {
  VERBENA_ASSERT(!operation.in_flight());
  if (operation.queue_ != this) {
    if (operation.queue_ != nullptr) operation.queue_->forget(operation);
    remember(operation);
  }
  operation.ending_ = Operation::Ending::Natural;
  operation.error_.reset();
  operation.outcome_ = {};
  operation.wait_on();
  engine_.note_activity();
  if (Refusal error = post(operation)) {
    if (!silent_) return fail_later(operation, std::move(error));
    operation.error_ = std::move(error);
    return operation.settle();
  }
  operation.state_ = Operation::State::Posted;
  if (!operation.deadline_.is_never()) engine_.watch_deadline(operation);
}

void OperationQueue::fail_later(Operation& operation, Refusal error) {
  ++untold_;
  operation.state_ = Operation::State::Failing;
  operation.error_ = std::move(error);
  engine_.fail_later(operation);
}

void OperationQueue::withdraw(Operation& operation) {
  engine_.forget(operation);
  --untold_;
}

void OperationQueue::told(Operation& operation) {
  --untold_;
  operation.fail(std::move(*operation.error_));
}

}  // namespace verbena
