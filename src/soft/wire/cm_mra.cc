// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_mra.h"

#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {

CmMra parse_cm_mra(std::span<const std::byte, kCmBytes> from) {
  CmMra out;
  out.local_comm_id = load_be32(&from[0]);
  out.remote_comm_id = load_be32(&from[4]);
  out.acknowledged = static_cast<CmMessageKind>(load_u8(&from[8]) >> 6);
  out.service_timeout = static_cast<std::uint8_t>(load_u8(&from[9]) >> 3);
  std::memcpy(out.private_data.data(), &from[10], out.private_data.size());
  return out;
}

void emit(const CmMra& message, std::span<std::byte, kCmBytes> to) {
  store_be32(&to[0], message.local_comm_id);
  store_be32(&to[4], message.remote_comm_id);
  store_u8(&to[8], static_cast<std::uint8_t>(static_cast<unsigned>(message.acknowledged) << 6));
  store_u8(&to[9], static_cast<std::uint8_t>(message.service_timeout << 3));
  std::memcpy(&to[10], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
