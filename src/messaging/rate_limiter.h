// SPDX-License-Identifier: Apache-2.0
// When the next message may go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "verbena/base/time.h"
#include "verbena/messaging/options.h"

namespace verbena::messaging {

// The theoretical time of the next, at a rate. What a message takes beyond whole nanoseconds is kept: at rates above
// 1e9 most take less than one.
class Pace {
 public:
  // 0: none.
  explicit Pace(std::uint64_t per_second) : per_second_(std::min(per_second, kMost)) {}

  bool is_on() const { return per_second_ != 0; }
  // Whole nanoseconds that so much takes.
  std::int64_t ns_of(std::uint32_t amount) const {
    return is_on() ? static_cast<std::int64_t>(amount * kSecond / per_second_) : 0;
  }
  std::int64_t next_ns() const { return next_ns_; }
  void take(Instant now, std::uint32_t amount) {
    if (!is_on()) return;
    if (now.ns > next_ns_) {
      next_ns_ = now.ns;
      fraction_ = 0;
    }
    const std::uint64_t taken = amount * kSecond + fraction_;
    next_ns_ += static_cast<std::int64_t>(taken / per_second_);
    fraction_ = taken % per_second_;
  }

 private:
  static constexpr std::uint64_t kSecond = 1'000'000'000;  // times any amount: below 2^62
  static constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

  std::uint64_t per_second_;
  std::int64_t next_ns_ = 0;
  std::uint64_t fraction_ = 0;  // of a nanosecond, in parts of per_second_
};

// Messages and bytes each have a pace: a message may go up to a burst ahead of it.
class RateLimiter {
 public:
  explicit RateLimiter(const RateLimit& limit)
      : messages_(limit.messages_per_second),
        bytes_(limit.bytes_per_second),
        ahead_ns_(messages_.ns_of(std::max<std::uint32_t>(limit.burst, 1) - 1)) {}

  bool is_on() const { return messages_.is_on() || bytes_.is_on(); }
  // From then on a message may go.
  Instant next() const { return {std::max(messages_.next_ns() - ahead_ns_, bytes_.next_ns())}; }
  bool allows(Instant now) const { return next() <= now; }
  void take(Instant now, std::uint32_t bytes) {
    messages_.take(now, 1);
    bytes_.take(now, bytes);
  }

 private:
  Pace messages_, bytes_;
  std::int64_t ahead_ns_;
};

}  // namespace verbena::messaging
