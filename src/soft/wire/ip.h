// SPDX-License-Identifier: Apache-2.0
// Whole IP datagrams, as they appear in captures and in the simulator: IPv4 (no options) or IPv6, UDP,
// payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "soft/wire/packet.h"
#include "soft/wire/path.h"

namespace verbena::wire {

inline constexpr std::size_t kIpv4Bytes = 20;  // the headers
inline constexpr std::size_t kIpv6Bytes = 40;
inline constexpr std::size_t kUdpBytes = 8;

struct IpDatagram {
  Path path;
  std::uint16_t identification = 0;  // IPv4
  bool dont_fragment = true;
  std::uint16_t udp_checksum = 0;
  std::span<const std::byte> payload;  // UDP payload
};

// Checks version, header length, protocol, fragments, and that the UDP length is the IP payload length
// . Bytes after the IP datagram, as Ethernet pads with, are left aside. An IPv6 datagram with an
// address that is a mapped IPv4 one is refused: such a path would not be told from IPv4. Checksums are not
// judged here.
DropReason parse_ip(std::span<const std::byte> bytes, IpDatagram& out);

// The UDP checksum is absent (0) or right.
bool udp_checksum_holds(const IpDatagram& datagram);

// IP header, UDP header with a true checksum (as the kernel sends), payload. Appends to out.
// with_checksum = false writes UDP checksum 0, as rxe does. Both addresses of the path are of one family.
void append_ip(const Path& path, std::uint16_t identification, std::span<const std::byte> payload,
               bool with_checksum, std::vector<std::byte>& out);

}  // namespace verbena::wire
