// SPDX-License-Identifier: Apache-2.0
#include "tools/pingpong_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

std::optional<std::uint32_t> parse_hex(std::string_view digits) {
  std::uint32_t value = 0;
  for (const char c : digits) {
    std::uint32_t digit = 0;
    if (c >= '0' && c <= '9') digit = static_cast<std::uint32_t>(c - '0');
    else if (c >= 'a' && c <= 'f') digit = static_cast<std::uint32_t>(c - 'a') + 10;
    else if (c >= 'A' && c <= 'F') digit = static_cast<std::uint32_t>(c - 'A') + 10;
    else return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

}  // namespace

std::array<char, PingpongAddress::kWireBytes> PingpongAddress::to_wire() const {
  std::string text = fmt::format("{:04x}:{:06x}:{:06x}:", lid, qpn.value(), psn.value());
  for (const std::uint8_t byte : gid.bytes) text += fmt::format("{:02x}", byte);
  std::array<char, kWireBytes> wire{};
  std::copy(text.begin(), text.end(), wire.begin());
  return wire;
}

Result<PingpongAddress> PingpongAddress::from_wire(std::string_view text) {
  const Error wrong(ErrorCode::ProtocolError, "\"" + std::string(text.substr(0, kWireBytes)) +
                                                  "\" is no address of ibv_rc_pingpong (LID:QPN:PSN:GID)");
  if (text.size() != kWireBytes || text[4] != ':' || text[11] != ':' || text[18] != ':' || text[51] != '\0')
    return wrong;
  const auto lid = parse_hex(text.substr(0, 4));
  const auto qpn = parse_hex(text.substr(5, 6));
  const auto psn = parse_hex(text.substr(12, 6));
  if (!lid || !qpn || !psn) return wrong;
  PingpongAddress address{static_cast<std::uint16_t>(*lid), Qpn{*qpn}, Psn{*psn}, {}};
  for (std::size_t i = 0; i < address.gid.bytes.size(); ++i) {
    const auto byte = parse_hex(text.substr(19 + 2 * i, 2));
    if (!byte) return wrong;
    address.gid.bytes[i] = static_cast<std::uint8_t>(*byte);
  }
  return address;
}

std::string PingpongAddress::to_string() const {
  return fmt::format("LID 0x{:04x}, QPN 0x{:06x}, PSN 0x{:06x}, GID {}{}", lid, qpn.value(), psn.value(),
                     gid.is_ipv4() ? "::ffff:" : "", gid.to_string());
}

}  // namespace verbena::tools
