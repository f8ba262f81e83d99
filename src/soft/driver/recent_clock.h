// SPDX-License-Identifier: Apache-2.0
// The monotonic clock for a loop that asks at each turn: read anew only when the processor has counted some cycles
// since. Reading the clock takes longer than a short turn has work.
#pragma once

#include <cstdint>

#include "soft/driver/capture.h"

namespace verbena::soft {

class RecentClock {
 public:
  // Never earlier than before; at most 4,096 cycles of the time stamp counter late. One thread at a time.
  Instant now() {
    const std::uint64_t ticks = count();
    if (ticks - ticks_ >= kFresh) {
      ticks_ = ticks;
      last_ = monotonic_now();
    }
    return last_;
  }

 private:
  static constexpr std::uint64_t kFresh = 4096;

#if defined(__x86_64__)
  static std::uint64_t count() { return __builtin_ia32_rdtsc(); }
#else
  std::uint64_t count() const { return ticks_ + kFresh; }  // a counter of unknown pace: read the clock each time
#endif

  std::uint64_t ticks_ = 0 - kFresh;
  Instant last_;
};

}  // namespace verbena::soft
