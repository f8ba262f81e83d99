// SPDX-License-Identifier: Apache-2.0
// Writes capture files that Wireshark reads (pcapng): bytes are appended to a vector, where they go is the
// caller's affair.
//
//   begin()                    packet()
//   +----------------------+   +----------------------------------+
//   | section header       |   | enhanced packet: time stamp,     |
//   +----------------------+   | lengths, bytes padded to four,   |
//   | interface: link type,|   | direction, comment               |
//   | name, nanoseconds    |   +----------------------------------+
//   +----------------------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::wire {

class PcapngWriter {
 public:
  // What the packets begin with. The values are those of the file format.
  enum class Link : std::uint16_t { Ethernet = 1, RawIp = 101 };
  enum class Direction : std::uint8_t { Unknown = 0, Inbound = 1, Outbound = 2 };

  PcapngWriter(std::string_view interface_name, Link link) : interface_name_(interface_name), link_(link) {}

  // Once, before the first packet: section header and the one interface.
  void begin(std::vector<std::byte>& out) const;
  // unix_ns: nanoseconds since 1970. A comment is shown beside the packet; empty: none. At most 65,535 bytes
  // of it are kept.
  void packet(std::uint64_t unix_ns, std::span<const std::byte> bytes, Direction direction,
              std::vector<std::byte>& out, std::string_view comment = {}) const;

 private:
  std::string interface_name_;
  Link link_;
};

}  // namespace verbena::wire
