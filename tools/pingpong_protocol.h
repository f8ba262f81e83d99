// SPDX-License-Identifier: Apache-2.0
// What ibv_rc_pingpong of rdma-core says over TCP before its queue pairs meet: the client sends its address, the server
// answers with its own, the client confirms with kPingpongDone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/base/gid.h"
#include "verbena/base/ids.h"
#include "verbena/base/result.h"

namespace verbena::tools {

inline constexpr std::uint16_t kPingpongPort = 18515;
// NUL included.
inline constexpr std::array<char, 5> kPingpongDone{'d', 'o', 'n', 'e', '\0'};

// One side, as text in hexadecimal with a NUL at its end:
//
//     0    4 5      11 12     18 19    51  52
//     | LID |:| QPN  |:| PSN  |:| GID  | NUL |
struct PingpongAddress {
  static constexpr std::size_t kWireBytes = 52;
  std::uint16_t lid = 0;  // 0 on RoCE
  Qpn qpn;
  Psn psn;
  Gid gid;

  std::array<char, kWireBytes> to_wire() const;
  // ProtocolError: not of that form.
  static Result<PingpongAddress> from_wire(std::string_view text);
  // "LID 0x0000, QPN 0x000011, PSN 0x1a2b3c, GID ::ffff:192.0.2.1"
  std::string to_string() const;
  bool operator==(const PingpongAddress&) const = default;
};

}  // namespace verbena::tools
