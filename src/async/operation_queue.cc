// SPDX-License-Identifier: Apache-2.0
#include "async/operation_queue.h"

#include <utility>

#include "base/assert.h"

namespace verbena {

void OperationQueue::Slots::open(std::uint32_t count) {
  all.resize(count);
  free.reserve(count);
  for (std::uint32_t i = count; i > 0; --i) free.push_back(i - 1);
}

void OperationQueue::Slots::take(Slot what) {
  what.taken = true;
  all[free.back()] = what;
  free.pop_back();
}

OperationQueue::Slot OperationQueue::Slots::give_back(std::uint32_t index) {
  VERBENA_ASSERT(all[index].taken);
  const Slot was = all[index];
  all[index] = {};
  free.push_back(index);
  return was;
}

void OperationQueue::start(Operation& operation) {
  VERBENA_ASSERT(!operation.in_flight());
  operation.queue_ = this;
  operation.ending_ = Operation::Ending::Natural;
  operation.error_.reset();
  operation.outcome_ = {};
  operation.wait_on();
  engine_.note_activity();
  if (std::optional<Error> error = post(operation)) {
    if (!silent_) return fail_later(operation, std::move(*error));
    operation.error_ = std::make_unique<Error>(std::move(*error));
    return operation.settle();
  }
  operation.state_ = Operation::State::Posted;
  if (!operation.deadline_.is_never()) engine_.watch_deadline(operation);
}

void OperationQueue::fail_later(Operation& operation, Error error) {
  ++untold_;
  operation.state_ = Operation::State::Failing;
  operation.error_ = std::make_unique<Error>(std::move(error));
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
