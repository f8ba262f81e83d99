// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_rej.h"

#include <array>
#include <cstring>

#include "base/byte_order.h"

namespace verbena::wire {
namespace {

// By the number of the reason; empty where there is none.
constexpr std::array<std::string_view, 36> kReasons = {
    "",
    "no queue pair",
    "no end-to-end context",
    "no resources",
    "timeout",
    "unsupported",
    "invalid communication id",
    "invalid communication instance",
    "invalid service id",
    "invalid transport",
    "stale connection",
    "no reliable datagram channel",
    "invalid GID",
    "invalid LID",
    "invalid service level",
    "invalid traffic class",
    "invalid hop limit",
    "invalid packet rate",
    "invalid alternate GID",
    "invalid alternate LID",
    "invalid alternate service level",
    "invalid alternate traffic class",
    "invalid alternate hop limit",
    "invalid alternate packet rate",
    "port and CM redirection",
    "port redirection",
    "invalid path MTU",
    "insufficient responder resources",
    "consumer",
    "invalid RNR retry count",
    "duplicate local communication id",
    "invalid class version",
    "invalid flow label",
    "invalid alternate flow label",
    "",
    "vendor option",
};

}  // namespace

std::string_view to_string(CmRejectReason reason) {
  const auto number = static_cast<std::size_t>(reason);
  return number < kReasons.size() && !kReasons[number].empty() ? kReasons[number] : "reserved reason";
}

CmRej parse_cm_rej(std::span<const std::byte, kCmBytes> from) {
  CmRej out;
  out.local_comm_id = load_be32(&from[0]);
  out.remote_comm_id = load_be32(&from[4]);
  out.rejected = static_cast<CmMessageKind>(load_u8(&from[8]) >> 6);
  out.information_bytes = static_cast<std::uint8_t>(load_u8(&from[9]) >> 1);
  out.reason = static_cast<CmRejectReason>(load_be16(&from[10]));
  std::memcpy(out.information.data(), &from[12], out.information.size());
  std::memcpy(out.private_data.data(), &from[84], out.private_data.size());
  return out;
}

void emit(const CmRej& message, std::span<std::byte, kCmBytes> to) {
  store_be32(&to[0], message.local_comm_id);
  store_be32(&to[4], message.remote_comm_id);
  store_u8(&to[8], static_cast<std::uint8_t>(static_cast<unsigned>(message.rejected) << 6));
  store_u8(&to[9], static_cast<std::uint8_t>(message.information_bytes << 1));
  store_be16(&to[10], static_cast<std::uint16_t>(message.reason));
  std::memcpy(&to[12], message.information.data(), message.information.size());
  std::memcpy(&to[84], message.private_data.data(), message.private_data.size());
}

}  // namespace verbena::wire
