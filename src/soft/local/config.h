// SPDX-License-Identifier: Apache-2.0
// Tunables of the transport over rings.
#pragma once

#include <cstdint>

#include "verbena/base/time.h"

namespace verbena::local {

struct Config {
  // One turn over the peer's records takes no more, and one emit() writes no more of either kind.
  std::uint32_t max_turn_records = 64;
  // An acknowledgement leaves with data, or after a turn that found nothing, or when it is owed for so long.
  Duration max_owed_ack_time = Duration::microseconds(50);
};

}  // namespace verbena::local
