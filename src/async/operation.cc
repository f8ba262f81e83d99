// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/operation.h"

#include <algorithm>

#include "async/operation_queue.h"
#include "base/assert.h"

namespace verbena {

Operation::Request Operation::Request::of(SendOpcode opcode, Segments local, SendFlags flags) {
  Request r;
  r.opcode = opcode;
  r.flags = flags;
  const auto wanted = local.view();
  r.asked_segments = wanted.size();
  r.segment_count = static_cast<std::uint8_t>(std::min(wanted.size(), r.segments.size()));
  std::copy_n(wanted.begin(), r.segment_count, r.segments.begin());
  for (const ScatterGather& s : wanted) r.bytes += s.length;
  return r;
}

Operation::Request Operation::Request::receive(Segments local) {
  Request r = of(SendOpcode::Send, local, SendFlags::None);
  r.is_receive = true;
  return r;
}

Operation::Operation(OperationQueue& queue, const Request& request) { start(queue, request); }

Operation::~Operation() {
  drop_callback();
  cancel();
  if (state_ == State::Failing) queue_->withdraw(*this);
  if (state_ != State::Posted) return;
  queue_->engine().run_until([this] { return done(); });
}

void Operation::start(OperationQueue& queue, const Request& request) {
  VERBENA_ASSERT(!in_flight());
  request_ = request;
  queue.start(*this);
}

void Operation::submit() {
  VERBENA_ASSERT(done());
  queue_->start(*this);
}

void Operation::drop_callback() {
  if (destroy_ != nullptr) destroy_(*this);
  call_ = destroy_ = nullptr;
}

// The callback may destroy *this: it comes last.
void Operation::finish(const OperationOutcome& outcome) {
  outcome_ = outcome;
  deadline_ = Instant::never();
  state_ = State::Done;
  if (call_ != nullptr) call_(*this);
}

void Operation::fail(Error error) {
  error_ = std::make_unique<Error>(std::move(error));
  deadline_ = Instant::never();
  state_ = State::Done;
  if (call_ != nullptr) call_(*this);
}

Result<OperationOutcome> Operation::result() const {
  VERBENA_ASSERT(done());
  if (error_) return *error_;
  return outcome_;
}

Result<OperationOutcome> Operation::wait() {
  if (state_ == State::Idle)
    return Error(ErrorCode::WrongState, "wait for an operation that was never started");
  if (!done()) queue_->engine().run_until([this] { return done(); });
  return result();
}

Result<OperationOutcome> Operation::wait(Duration timeout) {
  if (in_flight()) expires_at(queue_->engine().now() + timeout);
  return wait();
}

void Operation::cancel() {
  if (state_ == State::Posted) queue_->abort(*this, Ending::Cancelled);
}

void Operation::expires_at(Instant deadline) {
  deadline_ = deadline;
  if (state_ == State::Posted) queue_->engine().watch_deadline(*this);
}

}  // namespace verbena
