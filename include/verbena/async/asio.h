// SPDX-License-Identifier: Apache-2.0
// An engine at home in a program built on Asio. Not part of verbena.h: it needs Asio's headers (Debian: libasio-dev).
#pragma once

#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/error.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "verbena/async/operation.h"
#include "verbena/async/progress_engine.h"
#include "verbena/async/task.h"
#include "verbena/base/error.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"

namespace verbena::asio_adapter {

namespace detail {

#if defined(ASIO_HAS_CO_AWAIT)
using DefaultToken = asio::use_awaitable_t<>;
#else
struct DefaultToken {};  // name a token
#endif

// A place in a ring: of a handler that was not called yet, or of the Link whose handlers they are.
class Unfinished {
 public:
  Unfinished() = default;
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  // Each handler destroyed may end others of them, or begin new ones.
  void drop_others() {
    while (next_ != this) next_->drop_(*next_);
  }

 protected:
  using Drop = void (*)(Unfinished&);  // leaves the ring, and may destroy its object
  Unfinished(Unfinished& beside, Drop drop) : drop_(drop), previous_(&beside), next_(beside.next_) {
    previous_->next_ = next_->previous_ = this;
  }
  ~Unfinished() { leave(); }
  void leave() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = this;
  }

 private:
  const Drop drop_ = nullptr;
  Unfinished* previous_ = this;
  Unfinished* next_ = this;
};

// The engine's descriptor in the io_context, kept alive by handlers that are under way.
class Link : public std::enable_shared_from_this<Link>, public Unfinished {
 public:
  Link(asio::io_context& io, ProgressEngine& engine)
      : io_(io), engine_(&engine.state()), descriptor_(io, engine.fd()) {}

  asio::io_context& io() { return io_; }
  ProgressEngine& engine() { return ProgressEngine::of(*engine_); }
  // The service was stopped, or has gone.
  bool is_cut() const { return engine_ == nullptr; }

  // The descriptor is the engine's: it must not be closed here.
  void cut() {
    if (engine_ == nullptr) return;
    engine_ = nullptr;
    descriptor_.cancel();
    descriptor_.release();
  }

  void serve_soon() {
    asio::post(io_, [self = shared_from_this()] { self->serve(); });
  }

 private:
  static constexpr int kTurns = 64;  // then others of the io_context have their turn

  // An exception of user code passes through to io_context::run(), and the engine is served on.
  struct ServeOn {
    Link& link;
    bool wanted = true;
    ~ServeOn() {
      if (wanted && link.engine_ != nullptr) link.serve_soon();
    }
  };

  void serve() {
    const std::shared_ptr<Link> alive = shared_from_this();
    ServeOn after{*this};
    for (int turn = 0; turn < kTurns && engine_ != nullptr; ++turn) {
      if (engine().run_once() || engine_ == nullptr || !engine().prepare_wait()) continue;
      after.wanted = false;
      return descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                                    [alive](const std::error_code&) { alive->serve(); });
    }
  }

  asio::io_context& io_;
  EngineState* engine_;  // null once cut
  asio::posix::stream_descriptor descriptor_;
};

// A handler, and the work that its executor shall count, until it is posted or dropped.
template <class Handler>
class Pending : public Unfinished {
 public:
  Pending(Handler handler, Link& link)
      : Unfinished(link, drop),
        slot_(asio::get_associated_cancellation_slot(handler)),
        body_(std::in_place, std::move(handler), link.io()) {}
  ~Pending() { uncancel(); }

  // Until it is posted or dropped.
  template <class F>
  void on_cancel(F f) {
    if (!slot_.is_connected()) return;
    const auto cancel = std::make_shared<F>(std::move(f));
    to_cancel_ = cancel;
    slot_.assign([weak = std::weak_ptr<F>(cancel)](asio::cancellation_type) {
      if (const auto held = weak.lock()) (*held)();
    });
  }

  // Nothing, once dropped.
  template <class... Values>
  void post(Values... values) {
    std::optional<Body> body = take();
    if (!body) return;
    auto executor = body->work.get_executor();
    auto allocator = asio::get_associated_allocator(body->handler);
    asio::post(executor, Call<Values...>{std::move(body->handler), std::move(allocator), {std::move(values)...}});
  }

 private:
  using Executor = asio::associated_executor_t<Handler, asio::io_context::executor_type>;
  using Allocator = asio::associated_allocator_t<Handler>;
  struct Body {
    Body(Handler h, asio::io_context& io)
        : handler(std::move(h)), work(asio::get_associated_executor(handler, io.get_executor())) {}
    Handler handler;
    asio::executor_work_guard<Executor> work;
  };
  template <class... Values>
  struct Call {
    using allocator_type = Allocator;
    allocator_type get_allocator() const noexcept { return allocator; }
    void operator()() {
      std::apply([this](Values&... v) { std::move(handler)(std::move(v)...); }, values);
    }
    Handler handler;
    Allocator allocator;
    std::tuple<Values...> values;
  };

  // The slot is not touched any more: its signal may be gone.
  void uncancel() { to_cancel_.reset(); }
  std::optional<Body> take() {
    leave();
    uncancel();
    return std::exchange(body_, std::nullopt);
  }
  // Destroying the body may destroy the operation or task that has this Pending.
  static void drop(Unfinished& self) { static_cast<Pending&>(self).take().reset(); }

  asio::associated_cancellation_slot_t<Handler> slot_;
  std::shared_ptr<void> to_cancel_;  // what it does
  std::optional<Body> body_;
};

// What stands beside an exception: an error that says `why` where that can be, so that nothing looks like a success.
template <class T>
T no_value(const char* why) {
  if constexpr (std::is_constructible_v<T, Error>)
    return T(Error(ErrorCode::Cancelled, why));
  else
    return T();
}

