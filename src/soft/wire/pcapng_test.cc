// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/pcapng.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "soft/wire/test_bytes.h"

namespace verbena::wire {
namespace {

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

TEST(Pcapng, begins_with_section_header_and_interface) {
  std::vector<std::byte> out;
  PcapngWriter{"verbena0", PcapngWriter::Link::RawIp}.begin(out);
  EXPECT_EQ(to_hex(out),
            "0a0d0d0a2c000000"                  // section header, 44 bytes
            "4d3c2b1a01000000ffffffffffffffff"  // byte order, version 1.0, length not told
            "0400070056657262656e6100"          // written by
            "000000002c000000"                  // end
            "010000002c000000"                  // interface, 44 bytes
            "6500000000000000"                  // raw IP, not cut
            "0200080076657262656e6130"          // name
            "0900010009000000"                  // nanoseconds
            "000000002c000000");
}

TEST(Pcapng, a_packet_has_time_bytes_direction_and_comment) {
  const auto bytes = test::from_hex("45deadbeef");
  std::vector<std::byte> out{std::byte{0x77}};  // what is there stays
  PcapngWriter{"v", PcapngWriter::Link::RawIp}.packet(0x0102030405060708, bytes,
                                                      PcapngWriter::Direction::Outbound, out, "lost");
  EXPECT_EQ(to_hex(out),
            "77"
            "060000003c000000"          // packet, 60 bytes
            "000000000403020108070605"  // interface, time
            "0500000005000000"          // captured, on the wire
            "45deadbeef000000"
            "0200040002000000"  // outbound
            "010004006c6f7374"  // comment
            "000000003c000000");
}

TEST(Pcapng, a_packet_without_direction_and_comment_has_no_options) {
  std::vector<std::byte> out;
  PcapngWriter{"v", PcapngWriter::Link::Ethernet}.packet(1, test::from_hex("01020304"),
                                                         PcapngWriter::Direction::Unknown, out);
  EXPECT_EQ(to_hex(out),
            "0600000024000000000000000000000001000000040000000400000001020304"
            "24000000");
}

TEST(Pcapng, every_block_is_a_multiple_of_four_and_names_its_length_twice) {
  const PcapngWriter writer{"name of an interface", PcapngWriter::Link::Ethernet};
  SeededRandom random{1};
  std::vector<std::byte> out;
  writer.begin(out);
  for (std::size_t size = 0; size < 100; ++size)
    writer.packet(size, test::random_bytes(random, size), PcapngWriter::Direction::Inbound, out,
                  std::string(random.below(9), 'x'));
  std::size_t at = 0;
  int blocks = 0;
  const auto word = [&out](std::size_t where) {
    std::uint32_t value = 0;
    std::memcpy(&value, out.data() + where, sizeof value);
    return value;
  };
  for (; at + 12 <= out.size(); at += word(at + 4), ++blocks) {
    ASSERT_EQ(word(at + 4) % 4, 0u);
    ASSERT_LE(word(at + 4), out.size() - at);
    ASSERT_EQ(word(at + word(at + 4) - 4), word(at + 4));
  }
  EXPECT_EQ(at, out.size());
  EXPECT_EQ(blocks, 102);
}

}  // namespace
}  // namespace verbena::wire
