// SPDX-License-Identifier: Apache-2.0
// The timer codes with which a responder that has no receive asks for patience.
#pragma once

#include <cstdint>

#include "verbena/base/time.h"

namespace verbena {

// How long a code asks the requester to wait. Only the low 5 bits count; code 0 is the longest.
Duration rnr_duration(std::uint8_t timer_code);
// The code of the shortest wait that is at least `wait`; 0 (655.36 ms) when none is long enough.
std::uint8_t rnr_timer_code(Duration wait);

}  // namespace verbena