// Nobody would run the task.
template <class T, class Handler>
void refuse_to_run(Pending<Handler>& pending) {
  constexpr const char* kWhat = "run a task on a Service that was stopped";
  const auto why = std::make_exception_ptr(
      std::system_error(asio::error::make_error_code(asio::error::operation_aborted), kWhat));
  if constexpr (std::is_void_v<T>)
    pending.post(why);
  else
    pending.post(why, no_value<T>(kWhat));
}

template <class T>
struct SignatureOf {
  using type = void(std::exception_ptr, T);
};
template <>
struct SignatureOf<void> {
  using type = void(std::exception_ptr);
};

template <class T, class Handler>
Task<void> run_and_post(Task<T> task, std::unique_ptr<Pending<Handler>> pending) {
  std::exception_ptr exception;
  if constexpr (std::is_void_v<T>) {
    try {
      co_await task;
    } catch (...) {
      exception = std::current_exception();
    }
    pending->post(exception);
  } else {
    std::optional<T> value;
    try {
      value.emplace(co_await task);
    } catch (...) {
      exception = std::current_exception();
      value.emplace(no_value<T>("the task ended with an exception"));
    }
    pending->post(exception, std::move(*value));
  }
}

}  // namespace detail

// Serves an engine from an io_context: run_once() happens in its handlers, and it waits for one descriptor there.
//
//   asio_adapter::Service rdma(io, engine);
//   auto outcome = co_await rdma.async_wait(connection.write(memory.local(), remote));     // in an asio::awaitable
//   auto peer = co_await rdma.async_run(listener.async_accept());
//
// Handlers are posted to their executor, the io_context's by default, and never run inside the engine. Callbacks of
// the library (on_done, on_request, ...) do. While it serves, io_context::run() never lacks work: stop()
// ends that.
// Lifetime: the engine and the io_context outlive it. Handlers of what has not ended by then are destroyed with it, and
// never called; the operations and tasks go on in the engine.
// Threads: the engine's; so one thread runs the io_context, or a strand-like order is the caller's care.
// Asio 1.22 does not find the coroutines of clang 14 with libstdc++ by itself: define ASIO_HAS_CO_AWAIT and
// ASIO_HAS_STD_COROUTINE for the whole program there.
class Service {
 public:
  // The engine has a descriptor: see ProgressEngine::fd(). One for an engine: where its descriptor is watched already,
  // Asio throws std::system_error.
  Service(asio::io_context& io, ProgressEngine& engine) : link_(std::make_shared<detail::Link>(io, engine)) {
    link_->serve_soon();
  }
  Service(Service&&) = default;
  Service& operator=(Service&&) = delete;
  ~Service() {
    if (link_ == nullptr) return;
    link_->cut();
    link_->drop_others();
  }

  // The engine is not served any more; what was started still comes to its handler when another drives it. What
  // is started by this object afterwards, or by what it gave out before it went, is refused by the handler: as
  // asio::error::operation_aborted, or Cancelled for an operation that is in flight, and is not touched.
  void stop() { link_->cut(); }

  // Completes with Result<OperationOutcome> when the operation is done; takes the place of Operation::on_done(), of an
  // earlier async_wait() too, whose handler is dropped. A temporary must live until then: await it in the expression
  // that starts it. Cancelling it in Asio's way (||, cancel_after, bind_cancellation_slot) is Operation::cancel(): it
  // takes the connection out of service.
  template <class Token = detail::DefaultToken>
  auto async_wait(Operation& operation, Token&& token = {}) {
    return asio::async_initiate<Token, void(Result<OperationOutcome>)>(
        [link = link_.pointer()](auto handler, Operation* waited) { wait(*link, *waited, std::move(handler)); }, token,
        &operation);
  }
  template <class Token = detail::DefaultToken>
  auto async_wait(Operation&& operation, Token&& token = {}) {
    return async_wait(operation, std::forward<Token>(token));
  }

  // Spawns the task in the engine. Completes with (std::exception_ptr, T), or (std::exception_ptr) for Task<void>.
  template <class T, class Token = detail::DefaultToken>
  auto async_run(Task<T> task, Token&& token = {}) {
    return asio::async_initiate<Token, typename detail::SignatureOf<T>::type>(
        [link = link_.pointer()](auto handler, Task<T> run) {
          using Pending = detail::Pending<decltype(handler)>;
          auto pending = std::make_unique<Pending>(std::move(handler), *link);
          if (link->is_cut()) return detail::refuse_to_run<T>(*pending);
          link->engine().spawn(detail::run_and_post(std::move(run), std::move(pending)));
        },
        token, std::move(task));
  }

 private:
  template <class Handler>
  static void wait(detail::Link& link, Operation& operation, Handler handler) {
    auto pending = std::make_unique<detail::Pending<Handler>>(std::move(handler), link);
    if (operation.in_flight() && link.is_cut())
      return pending->post(Result<OperationOutcome>(
          Error(ErrorCode::Cancelled, "wait for an operation on a Service that was stopped")));
    if (operation.in_flight()) pending->on_cancel([&operation] { operation.cancel(); });
    if (operation.in_flight()) {
      auto* const its = pending.get();
      operation.on_done([pending = std::move(pending)](Operation& self) mutable {
        if (const auto once = std::move(pending)) once->post(self.result());
      });
      if (!operation.in_flight()) its->post(operation.result());  // by what went with the handler before
      return;
    }
    if (operation.done()) return pending->post(operation.result());
    pending->post(Result<OperationOutcome>(
        Error(ErrorCode::WrongState, "wait for an operation that was never started")));
  }

  verbena::detail::Inner<std::shared_ptr<detail::Link>, "asio_adapter::Service"> link_;
};

}  // namespace verbena::asio_adapter
