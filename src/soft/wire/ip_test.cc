// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/ip.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/byte_order.h"
#include "soft/wire/test_bytes.h"

namespace verbena::wire {
namespace {

std::vector<std::byte> example(const Path& path, std::size_t payload_bytes = 20) {
  std::vector<std::byte> bytes;
  append_ip(path, 77, std::vector<std::byte>(payload_bytes, std::byte{0x5a}), true, bytes);
  return bytes;
}

DropReason reason_after(std::vector<std::byte> bytes, std::size_t at, unsigned value) {
  bytes[at] = static_cast<std::byte>(value);
  IpDatagram out;
  return parse_ip(bytes, out);
}

TEST(Ip, what_is_appended_is_parsed_with_every_field) {
  SeededRandom random{1};
  for (int i = 0; i < 5000; ++i) {
    const Path path = test::random_path(random);
    const auto payload = test::random_bytes(random, random.below(300));
    const bool with_checksum = random.below(2) != 0;
    std::vector<std::byte> bytes(3);  // append_ip leaves what is there alone
    append_ip(path, 4321, payload, with_checksum, bytes);
    IpDatagram ip;
    ASSERT_EQ(parse_ip(std::span{bytes}.subspan(3), ip), DropReason::None);
    EXPECT_EQ(ip.path, path);
    EXPECT_EQ(ip.identification, path.is_ipv4() ? 4321 : 0);
    EXPECT_TRUE(ip.dont_fragment);
    EXPECT_EQ(ip.udp_checksum != 0, with_checksum);
    EXPECT_TRUE(udp_checksum_holds(ip));
    ASSERT_TRUE(std::equal(payload.begin(), payload.end(), ip.payload.begin(), ip.payload.end()));
  }
}

TEST(Ip, the_udp_checksum_finds_each_flipped_bit_of_the_payload) {
  const auto original = example(test::ipv6_path());
  for (std::size_t at = 48; at < original.size(); ++at) {
    auto bytes = original;
    bytes[at] ^= std::byte{0x10};
    IpDatagram ip;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    EXPECT_FALSE(udp_checksum_holds(ip));
  }
}

TEST(Ip, a_udp_checksum_that_comes_out_as_zero_is_sent_as_ones_since_zero_means_absent) {
  for (const Path& path : {test::ipv4_path(), test::ipv6_path()}) {
    std::vector<std::byte> payload(2), bytes;
    append_ip(path, 0, payload, true, bytes);
    IpDatagram ip;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    store_be16(payload.data(), ip.udp_checksum);  // fills the sum up to all ones
    bytes.clear();
    append_ip(path, 0, payload, true, bytes);
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    EXPECT_EQ(ip.udp_checksum, 0xffff);
    EXPECT_TRUE(udp_checksum_holds(ip));
  }
}

TEST(Ip, the_ipv4_header_checksum_sums_up) {
  const auto bytes = example(test::ipv4_path());
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < 20; i += 2) sum += load_be16(&bytes[i]);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
}

TEST(Ip, R005_a_udp_length_other_than_the_ip_payload_length_is_dropped) {
  for (const Path& path : {test::ipv4_path(), test::ipv6_path()}) {
    const std::size_t at = path.is_ipv4() ? 24 : 44;
    for (unsigned length = 0; length < 65536; ++length) {
      auto bytes = example(path);
      store_be16(&bytes[at], static_cast<std::uint16_t>(length));
      IpDatagram ip;
      ASSERT_EQ(parse_ip(bytes, ip), length == 28 ? DropReason::None : DropReason::UdpLength);
    }
  }
}

TEST(Ip, an_ip_payload_without_room_for_udp_is_dropped) {
  for (std::size_t total = 0; total < 28; ++total) {
    auto bytes = example(test::ipv4_path());
    store_be16(&bytes[2], static_cast<std::uint16_t>(total));
    IpDatagram ip;
    EXPECT_EQ(parse_ip(bytes, ip), total < 20 ? DropReason::IpHeader : DropReason::UdpLength);
  }
}

TEST(Ip, a_cut_off_datagram_is_dropped_at_every_length) {
  for (const Path& path : {test::ipv4_path(), test::ipv6_path()}) {
    const auto bytes = example(path);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      IpDatagram ip;
      EXPECT_EQ(parse_ip(cut, ip), DropReason::IpHeader);
    }
  }
}

TEST(Ip, bytes_behind_the_datagram_are_left_aside) {
  auto bytes = example(test::ipv4_path());
  bytes.resize(bytes.size() + 6);
  IpDatagram ip;
  ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
  EXPECT_EQ(ip.payload.size(), 20u);
}

TEST(Ip, options_other_protocols_and_fragments_are_dropped) {
  const auto v4 = example(test::ipv4_path());
  EXPECT_EQ(reason_after(v4, 0, 0x46), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 0, 0x44), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 0, 0x55), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 9, 6), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 6, 0x20), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 6, 0x80), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 7, 1), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v4, 6, 0x00), DropReason::None);
  const auto v6 = example(test::ipv6_path());
  EXPECT_EQ(reason_after(v6, 6, 44), DropReason::IpHeader);
  EXPECT_EQ(reason_after(v6, 6, 0), DropReason::IpHeader);
}

TEST(Ip, an_ipv6_datagram_from_a_mapped_ipv4_address_is_dropped) {
  const Gid mapped = Gid::from_ipv4(192, 0, 2, 1);
  for (const std::size_t at : {8u, 24u}) {
    auto bytes = example(test::ipv6_path());
    for (std::size_t i = 0; i < 16; ++i) bytes[at + i] = static_cast<std::byte>(mapped.bytes[i]);
    IpDatagram ip;
    EXPECT_EQ(parse_ip(bytes, ip), DropReason::IpHeader);
  }
}

}  // namespace
}  // namespace verbena::wire
