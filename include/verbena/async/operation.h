// SPDX-License-Identifier: Apache-2.0
// One piece of work on a connection, from posting to outcome.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "verbena/async/resumption.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/base/verbs.h"

namespace verbena {

class EngineState;
class OperationQueue;

// Local pieces of one request, gathered or filled in order. A view: it is read during the call it is given to.
class Segments {
 public:
  Segments() = default;                                              // of an empty message
  Segments(const ScatterGather& one) : view_(&one, 1) {}             // NOLINT(google-explicit-constructor)
  Segments(std::span<const ScatterGather> many) : view_(many) {}     // NOLINT(google-explicit-constructor)
  Segments(const std::vector<ScatterGather>& many) : view_(many) {}  // NOLINT(google-explicit-constructor)
  Segments(std::initializer_list<ScatterGather> many) : view_(many.begin(), many.size()) {}
  std::span<const ScatterGather> view() const { return view_; }

 private:
  std::span<const ScatterGather> view_;
};

// What a finished operation brought.
struct OperationOutcome {
  CompletionOpcode kind = CompletionOpcode::Send;
  std::uint32_t bytes = 0;                   // moved; for receives, bytes of the message
  std::optional<std::uint32_t> immediate{};  // of a receive, in host order
  std::uint64_t value = 0;                   // atomics: what the cell held before
  Qpn qpn{};                                 // Connection::local_qpn() of the connection it happened on
};

// One operation: idle, in flight, then done with an outcome or an error; and again, with submit().
//
//   auto operation = connection.write(region.local(), remote);      // posted now
//   auto outcome = operation.wait();                                 // Result<OperationOutcome>
//
// It neither moves nor is copied: the device knows it by its place. Factories build it where the caller wants it;
// where one is needed again and again, make it once and give it to connection.write(operation, ...).
//
// Memory: the local pieces belong to the device until the operation is done.
// Deadline and cancel: a posted request cannot be withdrawn. Either takes the whole connection out of service, and the
// operation ends with the flush that follows, as DeadlineExceeded or Cancelled; the others on it as Flushed. Destroying
// an operation in flight is cancelling and draining: afterwards the device does not touch its memory.
// A receive of a ReceivePool is the exception: as long as no message has begun to fill it, it is taken back, and ends
// alone; after that it ends as that message or its connection does.
// Errors name operation and peer. Those of posting (QueueFull, ...) are outcomes like all others.
// Lifetime: it may outlive its connection; then it is done for good. Threads: the engine's.
class [[nodiscard]] Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  bool in_flight() const { return state_ == State::Posted || state_ == State::Failing; }
  bool done() const { return state_ == State::Done; }

  // Drives the engine until done.
  Result<OperationOutcome> wait();
  // The same with a deadline: see above for what happens when it passes. To look without consequences, use
  // ProgressEngine::run_until([&] { return operation.done(); }, timeout).
  Result<OperationOutcome> wait(Duration timeout);
  // Outcome. Errors besides the operation's own: WrongState (it is in flight, or was never started).
  Result<OperationOutcome> result() const;
  // The same without the outcome: null when it succeeded. The error stays until the operation is started again.
  const Error* error() const;

  // auto outcome = co_await connection.write(...), or co_await operation: Result<OperationOutcome>, from any coroutine
  // that the engine's thread may resume. It goes on after the operation's callback has run; when that submits anew,
  // after the last time. Nothing is allocated, and one that is done does not suspend. Errors besides the operation's
  // own: Busy (another coroutine awaits it), WrongState (never started), Cancelled (destroyed meanwhile).
  // Destroying a coroutine that awaits an operation in its own frame destroys that in flight: see above.
  class Awaiter;
  Awaiter operator co_await() &;
  Awaiter operator co_await() &&;

  // Runs f(Operation&) from the engine each time the operation is done. f is kept inside: at most 48 bytes of captures.
  // It may submit this operation again, start others, wait for others, and destroy this one as the last thing it does.
  // What it starts on a connection or pool that is being destroyed is refused, and told so; what that starts there in
  // turn is done at once, without f, for it would have no end. f itself must not call on_done() of its operation: it
  // would destroy itself; nor wait for a coroutine that awaits this operation, which goes on behind f.
  template <class F>
  void on_done(F f) {
    static_assert(sizeof(F) <= kCallbackBytes && alignof(F) <= alignof(std::max_align_t),
                  "capture less, by pointer");
    static_assert(std::is_invocable_v<F&, Operation&>);
    drop_callback();
    new (callback_.data()) F(std::move(f));
    call_ = [](Operation& self) { (*std::launder(reinterpret_cast<F*>(self.callback_.data())))(self); };
    destroy_ = [](Operation& self) { std::launder(reinterpret_cast<F*>(self.callback_.data()))->~F(); };
  }

