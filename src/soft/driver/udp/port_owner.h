// SPDX-License-Identifier: Apache-2.0
// Who holds a UDP port, as far as this process may know. Reads /proc, never on the data path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/gid.h"

namespace verbena::soft::udp {

// One row of /proc/net/udp or udp6.
struct UdpSocketRow {
  Gid address;  // zero Gid or 0.0.0.0: the wildcard
  std::uint16_t port = 0;
  unsigned uid = 0;
  std::uint64_t inode = 0;

  bool is_wildcard() const { return address.is_zero() || address == Gid::from_ipv4(0, 0, 0, 0); }
};

// Rows of the table's text; lines that do not parse are left out.
std::vector<UdpSocketRow> parse_udp_table(std::string_view text);

// Sockets that have the port of that address, or of every address, whoever's they are; 0 where nobody says so.
std::size_t count_bound(const Gid& address, std::uint16_t port, const std::string& proc = "/proc");

// One clause: "UDP port 4791 on 127.0.0.1 is held by process 4711 (verbena) of user alice".
// When it is the kernel's Soft-RoCE (rxe), says so and how to make it let go.
// The roots stand in for /proc and /sys in tests.
std::string describe_port_owner(const Gid& address, std::uint16_t port, const std::string& proc = "/proc",
                                const std::string& sys = "/sys");

}  // namespace verbena::soft::udp
