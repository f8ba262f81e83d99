// SPDX-License-Identifier: Apache-2.0
// While an end calls its user, who may destroy it, throw, or run the engine: then it serves again inside.
#pragma once

#include <exception>
#include <utility>

#include "async/engine_state.h"

namespace verbena::messaging {

class Calling {
 public:
  // `flag`: the end's, whose destructor sets what it points to. `tick`: serves what the call left undone by throwing.
  Calling(bool*& flag, detail::Resumption& tick) : flag_(flag), tick_(tick), outer_(std::exchange(flag, &destroyed_)) {}
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling() {
    if (destroyed_) {
      if (outer_ != nullptr) *outer_ = true;
      return;
    }
    flag_ = outer_;
    if (std::uncaught_exceptions() > exceptions_) tick_.make_ready();
  }
  // Nothing of the end may be touched then.
  bool destroyed_it() const { return destroyed_; }

 private:
  bool*& flag_;
  detail::Resumption& tick_;
  mutable bool destroyed_ = false;  // by way of the flag, also of one that is const
  bool* const outer_;
  const int exceptions_ = std::uncaught_exceptions();
};

// One call of a user among those that stand inside each other, as each may run the engine. What comes to more than so
// many of one kind at one end, and to more than EngineState::may_call() says of all, waits until one of them returns: a
// stack is finite, and messages are not.
class Nested {
 public:
  static constexpr int kMost = 32;
  Nested(EngineState& engine, int& depth, const Calling& calling) : engine_(engine), depth_(depth), calling_(calling) {
    ++depth_;
    engine_.begin_call();
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() {
    if (!calling_.destroyed_it()) --depth_;
    engine_.end_call();
  }

 private:
  EngineState& engine_;
  int& depth_;
  const Calling& calling_;
};

}  // namespace verbena::messaging
