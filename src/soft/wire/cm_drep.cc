// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_drep.h"

#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {

CmDrep parse_cm_drep(std::span<const std::byte, kCmBytes> from) {
  CmDrep out;
  out.local_comm_id = load_be32(&from[0]);
  out.remote_comm_id = load_be32(&from[4]);
  std::memcpy(out.private_data.data(), &from[8], out.private_data.size());
  return out;
}

void emit(const CmDrep& message, std::span<std::byte, kCmBytes> to) {
  store_be32(&to[0], message.local_comm_id);
  store_be32(&to[4], message.remote_comm_id);
  std::memcpy(&to[8], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
