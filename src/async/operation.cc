// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/operation.h"

#include "async/channel.h"
#include "base/assert.h"

namespace verbena {

Operation::Operation(Channel& channel, const Request& request) { start(channel, request); }

Operation::~Operation() {
  drop_callback();
  if (state_ == State::Failing) channel_->withdraw(*this);
  if (state_ != State::Posted) return;
  cancel();
  channel_->engine().run_until([this] { return done(); });
}

void Operation::start(Channel& channel, const Request& request) {
  VERBENA_ASSERT(!in_flight());
  request_ = request;
  channel.start(*this);
}

void Operation::submit() {
  VERBENA_ASSERT(done());
  channel_->start(*this);
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
  if (!done()) channel_->engine().run_until([this] { return done(); });
  return result();
}

Result<OperationOutcome> Operation::wait(Duration timeout) {
  if (in_flight()) expires_at(channel_->engine().now() + timeout);
  return wait();
}

void Operation::cancel() {
  if (state_ == State::Posted) channel_->abort(*this, Ending::Cancelled);
}

void Operation::expires_at(Instant deadline) {
  deadline_ = deadline;
  if (state_ == State::Posted) channel_->engine().watch_deadline(*this);
}

}  // namespace verbena
