// SPDX-License-Identifier: Apache-2.0
// Tunables of the transport over rings.
#pragma once

#include <cstdint>

#include "verbena/base/time.h"

namespace verbena::local {

struct Config {
  // One turn over the peer's records takes no more of them, and ends with a quarter of the ring.
  std::uint32_t max_turn_records = 64;
  // Longer messages are cut; a record takes a quarter of the ring at most.
  std::uint32_t max_record_bytes = 16 * 1024;
  // Messages from this length on are pulled by a peer that can: below it the call costs more than the second copy.
  std::uint32_t pull_from_bytes = 8 * 1024;
  // And from this one on where the peer maps what they lie in, and copies without a call.
  std::uint32_t map_from_bytes = 512;
  // An acknowledgement leaves with data, after a turn that found nothing, or when one of these is reached.
  std::uint32_t max_owed_requests = 16;
  Duration max_owed_time = Duration::microseconds(50);
};

}  // namespace verbena::local
