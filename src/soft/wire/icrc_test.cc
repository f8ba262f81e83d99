// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/icrc.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/byte_order.h"
#include "soft/wire/test_bytes.h"

namespace verbena::wire {
namespace {

// One bit after the other, over a whole IP datagram without its ICRC, as format reference 3.1 puts it.
std::uint32_t slow_icrc(std::vector<std::byte> ip) {
  const bool ipv4 = load_u8(ip.data()) >> 4 == 4;
  const std::size_t udp = ipv4 ? 20 : 40;
  const auto mask = [&ip](std::size_t at, unsigned bits) { ip[at] |= static_cast<std::byte>(bits); };
  if (ipv4) {
    for (const std::size_t at : {1u, 8u, 10u, 11u}) mask(at, 0xff);
  } else {
    mask(0, 0x0f);
    for (const std::size_t at : {1u, 2u, 3u, 7u}) mask(at, 0xff);
  }
  mask(udp + 6, 0xff);
  mask(udp + 7, 0xff);
  mask(udp + 8 + 4, 0xff);
  ip.insert(ip.begin(), 8, std::byte{0xff});
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : ip) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

std::vector<std::byte> datagram_with_icrc(const Path& path, std::uint16_t identification,
                                          std::vector<std::byte> bytes) {
  const std::span<const std::byte> covered = std::span{bytes}.first(bytes.size() - kIcrcBytes);
  store_icrc(bytes.data() + covered.size(), icrc_of(path, identification, covered));
  return bytes;
}

TEST(Icrc, agrees_with_the_definition_on_random_datagrams) {
  SeededRandom random{1};
  for (int i = 0; i < 2000; ++i) {
    const Path path = test::random_path(random);
    const auto identification = static_cast<std::uint16_t>(random.next_u64());
    const std::vector<std::byte> datagram =
        datagram_with_icrc(path, identification, test::random_bytes(random, 16 + random.below(300)));
    std::vector<std::byte> ip;
    append_ip(path, identification, datagram, true, ip);
    const std::uint32_t sent = load_icrc(datagram.data() + datagram.size() - kIcrcBytes);
    ip.resize(ip.size() - kIcrcBytes);
    ASSERT_EQ(sent, slow_icrc(ip));
  }
}

TEST(Icrc, of_datagrams_that_differ_in_length_is_that_of_each_by_itself) {
  SeededRandom random{4};
  const std::vector<std::byte> bytes = test::random_bytes(random, 64);
  const std::span<const std::byte> all{bytes};
  for (const Path& path : {test::ipv4_path(), test::ipv6_path()}) {
    IcrcStart start(path);
    for (const std::size_t size : {20u, 20u, 64u, 20u, 12u, 64u})
      EXPECT_EQ(start.over(7, size + kIcrcBytes, all.first(size)), icrc_of(path, 7, all.first(size))) << size;
  }
}

TEST(Icrc, does_not_depend_on_how_the_bytes_are_cut) {
  SeededRandom random{2};
  const std::vector<std::byte> bytes = test::random_bytes(random, 300);
  const std::span<const std::byte> all{bytes};
  const Path path = test::ipv4_path();
  IcrcStart start(path);
  const std::uint32_t whole = start.over(7, 304, all);
  for (std::size_t cut = kBthBytes; cut <= bytes.size(); ++cut)
    ASSERT_EQ(icrc_extend(start.over(7, 304, all.first(cut)), all.subspan(cut)), whole);
}

bool is_masked(std::size_t at, unsigned bit, bool ipv4) {
  const std::size_t udp = ipv4 ? 20 : 40;
  if (at == udp + 6 || at == udp + 7 || at == udp + 12) return true;
  if (ipv4) return at == 1 || at == 8 || at == 10 || at == 11;
  return (at == 0 && bit < 4) || (at >= 1 && at <= 3) || at == 7;
}

TEST(Icrc, R006_every_flipped_bit_is_detected_but_those_of_masked_fields_which_are_accepted) {
  IcrcVerifier verifier;
  for (const test::GoldenPacket& golden : test::kGoldenPackets) {
    const std::vector<std::byte> original = test::from_hex(golden.ip);
    const bool ipv4 = load_u8(original.data()) >> 4 == 4;
    for (std::size_t at = 0; at < original.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        std::vector<std::byte> bytes = original;
        bytes[at] ^= static_cast<std::byte>(1u << bit);
        IpDatagram ip;
        const bool accepted = parse_ip(bytes, ip) == DropReason::None &&
                              verifier.check(ip.path, ip.identification, ip.payload, nullptr,
                                             ip.dont_fragment) == IcrcVerdict::Exact;
        ASSERT_EQ(accepted, is_masked(at, bit, ipv4)) << golden.name << " byte " << at << " bit " << bit;
      }
    }
  }
}

TEST(Icrc, every_identification_is_solved_for_at_every_kind_of_length) {
  SeededRandom random{3};
  IcrcVerifier verifier;
  const Path path = test::ipv4_path();
  for (const std::size_t size : {16u, 17u, 20u, 53u, 276u, 1052u, 4156u, 4223u}) {
    std::vector<std::byte> datagram = test::random_bytes(random, size);
    for (unsigned id = 0; id < 65536; ++id) {
      datagram = datagram_with_icrc(path, static_cast<std::uint16_t>(id), std::move(datagram));
      std::uint16_t found = 1;
      const IcrcVerdict verdict = verifier.check(path, std::nullopt, datagram, &found);
      ASSERT_EQ(verdict, id == 0 ? IcrcVerdict::Exact : IcrcVerdict::Solved) << size << " " << id;
      ASSERT_EQ(found, id);
    }
  }
}

TEST(Icrc, a_likely_identification_is_checked_in_full) {
  SeededRandom random{8};
  IcrcVerifier verifier;
  const Path path = test::ipv4_path();
  for (unsigned i = 0; i < 300; ++i) {
    const auto id = static_cast<std::uint16_t>(i % 100);
    auto datagram = datagram_with_icrc(path, id, test::random_bytes(random, 64 + i % 7));
    std::uint16_t found = 1;
    EXPECT_EQ(verifier.check(path, std::nullopt, datagram, &found, true, id), IcrcVerdict::Exact);
    EXPECT_EQ(found, id);
    if (id > 0) {
      EXPECT_EQ(verifier.check(path, std::nullopt, datagram, &found), IcrcVerdict::Solved);
    }
    EXPECT_EQ(found, id);
    datagram[40] ^= std::byte{4};
    EXPECT_EQ(verifier.check(path, id, datagram, nullptr), IcrcVerdict::Bad);
  }
}

TEST(Icrc, a_known_identification_is_taken_at_its_word) {
  SeededRandom random{4};
  IcrcVerifier verifier;
  const Path path = test::ipv4_path();
  const auto datagram = datagram_with_icrc(path, 4711, test::random_bytes(random, 100));
  std::uint16_t found = 0;
  EXPECT_EQ(verifier.check(path, 4711, datagram, &found), IcrcVerdict::Exact);
  EXPECT_EQ(found, 4711);
  EXPECT_EQ(verifier.check(path, 4712, datagram, &found), IcrcVerdict::Bad);
  EXPECT_EQ(verifier.check(path, 0, datagram, &found), IcrcVerdict::Bad);
}

TEST(Icrc, ipv6_has_no_identification_and_is_always_checked_in_full) {
  SeededRandom random{5};
  IcrcVerifier verifier;
  const Path path = test::ipv6_path();
  auto datagram = datagram_with_icrc(path, 4711, test::random_bytes(random, 100));
  std::uint16_t found = 1;
  EXPECT_EQ(verifier.check(path, std::nullopt, datagram, &found), IcrcVerdict::Exact);
  EXPECT_EQ(found, 0);
  EXPECT_EQ(verifier.check(path, 99, datagram, nullptr), IcrcVerdict::Exact);
  datagram[50] ^= std::byte{1};
  EXPECT_EQ(verifier.check(path, std::nullopt, datagram, nullptr), IcrcVerdict::Bad);
}

// Sixteen bits are left to check when the identification is hidden: noise passes once in 65,536 times.
TEST(Icrc, a_hidden_identification_explains_almost_no_corruption) {
  SeededRandom random{6};
  IcrcVerifier verifier;
  const Path path = test::ipv4_path();
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto datagram = datagram_with_icrc(path, static_cast<std::uint16_t>(i), test::random_bytes(random, 64));
    for (int damaged = 0; damaged < 6; ++damaged) {
      const std::uint64_t at = random.below(datagram.size());
      if (at != 4) datagram[at] ^= static_cast<std::byte>(1 + random.below(255));
    }
    accepted += verifier.check(path, std::nullopt, datagram, nullptr) != IcrcVerdict::Bad ? 1 : 0;
  }
  EXPECT_LE(accepted, 4);
}

TEST(Icrc, what_is_too_short_or_too_long_to_be_a_packet_is_bad) {
  SeededRandom random{7};
  IcrcVerifier verifier;
  const Path path = test::ipv4_path();
  for (std::size_t size = 0; size < 16; ++size)
    EXPECT_EQ(verifier.check(path, std::nullopt, test::random_bytes(random, size), nullptr),
              IcrcVerdict::Bad);
  const auto longest = datagram_with_icrc(path, 9, test::random_bytes(random, 65507));
  EXPECT_EQ(verifier.check(path, std::nullopt, longest, nullptr), IcrcVerdict::Bad);
  EXPECT_EQ(verifier.check(path, 9, longest, nullptr), IcrcVerdict::Exact);
}

TEST(Icrc, is_stored_least_significant_byte_first) {
  std::array<std::byte, 4> bytes;
  store_icrc(bytes.data(), 0x01020304);
  EXPECT_EQ(load_u8(&bytes[0]), 4);
  EXPECT_EQ(load_u8(&bytes[3]), 1);
  EXPECT_EQ(load_icrc(bytes.data()), 0x01020304u);
}

}  // namespace
}  // namespace verbena::wire
