// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_req.h"

#include <algorithm>
#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kPrimary = 52;
constexpr std::size_t kAlternate = 96;
constexpr std::size_t kPrivate = 140;

CmPath parse_path(const std::byte* from) {
  CmPath path;
  path.local_lid = load_be16(from);
  path.remote_lid = load_be16(from + 2);
  std::memcpy(path.local_gid.bytes.data(), from + 4, 16);
  std::memcpy(path.remote_gid.bytes.data(), from + 20, 16);
  const std::uint32_t word = load_be32(from + 36);
  path.flow_label = word >> 12;
  path.packet_rate = word & 0x3f;
  path.traffic_class = load_u8(from + 40);
  path.hop_limit = load_u8(from + 41);
  path.service_level = static_cast<std::uint8_t>(load_u8(from + 42) >> 4);
  path.subnet_local = (load_u8(from + 42) & 0x08) != 0;
  path.ack_timeout = static_cast<std::uint8_t>(load_u8(from + 43) >> 3);
  return path;
}

void emit_path(const CmPath& path, std::byte* to) {
  store_be16(to, path.local_lid);
  store_be16(to + 2, path.remote_lid);
  std::memcpy(to + 4, path.local_gid.bytes.data(), 16);
  std::memcpy(to + 20, path.remote_gid.bytes.data(), 16);
  store_be32(to + 36, path.flow_label << 12 | (path.packet_rate & 0x3fu));
  store_u8(to + 40, path.traffic_class);
  store_u8(to + 41, path.hop_limit);
  store_u8(to + 42, static_cast<std::uint8_t>(path.service_level << 4 | (path.subnet_local ? 0x08 : 0)));
  store_u8(to + 43, static_cast<std::uint8_t>(path.ack_timeout << 3));
}

}  // namespace

CmReq parse_cm_req(std::span<const std::byte, kCmBytes> from) {
  const auto byte = [from](std::size_t at) { return load_u8(&from[at]); };
  CmReq out;
  out.local_comm_id = load_be32(&from[0]);
  out.service_id = load_be64(&from[8]);
  out.local_ca_guid = load_be64(&from[16]);
  out.local_qkey = load_be32(&from[28]);
  out.local_qpn = Qpn{load_be24(&from[32])};
  out.responder_resources = byte(35);
  out.local_eecn = load_be24(&from[36]);
  out.initiator_depth = byte(39);
  out.remote_eecn = load_be24(&from[40]);
  out.remote_response_timeout = static_cast<std::uint8_t>(byte(43) >> 3);
  out.transport = static_cast<CmTransport>(byte(43) >> 1 & 3);
  out.end_to_end_flow_control = (byte(43) & 1) != 0;
  out.starting_psn = Psn{load_be24(&from[44])};
  out.local_response_timeout = static_cast<std::uint8_t>(byte(47) >> 3);
  out.retry_count = byte(47) & 7;
  out.pkey = load_be16(&from[48]);
  out.path_mtu = static_cast<std::uint8_t>(byte(50) >> 4);
  out.rdc_exists = (byte(50) & 0x08) != 0;
  out.rnr_retry_count = byte(50) & 7;
  out.max_cm_retries = static_cast<std::uint8_t>(byte(51) >> 4);
  out.srq = (byte(51) & 0x08) != 0;
  out.extended_transport = byte(51) & 7;
  out.primary = parse_path(&from[kPrimary]);
  out.alternate = parse_path(&from[kAlternate]);
  std::memcpy(out.private_data.data(), &from[kPrivate], out.private_data.size());
  return out;
}

void emit(const CmReq& message, std::span<std::byte, kCmBytes> to) {
  const auto put = [to](std::size_t at, unsigned value) {
    store_u8(&to[at], static_cast<std::uint8_t>(value));
  };
  std::fill(to.begin(), to.end(), std::byte{0});
  store_be32(&to[0], message.local_comm_id);
  store_be64(&to[8], message.service_id);
  store_be64(&to[16], message.local_ca_guid);
  store_be32(&to[28], message.local_qkey);
  store_be24(&to[32], message.local_qpn.value());
  put(35, message.responder_resources);
  store_be24(&to[36], message.local_eecn);
  put(39, message.initiator_depth);
  store_be24(&to[40], message.remote_eecn);
  put(43, message.remote_response_timeout * 8u | (static_cast<unsigned>(message.transport) & 3) << 1 |
              (message.end_to_end_flow_control ? 1u : 0u));
  store_be24(&to[44], message.starting_psn.value());
  put(47, message.local_response_timeout * 8u | (message.retry_count & 7u));
  store_be16(&to[48], message.pkey);
  put(50, message.path_mtu * 16u | (message.rdc_exists ? 8u : 0u) | (message.rnr_retry_count & 7u));
  put(51, message.max_cm_retries * 16u | (message.srq ? 8u : 0u) | (message.extended_transport & 7u));
  emit_path(message.primary, &to[kPrimary]);
  emit_path(message.alternate, &to[kAlternate]);
  std::memcpy(&to[kPrivate], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
