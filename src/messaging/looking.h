// SPDX-License-Identifier: Apache-2.0
// Waiting for what no completion announces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "verbena/base/time.h"

namespace verbena::messaging {

inline constexpr Duration kLookInterval = Duration::microseconds(1);
// Who waits from the engine looks less and less often, up to that.
inline constexpr Duration kLongestLookInterval = Duration::microseconds(16);
// For who was refused, tries again when woken, or not: a part of the time since the first refusal, and up to that.
inline constexpr int kTryIntervalPart = 8;
inline constexpr Duration kLongestTryInterval = Duration::milliseconds(125);
// Who has not tried for so long will be told no more.
inline constexpr Duration kTryPatience = Duration::seconds(1);
// Of a program that polls, before it drives the engine, which takes as long: looks into the memory of one sender, with
// a pause between two.
inline constexpr std::size_t kLooksPerRun = 16;
// Whether what a peer writes is there without anybody driving the engine: within a host, or by a device of hardware.
class Arrivals {
 public:
  // Asked before each time that one might look again. Now and then yes, to find out.
  bool come_by_themselves() { return by_run_ < kEnough || ++asked_ % kTrialEvery == 0; }
  void on_look() { by_run_ = 0; }
  void on_run() { by_run_ += by_run_ < kEnough; }

 private:
  static constexpr std::uint32_t kEnough = 16, kTrialEvery = 64;
  std::uint32_t by_run_ = 0;  // found by driving, one after the other
  std::uint32_t asked_ = 0;
};

// For EngineState::run_until().
inline std::optional<Duration> look_every(bool looks) {
  return looks ? std::optional(kLookInterval) : std::nullopt;
}

}  // namespace verbena::messaging
