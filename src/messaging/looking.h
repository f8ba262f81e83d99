// SPDX-License-Identifier: Apache-2.0
// Waiting for what no completion announces.
#pragma once

#include <cstddef>
#include <optional>

#include "verbena/base/time.h"

namespace verbena::messaging {

inline constexpr Duration kLookInterval = Duration::microseconds(1);
// Who waits from the engine looks less and less often, up to that.
inline constexpr Duration kLongestLookInterval = Duration::microseconds(16);
// Of a program that polls, before it drives the engine, which takes as long: looks into the memory of one sender.
inline constexpr std::size_t kLooksPerRun = 32;
// For EngineState::run_until().
inline std::optional<Duration> look_every(bool looks) {
  return looks ? std::optional(kLookInterval) : std::nullopt;
}

}  // namespace verbena::messaging
