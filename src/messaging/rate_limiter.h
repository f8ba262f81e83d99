// SPDX-License-Identifier: Apache-2.0
// When the next message may go.
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbena/base/time.h"
#include "verbena/messaging/options.h"

namespace verbena::messaging {

// Messages and bytes each have a theoretical time of the next: a message may go up to a burst ahead of it.
class RateLimiter {
 public:
  explicit RateLimiter(const RateLimit& limit)
      : limit_(limit),
        message_ns_(limit.messages_per_second == 0 ? 0 : ns_of(1, limit.messages_per_second)),
        ahead_ns_(message_ns_ * (std::max<std::uint32_t>(limit.burst, 1) - 1)) {}

  bool is_on() const { return limit_.messages_per_second != 0 || limit_.bytes_per_second != 0; }
  // From then on a message may go.
  Instant next() const { return {std::max(message_at_ - ahead_ns_, byte_at_)}; }
  bool allows(Instant now) const { return next() <= now; }
  void take(Instant now, std::uint32_t bytes) {
    message_at_ = std::max(message_at_, now.ns) + message_ns_;
    if (limit_.bytes_per_second == 0) return;
    byte_at_ = std::max(byte_at_, now.ns) + ns_of(bytes, limit_.bytes_per_second);
  }

 private:
  static std::int64_t ns_of(std::uint64_t amount, std::uint64_t per_second) {
    return static_cast<std::int64_t>(amount * 1'000'000'000 / per_second);
  }

  RateLimit limit_;
  std::int64_t message_ns_;
  std::int64_t ahead_ns_;
  std::int64_t message_at_ = 0, byte_at_ = 0;
};

}  // namespace verbena::messaging
