// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cma_header.h"

#include <cstring>

#include "base/assert.h"
#include "base/byte_order.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kIpv4At = 12;  // within a 16-byte address

bool parse_address(const std::byte* from, bool ipv4, Gid& out) {
  std::memcpy(out.bytes.data(), from, out.bytes.size());
  if (!ipv4) return true;
  for (std::size_t i = 0; i < kIpv4At; ++i)
    if (out.bytes[i] != 0) return false;
  out.bytes[10] = out.bytes[11] = 0xff;
  return true;
}

void emit_address(const Gid& address, bool ipv4, std::byte* to) {
  VERBENA_ASSERT(address.is_ipv4() == ipv4);
  std::memcpy(to, address.bytes.data(), address.bytes.size());
  if (ipv4) std::memset(to, 0, kIpv4At);
}

}  // namespace

bool parse_cma_header(std::span<const std::byte, kCmaHeaderBytes> from, CmaHeader& out) {
  out.cma_version = load_u8(&from[0]);
  out.ip_version = static_cast<std::uint8_t>(load_u8(&from[1]) >> 4);
  out.source_port = load_be16(&from[2]);
  if (out.cma_version != 0 || (out.ip_version != 4 && out.ip_version != 6)) return false;  // C-11
  const bool ipv4 = out.ip_version == 4;
  if (!parse_address(&from[4], ipv4, out.source) || !parse_address(&from[20], ipv4, out.destination))
    return false;
  // A mapped address under IP version 6 would be taken for IPv4 from here on.
  return ipv4 || (!out.source.is_ipv4() && !out.destination.is_ipv4());
}

void emit(const CmaHeader& header, std::span<std::byte, kCmaHeaderBytes> to) {
  const bool ipv4 = header.ip_version == 4;
  store_u8(&to[0], header.cma_version);
  store_u8(&to[1], static_cast<std::uint8_t>(header.ip_version << 4));
  store_be16(&to[2], header.source_port);
  emit_address(header.source, ipv4, &to[4]);
  emit_address(header.destination, ipv4, &to[20]);
}

}  // namespace verbena::wire
