// SPDX-License-Identifier: Apache-2.0
// Times of the CM protocol, and one ordered queue of deadlines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "base/random.h"
#include "soft/cm/types.h"

namespace verbena::cm {

// A 5-bit timer code as time: 2^max(code-8,0) ms (9.4).
constexpr Duration code_duration(std::uint8_t code) {
  const int shift = std::max((code & 0x1f) - 8, 0);
  return Duration::milliseconds(std::int64_t{1} << shift);
}

// Time between two sendings of the same message: both ways through the network, and the peer's own time.
constexpr Duration retry_interval(std::uint8_t lifetime_code, std::uint8_t response_code) {
  return code_duration(lifetime_code) * 2 + code_duration(response_code);
}

// ACK timeout of a queue pair: twice the packet lifetime, plus the responder's delay, as the next code above
// (9.4).
constexpr std::uint8_t ack_timeout_code(std::uint8_t ack_delay_code, std::uint8_t lifetime_code) {
  int code = lifetime_code + 1;
  if (code >= ack_delay_code) {
    code += ack_delay_code >= code - 1 ? 1 : 0;
  } else {
    code = ack_delay_code + (code >= ack_delay_code - 1 ? 1 : 0);
  }
  return static_cast<std::uint8_t>(std::min(code, 31));
}

// Uniform in [7/8, 9/8] of the interval, so that connections started together do not stay together.
inline Duration jittered(Duration interval, RandomSource& random) {
  const std::int64_t eighth = interval.ns / 8;
  if (eighth <= 0) return interval;
  const auto spread = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * eighth) + 1));
  return Duration{interval.ns - eighth + spread};
}

// Deadlines in order of time, then of connection.
class TimerQueue {
 public:
  void arm(Instant at, ConnectionId id) { entries_.emplace(at, id); }
  void cancel(Instant at, ConnectionId id) { entries_.erase({at, id}); }
  Instant next() const { return entries_.empty() ? Instant::never() : entries_.begin()->first; }
  // The first connection due at `now`; id 0 if none.
  ConnectionId due(Instant now) const {
    return entries_.empty() || entries_.begin()->first > now ? ConnectionId{} : entries_.begin()->second;
  }
  std::size_t size() const { return entries_.size(); }

 private:
  std::set<std::pair<Instant, ConnectionId>> entries_;
};

}  // namespace verbena::cm
