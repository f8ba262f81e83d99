// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/mad.h"

#include "base/byte_order.h"

namespace verbena::wire {

std::string_view to_string(CmAttribute attribute) {
  switch (attribute) {
    case CmAttribute::Req:
      return "REQ";
    case CmAttribute::Mra:
      return "MRA";
    case CmAttribute::Rej:
      return "REJ";
    case CmAttribute::Rep:
      return "REP";
    case CmAttribute::Rtu:
      return "RTU";
    case CmAttribute::Dreq:
      return "DREQ";
    case CmAttribute::Drep:
      return "DREP";
    case CmAttribute::SidrReq:
      return "SIDR_REQ";
    case CmAttribute::SidrRep:
      return "SIDR_REP";
    case CmAttribute::Lap:
      return "LAP";
    case CmAttribute::Apr:
      return "APR";
  }
  return "attribute";
}

DropReason parse_mad(std::span<const std::byte> payload, MadHeader& out) {
  if (payload.size() != kMadBytes) return DropReason::BadLength;
  const std::byte* from = payload.data();
  out.base_version = load_u8(from);
  out.management_class = load_u8(from + 1);
  out.class_version = load_u8(from + 2);
  out.method = load_u8(from + 3);
  out.status = load_be16(from + 4);
  out.class_specific = load_be16(from + 6);
  out.transaction_id = load_be64(from + 8);
  out.attribute = static_cast<CmAttribute>(load_be16(from + 16));
  out.reserved = load_be16(from + 18);
  out.attribute_modifier = load_be32(from + 20);
  const bool ours = out.base_version == MadHeader::kBaseVersion &&
                    out.management_class == MadHeader::kCmClass &&
                    out.class_version == MadHeader::kCmClassVersion && out.method == MadHeader::kMethodSend;
  return ours ? DropReason::None : DropReason::BadMad;  // C-18
}

void emit_mad_header(const MadHeader& header, std::span<std::byte, kMadHeaderBytes> to) {
  store_u8(&to[0], header.base_version);
  store_u8(&to[1], header.management_class);
  store_u8(&to[2], header.class_version);
  store_u8(&to[3], header.method);
  store_be16(&to[4], header.status);
  store_be16(&to[6], header.class_specific);
  store_be64(&to[8], header.transaction_id);
  store_be16(&to[16], static_cast<std::uint16_t>(header.attribute));
  store_be16(&to[18], header.reserved);
  store_be32(&to[20], header.attribute_modifier);
}

}  // namespace verbena::wire
