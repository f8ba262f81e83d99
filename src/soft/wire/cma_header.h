// SPDX-License-Identifier: Apache-2.0
// How librdmacm's protocol names ports and addresses within CM (format reference 9.3).
//
//   Service id: port space (16 bits) above port (16 bits).
//
//   The first 36 bytes of the private data of REQ and SIDR_REQ:
//     0  version, 0
//     1  IP version (4 bits), 4 or 6 | reserved
//     2  source port (2)
//     4  source address (16); IPv4 in the last four bytes, twelve zeros before
//    20  destination address (16), likewise
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/cm_req.h"
#include "soft/wire/cm_sidr.h"
#include "verbena/base/gid.h"

namespace verbena::wire {

enum class PortSpace : std::uint16_t { IpOverIb = 0x0002, Tcp = 0x0106, Udp = 0x0111, Ib = 0x013f };

constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) {
  return std::uint64_t{static_cast<std::uint16_t>(space)} << 16 | port;
}
// The 48 bits above the port; equal to a PortSpace when the service is librdmacm's.
constexpr std::uint64_t service_id_space(std::uint64_t id) { return id >> 16; }
constexpr bool service_id_is_in(std::uint64_t id, PortSpace space) {
  return service_id_space(id) == static_cast<std::uint16_t>(space);
}
constexpr std::uint16_t service_id_port(std::uint64_t id) { return static_cast<std::uint16_t>(id); }

inline constexpr std::uint32_t kRdmaUdpQkey = 0x01234567;
inline constexpr std::size_t kCmaHeaderBytes = 36;

struct CmaHeader {
  std::uint8_t cma_version = 0;
  std::uint8_t ip_version = 4;  // 4 bits as received
  std::uint16_t source_port = 0;
  Gid source;  // as a GID: IPv4 mapped
  Gid destination;

  bool operator==(const CmaHeader&) const = default;
};

// False when version or IP version are none we know (C-11), or an IPv4 address does not stand behind twelve
// zeros.
bool parse_cma_header(std::span<const std::byte, kCmaHeaderBytes> from, CmaHeader& out);
// The addresses are of the family that ip_version names.
void emit(const CmaHeader& header, std::span<std::byte, kCmaHeaderBytes> to);

// The 36 bytes of the header and what is left to the user: 56 bytes of a REQ, 180 of a SIDR_REQ.
template <std::size_t N>
constexpr std::span<std::byte, kCmaHeaderBytes> cma_part(std::array<std::byte, N>& private_data) {
  static_assert(N > kCmaHeaderBytes);
  return std::span{private_data}.template first<kCmaHeaderBytes>();
}
template <std::size_t N>
constexpr std::span<const std::byte, kCmaHeaderBytes> cma_part(const std::array<std::byte, N>& private_data) {
  static_assert(N > kCmaHeaderBytes);
  return std::span{private_data}.template first<kCmaHeaderBytes>();
}
template <std::size_t N>
constexpr std::span<std::byte> user_part(std::array<std::byte, N>& private_data) {
  return std::span{private_data}.subspan(kCmaHeaderBytes);
}
template <std::size_t N>
constexpr std::span<const std::byte> user_part(const std::array<std::byte, N>& private_data) {
  return std::span{private_data}.subspan(kCmaHeaderBytes);
}

// Copies into the fixed size and fills with zeros. False, with nothing changed, when it does not fit (C-12).
[[nodiscard]] inline bool fill_private_data(std::span<std::byte> to, std::span<const std::byte> from) {
  if (from.size() > to.size()) return false;
  std::fill(std::copy(from.begin(), from.end(), to.begin()), to.end(), std::byte{0});
  return true;
}

}  // namespace verbena::wire
