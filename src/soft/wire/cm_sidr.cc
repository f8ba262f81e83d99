// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_sidr.h"

#include <algorithm>
#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {

CmSidrReq parse_cm_sidr_req(std::span<const std::byte, kCmBytes> from) {
  CmSidrReq out;
  out.request_id = load_be32(&from[0]);
  out.pkey = load_be16(&from[4]);
  out.service_id = load_be64(&from[8]);
  std::memcpy(out.private_data.data(), &from[16], out.private_data.size());
  return out;
}

void emit(const CmSidrReq& message, std::span<std::byte, kCmBytes> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
  store_be32(&to[0], message.request_id);
  store_be16(&to[4], message.pkey);
  store_be64(&to[8], message.service_id);
  std::memcpy(&to[16], message.private_data.data(), message.private_data.size());
}

CmSidrRep parse_cm_sidr_rep(std::span<const std::byte, kCmBytes> from) {
  CmSidrRep out;
  out.request_id = load_be32(&from[0]);
  out.status = static_cast<CmSidrStatus>(load_u8(&from[4]));
  out.information_bytes = load_u8(&from[5]);
  out.qpn = Qpn{load_be24(&from[8])};
  out.service_id = load_be64(&from[12]);
  out.qkey = load_be32(&from[20]);
  std::memcpy(out.information.data(), &from[24], out.information.size());
  std::memcpy(out.private_data.data(), &from[96], out.private_data.size());
  return out;
}

void emit(const CmSidrRep& message, std::span<std::byte, kCmBytes> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
  store_be32(&to[0], message.request_id);
  store_u8(&to[4], static_cast<std::uint8_t>(message.status));
  store_u8(&to[5], message.information_bytes);
  store_be24(&to[8], message.qpn.value());
  store_be64(&to[12], message.service_id);
  store_be32(&to[20], message.qkey);
  std::memcpy(&to[24], message.information.data(), message.information.size());
  std::memcpy(&to[96], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
