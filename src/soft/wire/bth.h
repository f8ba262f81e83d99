// SPDX-License-Identifier: Apache-2.0
// Base transport header: the first 12 bytes of every packet (format reference 2.1).
//
//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---------------+-+-+---+-------+-------------------------------+
//   |    OpCode     |S|M|Pad| TVer  |             P_Key             |
//   +-+-+-----------+-+-+---+-------+-------------------------------+
//   |F|B| reserved  |            destination queue pair             |
//   +-+-+-----------+-----------------------------------------------+
//   |A|  reserved   |                      PSN                      |
//   +-+-------------+-----------------------------------------------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/byte_order.h"
#include "soft/wire/drop_reason.h"
#include "soft/wire/opcode.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

struct Bth {
  Opcode opcode = Opcode::RcSendOnly;
  bool solicited = false;
  bool migrated = true;  // MigReq; sent as 1 (mlx5's habit), accepted either way
  std::uint8_t pad_count = 0;
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint8_t reserved_byte4 = 0;  // low 6 bits; kept so that what was parsed can be emitted again
  Qpn destination;
  bool ack_request = false;
  std::uint8_t reserved_byte8 = 0;  // low 7 bits
  Psn psn;

  bool operator==(const Bth&) const = default;
};

// BadVersion when TVer is not 0. Reserved bits are kept and ignored. Any opcode value passes.
DropReason parse_bth(std::span<const std::byte, kBthBytes> from, Bth& out);
void emit_bth(const Bth& bth, std::span<std::byte, kBthBytes> to);
// The same as `last`, but for the number, which is the following.
inline void emit_next_bth(std::span<const std::byte, kBthBytes> last, std::span<std::byte, kBthBytes> to) {
  std::memcpy(&to[0], &last[0], 8);
  const std::uint32_t third = load_be32(&last[8]);
  store_be32(&to[8], (third & ~Psn::kMask) | ((third + 1) & Psn::kMask));
}

}  // namespace verbena::wire
