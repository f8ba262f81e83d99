// SPDX-License-Identifier: Apache-2.0
#include "tools/ping_protocol.h"

#include <algorithm>
#include <string>

namespace verbena::tools {

namespace {

constexpr std::array<std::byte, 4> kPingMagic{std::byte{'V'}, std::byte{'B'}, std::byte{'P'}, std::byte{'G'}};
constexpr unsigned kPingVersion = 1;

}  // namespace

std::optional<PingOperation> parse_ping_operation(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kPingOperationNames); ++i)
    if (kPingOperationNames[i] == name) return static_cast<PingOperation>(i);
  return std::nullopt;
}

std::array<std::byte, PingRequest::kWireBytes> PingRequest::to_bytes() const {
  std::array<std::byte, kWireBytes> out{};
  std::copy(kPingMagic.begin(), kPingMagic.end(), out.begin());
  out[4] = std::byte{kPingVersion};
  out[5] = static_cast<std::byte>(operation);
  for (std::size_t i = 0; i < 4; ++i) out[8 + i] = static_cast<std::byte>(size >> (8 * i));
  return out;
}

Result<PingRequest> PingRequest::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kWireBytes || !std::equal(kPingMagic.begin(), kPingMagic.end(), bytes.begin()))
    return Error(ErrorCode::ProtocolError,
                 "this is the ping server verbena ping -s, for verbena ping; files come from verbena serve");
  const auto version = std::to_integer<unsigned>(bytes[4]);
  if (version != kPingVersion)
    return Error(ErrorCode::ProtocolError, "ping of version " + std::to_string(version) + ", here is version " +
                                               std::to_string(kPingVersion));
  PingRequest request;
  const auto operation = std::to_integer<std::size_t>(bytes[5]);
  if (operation >= std::size(kPingOperationNames))
    return Error(ErrorCode::ProtocolError, "ping with unknown operation " + std::to_string(operation));
  request.operation = static_cast<PingOperation>(operation);
  for (std::size_t i = 4; i-- > 0;) request.size = request.size << 8 | std::to_integer<std::uint32_t>(bytes[8 + i]);
  if (request.size > kMaxPingBytes)
    return Error(ErrorCode::ProtocolError, "ping of " + std::to_string(request.size) + " bytes, at most " +
                                               std::to_string(kMaxPingBytes));
  return request;
}

}  // namespace verbena::tools
