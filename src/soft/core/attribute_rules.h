// SPDX-License-Identifier: Apache-2.0
// Which state follows which, and which attributes each step must and may bring.
#pragma once

#include "verbena/base/result.h"
#include "verbena/base/verbs.h"

namespace verbena::core {

// What a device allows; checked against attribute values.
struct AttributeLimits {
  std::uint32_t path_mtu = 4096;
  std::uint8_t max_rd_atomic = 16;
  std::uint8_t max_dest_rd_atomic = 16;
};

// Checks the step from -> to with exactly these attributes present and their values in range.
// The error names the transition and what is missing, not allowed or out of range.
Result<void> check_transition(QueuePairType type, QueuePairState from, QueuePairState to, AttributeMask mask,
                              const QueuePairAttributes& values, const AttributeLimits& limits);

}  // namespace verbena::core
