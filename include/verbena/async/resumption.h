// SPDX-License-Identifier: Apache-2.0
// Something that an engine shall do in its next run: resume a coroutine, as a rule.
#pragma once

#include <coroutine>
#include <cstddef>
#include <limits>

#include "verbena/base/time.h"

namespace verbena {

class EngineState;

namespace detail {

// Lives in whatever waits, an awaiter or a promise, so that waiting allocates nothing. It is in one list at most, and
// may have a time beside that; destruction takes it out of both, so that nobody who is gone is resumed.
class Resumption {
 public:
  using Act = void (*)(Resumption&);

  Resumption() = default;
  ~Resumption() {
    if (next_ != this || place_ != kNoPlace) leave();
  }
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;

  void bind(EngineState& engine, std::coroutine_handle<> who) {
    engine_ = &engine;
    who_ = who;
  }
  // `act` may destroy the object as its last step.
  void bind(EngineState& engine, Act act) {
    engine_ = &engine;
    act_ = act;
  }
  bool is_bound() const { return engine_ != nullptr; }
  EngineState& engine() const { return *engine_; }

  // The engine's next run does it, after what it was asked for before.
  void make_ready();
  // The same when that time has come, unless it is ready before.
  void make_ready_at(Instant at);
  void leave();

 private:
  friend class ResumptionList;
  friend class Resumptions;
  static constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

  void unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = this;
  }

  Resumption* previous_ = this;  // neighbours in a ring; itself: in no list
  Resumption* next_ = this;
  EngineState* engine_ = nullptr;
  Act act_ = nullptr;  // null: resume who_
  std::coroutine_handle<> who_;
  Instant at_ = Instant::never();
  std::size_t place_ = kNoPlace;  // among the engine's timers
};

// A ring of them, oldest first.
class ResumptionList {
 public:
  ResumptionList() = default;
  ~ResumptionList() {
    while (!empty()) head_.next_->unlink();
  }
  ResumptionList(const ResumptionList&) = delete;
  ResumptionList& operator=(const ResumptionList&) = delete;

  bool empty() const { return head_.next_ == &head_; }
  bool has_several() const { return head_.next_ != head_.previous_; }
  Resumption& first() { return *head_.next_; }
  // Moves it here from wherever it is.
  void push_back(Resumption& r) {
    r.unlink();
    r.previous_ = head_.previous_;
    r.next_ = &head_;
    head_.previous_->next_ = &r;
    head_.previous_ = &r;
  }

 private:
  Resumption head_;
};

}  // namespace detail
}  // namespace verbena
