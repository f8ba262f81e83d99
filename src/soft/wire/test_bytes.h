// SPDX-License-Identifier: Apache-2.0
// Bytes for the tests of this layer: from hexadecimal text, and the packets everybody agrees on (format
// reference 3.4).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "soft/wire/ip.h"
#include "soft/wire/packet.h"

namespace verbena::wire::test {

inline std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

struct GoldenPacket {
  std::string_view name;
  std::string_view ip;  // the whole IP datagram
  std::string_view text;
};

// The CNP comes from a ConnectX-4 Lx; the others were made with a bit-serial CRC and checked with another
// library.
inline constexpr std::array<GoldenPacket, 8> kGoldenPackets{{
    {"CNP",
     "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff400001180000000000000000000000000000000"
     "00000000082"
     "fd002a",
     "CNP qpn 0x000118 psn 0x000000 becn"},
    {"SEND Only, IPv4",
     "45000034000040004011b6b5c0000201c0000202c12312b7002000000430ffff000000128000000168656c6c6f0000007dbacd7"
     "2",
     "RC SEND Only qpn 0x000012 psn 0x000001 ackreq, 5 B"},
    {"WRITE Only with Immediate",
     "45000044000040004011b6a5c0000201c0000202c12312b7003000000b80ffff000000128000fffe1122334455667788deadbee"
     "f00000004"
     "cafef00d4441544173ea9eba",
     "RC WRITE Only with Immediate qpn 0x000012 psn 0x00fffe ackreq solicited va 0x1122334455667788 rkey "
     "0xdeadbeef "
     "len 4 imm 0xcafef00d, 4 B"},
    {"READ Request",
     "4500003c000040004011b6adc0000201c0000202c12312b7002800000c00ffff0000001280ffffff00007f00000010000102030"
     "400002000"
     "4aeca0fa",
     "RC READ Request qpn 0x000012 psn 0xffffff ackreq va 0x7f0000001000 rkey 0x1020304 len 8192"},
    {"Acknowledge",
     "45000030000040004011b6b9c0000201c0000202c12312b7001c00001100ffff00000034000000011f000007bcb4af49",
     "RC Acknowledge qpn 0x000034 psn 0x000001 ack msn 7"},
    {"Fetch Add",
     "45000048000040004011b6a1c0000201c0000202c12312b7003400001400ffff000000128000000200007f00000020000102030"
     "400000000"
     "00000001000000000000000006c85b37",
     "RC Fetch Add qpn 0x000012 psn 0x000002 ackreq va 0x7f0000002000 rkey 0x1020304 add 0x1"},
    {"SEND Only, IPv6",
     "600000000020114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002000000430fff"
     "f0000001280"
     "00000168656c6c6f000000a9daf4b1",
     "RC SEND Only qpn 0x000012 psn 0x000001 ackreq, 5 B"},
    {"UD SEND Only, IPv6",
     "600000000024114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002400006400fff"
     "f0000005600"
     "000009111111110000007870696e67cfd7cca6",
     "UD SEND Only qpn 0x000056 psn 0x000009 qkey 0x11111111 from 0x000078, 4 B"},
}};

inline Path ipv4_path() {
  Path path;
  path.source = Gid::from_ipv4(192, 0, 2, 1);
  path.destination = Gid::from_ipv4(192, 0, 2, 2);
  path.source_port = 0xc123;
  return path;
}

inline Path ipv6_path() {
  Path path;
  path.source = Gid{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  path.destination = Gid{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  path.source_port = 0xc123;
  return path;
}

inline Path random_path(RandomSource& random) {
  Path path = random.below(2) == 0 ? ipv4_path() : ipv6_path();
  for (std::size_t i = 12; i < 16; ++i) {
    path.source.bytes[i] = static_cast<std::uint8_t>(random.next_u64());
    path.destination.bytes[i] = static_cast<std::uint8_t>(random.next_u64());
  }
  path.source_port = static_cast<std::uint16_t>(random.next_u64());
  path.traffic_class = static_cast<std::uint8_t>(random.next_u64());
  path.hop_limit = static_cast<std::uint8_t>(random.next_u64());
  if (!path.is_ipv4()) path.flow_label = random.next_u32() & 0xfffff;
  return path;
}

inline std::vector<std::byte> random_bytes(RandomSource& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u64() & 0xff);
  return bytes;
}

}  // namespace verbena::wire::test
