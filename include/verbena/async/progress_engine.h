// SPDX-License-Identifier: Apache-2.0
// What drives devices, finishes operations and runs callbacks: in the thread that calls it, and nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "verbena/async/task.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/device/device.h"

namespace verbena {

class EngineState;

// How waiting is done when there is nothing to do.
enum class WaitMode : std::uint8_t {
  Busy,      // poll on: lowest latency, one processor
  Event,     // sleep until the device has something: no processor, some microseconds more
  Adaptive,  // poll for EngineOptions::spin, then sleep
};

struct EngineOptions {
  WaitMode wait = WaitMode::Adaptive;
  Duration spin = Duration::microseconds(50);  // Adaptive: how long to poll before sleeping
};

// Drives one or more devices. It owns no thread: work happens inside run_once(), run_until(), run() and the waits of
// operations and connections, and there alone user callbacks run and coroutines resume.
//
// An exception that a callback or a spawned task lets out leaves through the call that was driving; the engine is none
// the worse, and its next run goes on behind what threw. Out of a destructor that drains it ends the program.
// Lifetime: devices outlive the engine; the engine outlives the connections and listeners made with it.
// Threads: one at a time, for the engine and everything made with it. wake() from any.
// Time is the first device's, so that a program may run in virtual time.
class ProgressEngine {
 public:
  // Attaches `device`. Errors: Busy (the device has an engine already), InvalidArgument (a negative time to spin),
  // ResourceExhausted (no descriptor to wait on).
  static Result<ProgressEngine> create(Device& device, const EngineOptions& options = {});
  ProgressEngine(ProgressEngine&& other) noexcept;
  ProgressEngine& operator=(ProgressEngine&& other) noexcept;
  ~ProgressEngine();

  // One more device. Errors as create(); a device in virtual time stands alone.
  Result<void> add(Device& device);

  // Drives every device once, finishes what completed, runs its callbacks. Never blocks; true when anything happened.
  // May be called from a callback, and from a handler of a loop that waits for fd().
  bool run_once();
  // Runs until done() holds or `deadline` has come, waiting in between as the options say. Returns done(). May be
  // called from a callback, and from a handler of a loop that waits for fd().
  template <class Predicate>
  bool run_until(Predicate&& done, Instant deadline = Instant::never()) {
    const auto asked = [&done] { return static_cast<bool>(done()); };
    return run_asking([](const void* by) { return (*static_cast<decltype(&asked)>(by))(); }, &asked, deadline);
  }
  template <class Predicate>
  bool run_until(Predicate&& done, Duration timeout) {
    return run_until(std::forward<Predicate>(done), now() + timeout);
  }

  // ---- Coroutines.
  // Runs the task until it is finished; its value, or the exception that left it. May be called from callbacks.
  template <class T>
  T run(Task<T> task);
  // The engine owns the task from here on: begins it in its next run, and destroys it when it is finished or, in
  // whatever state it is, when the engine goes.
  void spawn(Task<void> task);
  // co_await engine.sleep(d): goes on when that time has passed, and not before the next run.
  detail::Sleep sleep(Duration duration) { return {state(), now() + duration}; }
  detail::Sleep sleep_until(Instant at) { return {state(), at}; }

  // ---- Waiting.
  // Blocks, in the way the options say, until there may be work for run_once(), wake() was called or `until` has come.
  // It may return early. Not for handlers of a loop that waits for fd(), whose wake-up it could take: there is
  // run_until().
  void wait(Instant until);
  // Makes the present or next wait() return. Any thread, and signal handlers.
  void wake();

  // Until its end, what this thread starts may wait for that, or for run_once(), and then leaves together: many small
  // operations in few system calls. Callbacks and tasks that run one after the other are gathered anyway.
  //
  //   const ProgressEngine::Gathered together(engine);
  //   for (Operation& o : operations) connection.write(o, local, remote);
  //
  // Lifetime: the engine outlives it. Threads: the engine's.
  class [[nodiscard]] Gathered {
   public:
    explicit Gathered(ProgressEngine& engine);
    ~Gathered();
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;

   private:
    EngineState& state_;
  };

  // ---- For programs with an event loop of their own: when run_once() finds nothing, call prepare_wait(); if that
  // says true, wait for fd() to become readable, then call run_once() until it finds nothing. One descriptor covers
  // devices, deadlines, wake(), and operations and tasks begun meanwhile. -1, and prepare_wait() always false, in
  // virtual time and where a device has no service thread.
  int fd() const;
  // False when work arrived meanwhile.
  [[nodiscard]] bool prepare_wait();

  Instant now() const;
  // The device given to create(), where it is now.
  Device& device();

  // For the library's upper layers.
  EngineState& state() { return *state_; }
  static ProgressEngine& of(EngineState& state);

 private:
  explicit ProgressEngine(std::unique_ptr<EngineState> state);
  void drive(const detail::Child& task, detail::Join& end);
  bool run_asking(bool (*ask)(const void*), const void* by, Instant deadline);
  void settle();
  detail::Inner<std::unique_ptr<EngineState>, "ProgressEngine"> state_;
};

template <class T>
T ProgressEngine::run(Task<T> task) {
  detail::Join end(1);
  drive(task.child(), end);
  return task.take();
}

}  // namespace verbena
