// SPDX-License-Identifier: Apache-2.0
// The RoCE packets of a capture file, for the tests of this layer: classic little-endian pcap,
// of Ethernet frames or of bare IP packets.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/byte_order.h"
#include "soft/wire/ip.h"

namespace verbena::wire::test {

inline std::vector<std::byte> read_file(const std::string& name) {
  std::ifstream file(std::string{VERBENA_TEST_DATA "/"} + name, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>{file}, {}};
  const auto bytes = std::as_bytes(std::span{chars});
  return {bytes.begin(), bytes.end()};
}

// The IP datagrams to or from UDP port 4791, without Ethernet headers; empty when the file cannot be read.
inline std::vector<std::vector<std::byte>> roce_datagrams(const std::string& name) {
  constexpr std::size_t kFileHeader = 24, kRecordHeader = 16;
  constexpr std::uint32_t kEthernet = 1;  // link type
  const std::vector<std::byte> file = read_file(name);
  std::vector<std::vector<std::byte>> datagrams;
  if (file.size() < kFileHeader) return datagrams;
  std::uint32_t link_type = 0;
  std::memcpy(&link_type, &file[20], sizeof link_type);
  const std::size_t link_header = link_type == kEthernet ? 14 : 0;
  std::size_t at = kFileHeader;
  while (at + kRecordHeader <= file.size()) {
    std::uint32_t captured = 0;
    std::memcpy(&captured, &file[at + 8], sizeof captured);
    at += kRecordHeader;
    if (captured > file.size() - at) break;
    const auto frame = std::span{file}.subspan(at, captured);
    at += captured;
    if (captured <= link_header) continue;
    IpDatagram ip;
    const auto bytes = frame.subspan(link_header);
    if (parse_ip(bytes, ip) != DropReason::None || ip.path.destination_port != kRocePort) continue;
    datagrams.emplace_back(bytes.begin(), bytes.end());
  }
  return datagrams;
}

}  // namespace verbena::wire::test
