// SPDX-License-Identifier: Apache-2.0
// What the packet transport counted, over all queue pairs of a device.
#pragma once

#include <cstdint>

#include "soft/core/counters.h"

namespace verbena::roce {

struct Counters : core::Counters {
  std::uint64_t sent_pkts = 0;
  std::uint64_t sent_bytes = 0;  // of UDP payload
  std::uint64_t duplicate_request = 0;
  std::uint64_t out_of_seq_request = 0;
  std::uint64_t rcvd_seq_err = 0;  // sequence NAKs received
  std::uint64_t send_seq_err = 0;  // sequence NAKs sent
  std::uint64_t implied_nak_seq_err = 0;
  std::uint64_t adaptive_retransmissions = 0;
  std::uint64_t retransmitted_pkts = 0;
  std::uint64_t ghost_acks = 0;
  std::uint64_t responses_dropped = 0;
  std::uint64_t atomic_replays = 0;
};

}  // namespace verbena::roce
