// SPDX-License-Identifier: Apache-2.0
// Coroutines that wait for operations, for time and for each other.
#pragma once

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "verbena/async/resumption.h"

namespace verbena {

namespace detail {

// What no error can be returned for: ends the program, and says what it did.
[[noreturn]] void abort_on_bad_task_use(const char* what);

// Resumes when so many tasks are finished.
class Join : public Resumption {
 public:
  explicit Join(std::size_t wanted) : left_(wanted) {}
  // Called by each task when it is finished.
  void arrive(const void* who) {
    if (first_ == nullptr) first_ = who;
    if (left_ == 0 || --left_ != 0) return;
    if (is_bound()) make_ready();
  }
  bool complete() const { return left_ == 0; }
  const void* first() const { return first_; }
  // False when there is nothing to wait for any more.
  bool suspend(EngineState& engine, std::coroutine_handle<> waiter) {
    if (left_ == 0) return false;
    bind(engine, waiter);
    return true;
  }

 private:
  std::size_t left_;
  const void* first_ = nullptr;
};

class TaskPromiseBase {
 public:
  TaskPromiseBase() = default;
  TaskPromiseBase(const TaskPromiseBase&) = delete;
  TaskPromiseBase& operator=(const TaskPromiseBase&) = delete;
  ~TaskPromiseBase() {
    if (awaiter_ != nullptr) *awaiter_ = nullptr;
  }

  struct Finished {
    bool await_ready() const noexcept { return false; }
    template <class P>
    void await_suspend(std::coroutine_handle<P> self) const noexcept {
      TaskPromiseBase& promise = self.promise();
      if (promise.join_ != nullptr) promise.join_->arrive(&promise);
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  Finished final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception_ = std::current_exception(); }

  EngineState& engine() const { return *engine_; }
  std::uint32_t depth() const { return depth_; }
  // Runs the task until it first suspends. It arrives at `join` when it is finished.
  void start(EngineState& engine, std::uint32_t depth, Join& join, std::coroutine_handle<> self) {
    if (engine_ != nullptr) abort_on_bad_task_use("awaits a Task a second time");
    engine_ = &engine;
    depth_ = depth;
    join_ = &join;
    // Tasks that start tasks that start tasks grow the stack no further than this.
    constexpr std::uint32_t kInlineDepth = 64;
    if (depth % kInlineDepth != kInlineDepth - 1) return self.resume();
    start_.bind(engine, self);
    start_.make_ready();
  }
  // Who awaits it may go before it: then it finishes by itself. Or after it: then nothing is left to forget.
  void watch(TaskPromiseBase*& awaiter) {
    awaiter_ = &awaiter;
    awaiter = this;
  }
  // Who waits for several is gone.
  void forget_join() { join_ = nullptr; }
  void forget_awaiter() {
    join_ = nullptr;
    awaiter_ = nullptr;
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  EngineState* engine_ = nullptr;
  Join* join_ = nullptr;  // of who awaits it
  TaskPromiseBase** awaiter_ = nullptr;
  std::uint32_t depth_ = 0;
  std::exception_ptr exception_;
  Resumption start_;
};

template <class P>
concept TaskPromiseType = std::derived_from<P, TaskPromiseBase>;

template <class T>
class TaskPromise;

// A task without its type.
struct Child {
  std::coroutine_handle<> handle;
  TaskPromiseBase* promise = nullptr;
};

}  // namespace detail

// A coroutine that returns T: by co_await to another one, by ProgressEngine::run() to a program without any.
//
//   verbena::Task<Result<void>> greet(Connection& connection, MemoryRegion& inbox) {
//     auto sent = co_await connection.send(inbox.local());
//     if (!sent) co_return sent.error();
//     co_return {};
//   }
//
// Lazy: it runs when it is awaited, then at once and in the awaiter's thread until it first suspends. What suspended
// resumes inside ProgressEngine::run_once(), never inside a post or a destructor. Arguments belong to the coroutine:
// pass by value what may go before it does; a lambda's captures are not arguments.
// An exception that leaves it goes to its awaiter. Destroying a task that is suspended destroys what stands in its
// frame, the innermost first, with as much stack as they are deep: tens of thousands that await each other fit into
// 8 MiB. An operation in flight there is cancelled and drained, as Operation says. Awaited once,
// by another Task: again, or empty, ends the program. It may be moved while it is awaited; where it is awaited by name
// and outlives its awaiter, it goes on and finishes by itself. Lifetime: the engine outlives it. Threads: the engine's.
template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using value_type = T;
  static_assert(!std::is_reference_v<T>, "return a pointer, or a std::reference_wrapper");

  Task() = default;  // of nothing
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() { destroy(); }

  explicit operator bool() const { return handle_ != nullptr; }
  bool done() const { return handle_ && handle_.done(); }

  auto operator co_await() & { return Awaiter(*this); }
  auto operator co_await() && { return Awaiter(*this); }

  // For the library: what co_await does, in parts.
  detail::Child child() const {
    const Handle handle = checked();
    return {handle, &handle.promise()};
  }
  T take() { return handle_.promise().take(); }

 private:
  friend promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  class [[nodiscard]] Awaiter {
   public:
    explicit Awaiter(const Task& task) : handle_(task.checked()) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (awaited_ != nullptr) awaited_->forget_awaiter();
    }
    bool await_ready() const noexcept { return false; }
    template <detail::TaskPromiseType P>
    bool await_suspend(std::coroutine_handle<P> parent) {
      detail::TaskPromiseBase& task = handle_.promise();
      task.watch(awaited_);
      task.start(parent.promise().engine(), parent.promise().depth() + 1, join_, handle_);
      return join_.suspend(parent.promise().engine(), parent);
    }
    T await_resume() { return handle_.promise().take(); }

   private:
    const Handle handle_;  // not the Task, which may be moved meanwhile
    detail::TaskPromiseBase* awaited_ = nullptr;
    detail::Join join_{1};
  };

  explicit Task(Handle handle) : handle_(handle) {}
  Handle checked() const {
    if (!handle_) detail::abort_on_bad_task_use("runs or awaits a Task that is empty: never made, or moved from");
    return handle_;
  }
  void destroy() {
    if (const Handle handle = std::exchange(handle_, nullptr)) handle.destroy();
  }

  Handle handle_;
};

namespace detail {

template <class T>
class TaskPromise final : public TaskPromiseBase {
 public:
  Task<T> get_return_object() { return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this)); }
  template <std::convertible_to<T> U = T>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() {
    rethrow();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromise<void> final : public TaskPromiseBase {
 public:
  Task<void> get_return_object() {
    return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
  }
  void return_void() const noexcept {}
  void take() const { rethrow(); }
};

// What co_await engine.sleep() waits for.
class [[nodiscard]] Sleep {
 public:
  Sleep(EngineState& engine, Instant until) : engine_(engine), until_(until) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> who) {
    resumption_.bind(engine_, who);
    resumption_.make_ready_at(until_);
  }
  void await_resume() const noexcept {}

 private:
  EngineState& engine_;
  const Instant until_;
  Resumption resumption_;
};

}  // namespace detail
}  // namespace verbena
