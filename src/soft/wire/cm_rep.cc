// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_rep.h"

#include <algorithm>
#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {

CmRep parse_cm_rep(std::span<const std::byte, kCmBytes> from) {
  const auto byte = [from](std::size_t at) { return load_u8(&from[at]); };
  CmRep out;
  out.local_comm_id = load_be32(&from[0]);
  out.remote_comm_id = load_be32(&from[4]);
  out.local_qkey = load_be32(&from[8]);
  out.local_qpn = Qpn{load_be24(&from[12])};
  out.local_eecn = load_be24(&from[16]);
  out.starting_psn = Psn{load_be24(&from[20])};
  out.responder_resources = byte(24);
  out.initiator_depth = byte(25);
  out.target_ack_delay = static_cast<std::uint8_t>(byte(26) >> 3);
  out.failover_accepted = byte(26) >> 1 & 3;
  out.end_to_end_flow_control = (byte(26) & 1) != 0;
  out.rnr_retry_count = static_cast<std::uint8_t>(byte(27) >> 5);
  out.srq = (byte(27) & 0x10) != 0;
  out.local_ca_guid = load_be64(&from[28]);
  std::memcpy(out.private_data.data(), &from[36], out.private_data.size());
  return out;
}

void emit(const CmRep& message, std::span<std::byte, kCmBytes> to) {
  const auto put = [to](std::size_t at, unsigned value) {
    store_u8(&to[at], static_cast<std::uint8_t>(value));
  };
  std::fill(to.begin(), to.end(), std::byte{0});
  store_be32(&to[0], message.local_comm_id);
  store_be32(&to[4], message.remote_comm_id);
  store_be32(&to[8], message.local_qkey);
  store_be24(&to[12], message.local_qpn.value());
  store_be24(&to[16], message.local_eecn);
  store_be24(&to[20], message.starting_psn.value());
  put(24, message.responder_resources);
  put(25, message.initiator_depth);
  put(26, message.target_ack_delay * 8u | (message.failover_accepted & 3u) << 1 |
              (message.end_to_end_flow_control ? 1u : 0u));
  put(27, (message.rnr_retry_count & 7u) << 5 | (message.srq ? 0x10u : 0u));
  store_be64(&to[28], message.local_ca_guid);
  std::memcpy(&to[36], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
