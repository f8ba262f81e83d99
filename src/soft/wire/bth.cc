// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/bth.h"

#include "base/byte_order.h"

namespace verbena::wire {

DropReason parse_bth(std::span<const std::byte, kBthBytes> from, Bth& out) {
  const std::uint32_t first = load_be32(&from[0]), second = load_be32(&from[4]), third = load_be32(&from[8]);
  if ((first >> 16 & 0x0f) != 0) return DropReason::BadVersion;
  out.opcode = static_cast<Opcode>(first >> 24);
  out.solicited = (first & 1u << 23) != 0;
  out.migrated = (first & 1u << 22) != 0;
  out.pad_count = first >> 20 & 3;
  out.pkey = static_cast<std::uint16_t>(first);
  out.fecn = (second & 1u << 31) != 0;
  out.becn = (second & 1u << 30) != 0;
  out.reserved_byte4 = second >> 24 & 0x3f;
  out.destination = Qpn{second & 0xffffff};
  out.ack_request = (third & 1u << 31) != 0;
  out.reserved_byte8 = third >> 24 & 0x7f;
  out.psn = Psn{third & Psn::kMask};
  return DropReason::None;
}

void emit_bth(const Bth& bth, std::span<std::byte, kBthBytes> to) {
  const auto at = [](std::uint32_t value, unsigned position) { return value << position; };
  store_be32(&to[0], at(static_cast<std::uint8_t>(bth.opcode), 24) | at(bth.solicited, 23) | at(bth.migrated, 22) |
                         at(bth.pad_count & 3u, 20) | bth.pkey);
  store_be32(&to[4], at(bth.fecn, 31) | at(bth.becn, 30) | at(bth.reserved_byte4 & 0x3fu, 24) |
                         (bth.destination.value() & 0xffffff));
  store_be32(&to[8],
             at(bth.ack_request, 31) | at(bth.reserved_byte8 & 0x7fu, 24) | (bth.psn.value() & Psn::kMask));
}

}  // namespace verbena::wire
