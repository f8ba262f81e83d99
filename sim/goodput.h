// SPDX-License-Identifier: Apache-2.0
// How much data gets through a link that loses packets: one queue pair, WRITEs one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "soft/roce/config.h"
#include "verbena/base/time.h"

namespace verbena::sim {

struct GoodputOptions {
  std::uint64_t seed = 1;
  double loss = 0;  // both ways
  std::uint64_t bits_per_second = 10'000'000'000;
  Duration round_trip = Duration::microseconds(100);
  std::uint32_t path_mtu = 4096;
  std::uint32_t message_bytes = 1u << 20;
  std::uint32_t messages = 64;
  std::uint32_t outstanding = 4;
  roce::Config transport;
};

struct GoodputResult {
  std::uint32_t completed = 0;  // messages, with success
  bool data_right = false;      // at the receiver, to the last byte
  double bits_per_second = 0;   // of payload
  std::uint64_t packets = 0, retransmitted = 0;
  std::string failure;  // empty: none
};

GoodputResult goodput(const GoodputOptions& options);

}  // namespace verbena::sim
