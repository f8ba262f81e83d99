// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/operation.h"

#include <algorithm>
#include <utility>

#include "async/operation_queue.h"
#include "base/assert.h"

namespace verbena {

// While the callback runs, which may start the operation once more, run the engine, throw, and destroy *this; or while
// somebody waits, and a callback may. An awaiter goes on behind the outermost callback, when the operation is done for
// good.
class Operation::Calling {
 public:
  enum class From { Callback, Wait };
  Calling(Operation& operation, From from)
      : operation_(operation),
        outer_(std::exchange(operation.calling_, this)),
        inside_callback_(outer_ != nullptr && outer_->has_callback_),
        has_callback_(inside_callback_ || from == From::Callback) {}
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling() {
    if (destroyed_) {
      if (outer_ != nullptr) outer_->destroyed_ = true;
      return;
    }
    operation_.calling_ = outer_;
    const bool over = has_callback_ && !inside_callback_ && operation_.done();
    if (over && operation_.awaiter_ != nullptr) operation_.awaiter_->resumption_.make_ready();
  }
  bool destroyed_it() const { return destroyed_; }

 private:
  friend class Operation;
  Operation& operation_;
  bool destroyed_ = false;
  Calling* const outer_;
  const bool inside_callback_;
  const bool has_callback_;  // itself or further out
};

// In its place: what is put together elsewhere could be copied only when all its parts have reached the cache.
Operation::Request& Operation::request(SendOpcode opcode, Segments local, SendFlags flags) {
  VERBENA_REQUIRE(!in_flight(), "starts an Operation that is in flight: wait until it is done, or take another");
  Request& r = request_;
  const auto wanted = local.view();
  r.opcode = opcode;
  r.flags = flags;
  r.is_receive = false;
  r.asked_segments = wanted.size();
  r.segment_count = static_cast<std::uint8_t>(std::min(wanted.size(), kMaxSegments));
  r.bytes = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto [address, length, lkey] = wanted[i];
    if (i < kMaxSegments) r.segments[i] = {address, length, lkey};
    r.bytes += length;
  }
  r.remote_address = r.remote_length = 0;
  r.rkey = {};
  r.immediate = 0;
  r.compare = r.swap_or_add = 0;
  return r;
}

Operation::~Operation() {
  drop_callback();
  cancel();
  if (state_ == State::Failing) queue_->withdraw(*this);
  if (state_ == State::Posted) queue_->engine().drain_until([this] { return done(); });
  if (queue_ != nullptr) queue_->forget(*this);
  if (calling_ != nullptr) calling_->destroyed_ = true;
  if (awaiter_ == nullptr) return;
  awaiter_->operation_ = nullptr;
  awaiter_->resumption_.make_ready();
}

bool Operation::submit() {
  if (!done()) return false;
  if (queue_ != nullptr) {
    queue_->start(*this);
    return true;
  }
  wait_on();
  error_ = std::make_unique<Error>(ErrorCode::Flushed, "submit an operation: its connection or pool was destroyed");
  settle();
  return true;
}

void Operation::finish() {
  deadline_ = Instant::never();
  state_ = State::Done;
}

void Operation::settle() {
  finish();
  if (awaiter_ != nullptr) awaiter_->resumption_.make_ready();
}

void Operation::end() {
  if (call_ == nullptr) return settle();
  finish();
  const Calling calling(*this, Calling::From::Callback);
  call_(*this);
}

// What it captured may end this operation as it goes, which then calls nothing.
void Operation::drop_callback() {
  call_ = nullptr;
  if (const auto destroy = std::exchange(destroy_, nullptr)) destroy(*this);
}

void Operation::fail(Error error) {
  error_ = std::make_unique<Error>(std::move(error));
  end();
}

void Operation::take_back_awaiter() { awaiter_->resumption_.leave(); }

bool Operation::Awaiter::await_suspend(std::coroutine_handle<> who) {
  if (operation_->awaiter_ != nullptr) return false;
  operation_->awaiter_ = this;
  resumption_.bind(operation_->queue_->engine(), who);
  return true;
}

Result<OperationOutcome> Operation::Awaiter::await_resume() {
  if (operation_ == nullptr)
    return Error(ErrorCode::Cancelled, "the operation was destroyed while a coroutine awaited it");
  const Operation& operation = *operation_;
  if (operation.state_ == State::Idle)
    return Error(ErrorCode::WrongState, "await an operation that was never started");
  if (!operation.done())
    return Error(ErrorCode::Busy, "await an operation that another coroutine awaits already; one at a time");
  let_go();
  return operation.result();
}

Result<OperationOutcome> Operation::result() const {
  if (const Error* const failed = error()) return *failed;
  return outcome_;
}

const Error* Operation::error() const {
  static const Error early(ErrorCode::WrongState, "look at the outcome of an operation that is not done");
  return done() ? error_.get() : &early;
}

Result<OperationOutcome> Operation::wait() {
  if (state_ == State::Idle)
    return Error(ErrorCode::WrongState, "wait for an operation that was never started");
  if (done()) return result();
  const Calling calling(*this, Calling::From::Wait);
  queue_->engine().run_until([&] { return calling.destroyed_it() || done(); });
  if (calling.destroyed_it())
    return Error(ErrorCode::Cancelled, "wait for an operation: a callback destroyed it meanwhile");
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
