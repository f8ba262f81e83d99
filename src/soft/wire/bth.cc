// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/bth.h"

#include "base/byte_order.h"

namespace verbena::wire {

DropReason parse_bth(std::span<const std::byte, kBthBytes> from, Bth& out) {
  const std::uint8_t byte1 = load_u8(&from[1]);
  if ((byte1 & 0x0f) != 0) return DropReason::BadVersion;
  const std::uint8_t byte4 = load_u8(&from[4]);
  const std::uint8_t byte8 = load_u8(&from[8]);
  out.opcode = static_cast<Opcode>(load_u8(&from[0]));
  out.solicited = (byte1 & 0x80) != 0;
  out.migrated = (byte1 & 0x40) != 0;
  out.pad_count = (byte1 >> 4) & 3;
  out.pkey = load_be16(&from[2]);
  out.fecn = (byte4 & 0x80) != 0;
  out.becn = (byte4 & 0x40) != 0;
  out.reserved_byte4 = byte4 & 0x3f;
  out.destination = Qpn{load_be24(&from[5])};
  out.ack_request = (byte8 & 0x80) != 0;
  out.reserved_byte8 = byte8 & 0x7f;
  out.psn = Psn{load_be24(&from[9])};
  return DropReason::None;
}

void emit_bth(const Bth& bth, std::span<std::byte, kBthBytes> to) {
  const auto bit = [](bool value, unsigned position) { return value ? 1u << position : 0u; };
  store_u8(&to[0], static_cast<std::uint8_t>(bth.opcode));
  store_u8(&to[1], static_cast<std::uint8_t>(bit(bth.solicited, 7) | bit(bth.migrated, 6) |
                                             (bth.pad_count & 3u) << 4));
  store_be16(&to[2], bth.pkey);
  store_u8(&to[4],
           static_cast<std::uint8_t>(bit(bth.fecn, 7) | bit(bth.becn, 6) | (bth.reserved_byte4 & 0x3fu)));
  store_be24(&to[5], bth.destination.value());
  store_u8(&to[8], static_cast<std::uint8_t>(bit(bth.ack_request, 7) | (bth.reserved_byte8 & 0x7fu)));
  store_be24(&to[9], bth.psn.value());
}

}  // namespace verbena::wire