  // Ends the operation as Cancelled, by way of the connection or pool, when it is in flight.
  void cancel();
  // Ends it as DeadlineExceeded, likewise, when it is still in flight then. Set before starting or in flight; it goes
  // with the outcome. Instant::never() takes it back.
  void expires_at(Instant deadline);
  // Posts the same request once more. False: it is in flight, or was never started: nothing happens. If its connection
  // or pool is gone it is done at once, as Flushed, and the callback does not run: no engine is left that would.
  bool submit();

 private:
  friend class Channel;
  friend class Connection;
  friend class EngineState;
  friend class OperationQueue;
  friend class ReceivePool;
  friend class ReceivePoolState;
  friend class OperationList;
  friend class Awaiter;

  enum class State : std::uint8_t { Idle, Posted, Failing, Done };  // Failing: refused, not yet told
  enum class Ending : std::uint8_t { Natural, Cancelled, Expired };
  static constexpr std::size_t kMaxSegments = 4;
  static constexpr std::size_t kCallbackBytes = 48;

  // A request as it can be posted any number of times. The first `segment_count` of `segments` are its own.
  struct Request {
    SendOpcode opcode = SendOpcode::Send;
    SendFlags flags = SendFlags::None;
    bool is_receive = false;
    std::uint8_t segment_count = 0;
    std::array<ScatterGather, kMaxSegments> segments{};
    std::uint64_t bytes = 0;  // of all segments
    std::uint64_t remote_address = 0;
    std::uint64_t remote_length = 0;
    RKey rkey{};
    std::uint32_t immediate = 0;
    std::uint64_t compare = 0;
    std::uint64_t swap_or_add = 0;
    std::size_t asked_segments = 0;  // more than kMaxSegments are refused
  };

  // `start` starts what it is given.
  template <class Start>
  explicit Operation(Start start) {
    start(*this);
  }
  // Not in flight. Its request from now on, without remote memory, immediate and operands.
  Request& request(SendOpcode opcode, Segments local, SendFlags flags = SendFlags::None);
  void request_receive(Segments local) { request(SendOpcode::Send, local).is_receive = true; }
  void drop_callback();
  void fail(Error error);
  class Calling;
  void end();
  void finish();
  void settle();
  void wait_on() {
    if (awaiter_ != nullptr) take_back_awaiter();
  }
  void take_back_awaiter();

  OperationQueue* queue_ = nullptr;  // where it was started last; null again when that is gone
  Operation* bound_previous_ = nullptr;  // neighbours in that queue's list of those that know it
  Operation* bound_next_ = nullptr;
  State state_ = State::Idle;
  Ending ending_ = Ending::Natural;
  bool listed_ = false;            // in the engine's list of deadlines
  std::uint32_t slot_ = 0;         // index in the queue's table while posted
  Operation* previous_ = nullptr;  // neighbours in one of the engine's lists
  Operation* next_ = nullptr;
  Instant deadline_ = Instant::never();
  Awaiter* awaiter_ = nullptr;  // the coroutine that waits for it
  Calling* calling_ = nullptr;  // while the callback runs, or somebody waits
  Request request_;
  OperationOutcome outcome_;
  std::unique_ptr<Error> error_;
  void (*call_)(Operation&) = nullptr;
  void (*destroy_)(Operation&) = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kCallbackBytes> callback_;
};

class [[nodiscard]] Operation::Awaiter {
 public:
  explicit Awaiter(Operation& operation) : operation_(&operation) {}
  ~Awaiter() { let_go(); }
  Awaiter(const Awaiter&) = delete;
  Awaiter& operator=(const Awaiter&) = delete;

  bool await_ready() const { return !operation_->in_flight(); }
  // False, to go on with Busy, when somebody else waits.
  bool await_suspend(std::coroutine_handle<> who);
  Result<OperationOutcome> await_resume();

 private:
  friend class Operation;
  void let_go() {
    if (operation_ != nullptr && operation_->awaiter_ == this) operation_->awaiter_ = nullptr;
  }

  Operation* operation_;  // null: destroyed meanwhile
  detail::Resumption resumption_;
};

inline Operation::Awaiter Operation::operator co_await() & { return Awaiter(*this); }
inline Operation::Awaiter Operation::operator co_await() && { return Awaiter(*this); }

}  // namespace verbena
