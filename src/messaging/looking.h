// SPDX-License-Identifier: Apache-2.0
// Waiting for what no completion announces.
#pragma once

#include <algorithm>

#include "async/engine_state.h"

namespace verbena::messaging {

inline constexpr Duration kLookInterval = Duration::microseconds(1);
// Who waits from the engine looks less and less often, up to that.
inline constexpr Duration kLongestLookInterval = Duration::microseconds(16);

// Drives the engine until done() holds or the deadline has come; done() is asked after every run, and `looks`
// says that it may hold without any event.
template <class Done>
bool drive_until(EngineState& engine, Instant deadline, bool looks, Done&& done) {
  while (!done()) {
    if (engine.run_once()) continue;
    const Instant now = engine.now();
    if (!deadline.is_never() && now >= deadline) return done();
    engine.wait(looks ? std::min(deadline, now + kLookInterval) : deadline);
  }
  return true;
}

}  // namespace verbena::messaging
