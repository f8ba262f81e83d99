// SPDX-License-Identifier: Apache-2.0
// How often a request that does not get through is tried again, and how long each try takes.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/rnr_timer.h"
#include "verbena/base/verbs.h"

namespace verbena::core {

// What is left of a queue pair's retries; the two kinds do not touch each other.
class Retries {
 public:
  // At the beginning and after each progress.
  void reset(const QueuePairAttributes& attributes) {
    reset_periods(attributes);
    rnr_ = attributes.rnr_retry;
  }
  // Those that the program says anew count from now on.
  void follow(const QueuePairAttributes& attributes, AttributeMask changed) {
    if (any(changed & AttributeMask::RetryCount)) reset_periods(attributes);
    if (any(changed & AttributeMask::RnrRetry)) rnr_ = attributes.rnr_retry;
  }
  void reset_periods(const QueuePairAttributes& attributes) { periods_ = attributes.retry_count; }
  // One more period without progress. False: that was the last.
  [[nodiscard]] bool take() { return periods_ != 0 && periods_-- != 0; }
  // One more refusal for want of a receive.
  [[nodiscard]] bool take_rnr(const QueuePairAttributes& attributes) {
    return attributes.rnr_retry == 7 || (rnr_ != 0 && rnr_-- != 0);
  }

 private:
  std::uint8_t periods_ = 0, rnr_ = 0;
};

// 4.096 us * 2^code; Duration::forever() for code 0.
constexpr Duration ack_timeout(std::uint8_t code) {
  return code == 0 ? Duration::forever() : Duration::nanoseconds(std::int64_t{4096} << code);
}

// What a responder without a receive asked for, and up to an eighth more: those who wait do not come back together
//
inline Duration rnr_wait(std::uint8_t timer_code, RandomSource& random) {
  const Duration wait = rnr_duration(timer_code);
  return wait + Duration{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(wait.ns / 8 + 1)))};
}

}  // namespace verbena::core
