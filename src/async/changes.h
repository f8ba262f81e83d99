// SPDX-License-Identifier: Apache-2.0
// Where coroutines of the library wait until something has changed.
#pragma once

#include "async/engine_state.h"

namespace verbena {

// Outlives those that wait.
class Changes {
 public:
  explicit Changes(EngineState& engine) : engine_(engine) {}

  class [[nodiscard]] Wait {
   public:
    Wait(Changes& changes, Instant until) : changes_(changes), until_(until) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> who) {
      resumption_.bind(changes_.engine_, who);
      if (!until_.is_never()) resumption_.make_ready_at(until_);
      changes_.waiting_.push_back(resumption_);
    }
    // False when it is too late.
    bool await_resume() const { return changes_.engine_.now() < until_; }

   private:
    Changes& changes_;
    const Instant until_;
    detail::Resumption resumption_;
  };

  // For the next notify(), or until then. What has changed is the waiter's to find out.
  Wait wait(Instant until) { return {*this, until}; }
  // Everybody who waits looks again, in this run of the engine or the next.
  void notify() {
    while (!waiting_.empty()) waiting_.first().make_ready();
  }

 private:
  EngineState& engine_;
  detail::ResumptionList waiting_;
};

}  // namespace verbena
