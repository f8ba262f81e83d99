// SPDX-License-Identifier: Apache-2.0
// The addresses of one datagram as it stands on the wire, and the IP fields the ICRC covers.
#pragma once

#include <cstdint>

#include "verbena/base/gid.h"

namespace verbena::wire {

inline constexpr std::uint16_t kRocePort = 4791;

struct Path {
  Gid source;
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = kRocePort;
  std::uint8_t traffic_class = 0;  // IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // IPv6 only, 20 bits

  bool is_ipv4() const { return source.is_ipv4(); }
  bool operator==(const Path&) const = default;
};

}  // namespace verbena::wire
