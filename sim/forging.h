// SPDX-License-Identifier: Apache-2.0
// Datagrams that no device sent, with a right ICRC.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_order.h"
#include "base/random.h"
#include "soft/wire/icrc.h"
#include "soft/wire/packet.h"

namespace verbena::sim {

inline void seal(const wire::Path& path, std::uint16_t identification, std::span<std::byte> bytes) {
  const std::size_t covered = bytes.size() - wire::kIcrcBytes;
  wire::store_icrc(&bytes[covered], wire::icrc_of(path, identification, bytes.first(covered)));
}

// Of a good one makes one that is well-formed or not, and always something that a device has to ignore.
inline void forge(wire::Path& path, std::uint16_t identification, std::vector<std::byte>& b, SeededRandom& random) {
  const bool to_management = Qpn(load_be24(&b[5])) == kGsiQpn;
  switch (random.below(8)) {
    case 0:
      b[1] |= std::byte{0x01};
      break;
    case 1:
      b[0] = std::byte{0xff};
      break;
    case 2:
      b[0] = (b[0] & std::byte{0x1f}) | std::byte{0x20};
      break;  // UC
    case 3:
      store_be24(&b[5], 0);
      break;
    case 4:
      store_be24(&b[5], Qpn::kMask);
      break;  // multicast
    case 5:
      store_be16(&b[2], 0x1234);
      break;
    case 6:
      path.source.bytes[14] ^= 0x40;
      break;
    default:
      b.resize(wire::kBthBytes + wire::kAethBytes + wire::kIcrcBytes);
      b[0] = static_cast<std::byte>(wire::Opcode::RcAcknowledge);
      b[1] = std::byte{0x40};
      b[wire::kBthBytes] = static_cast<std::byte>(0x40 + random.below(0x20));  // reserved syndrome
      break;
  }
  // Management datagrams have no queue pair whose number, address or class could be wrong in these ways.
  if (to_management) b[1] |= std::byte{0x01};
  seal(path, identification, b);
}

}  // namespace verbena::sim
