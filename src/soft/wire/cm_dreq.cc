// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_dreq.h"

#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {

CmDreq parse_cm_dreq(std::span<const std::byte, kCmBytes> from) {
  CmDreq out;
  out.local_comm_id = load_be32(&from[0]);
  out.remote_comm_id = load_be32(&from[4]);
  out.remote_qpn = Qpn{load_be24(&from[8])};
  std::memcpy(out.private_data.data(), &from[12], out.private_data.size());
  return out;
}

void emit(const CmDreq& message, std::span<std::byte, kCmBytes> to) {
  store_be32(&to[0], message.local_comm_id);
  store_be32(&to[4], message.remote_comm_id);
  store_be32(&to[8], message.remote_qpn.value() << 8);
  std::memcpy(&to[12], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
