// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/packet.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/byte_order.h"
#include "soft/wire/icrc.h"
#include "soft/wire/test_bytes.h"

namespace verbena::wire {
namespace {

using test::GoldenPacket;

// A datagram of zeros in a heap block of exactly its size, so that a read beyond it is found.
struct ExactDatagram {
  ExactDatagram(unsigned opcode, unsigned pad, std::size_t size) : bytes(new std::byte[size]), count(size) {
    for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte{0};
    if (size > 0) bytes[0] = static_cast<std::byte>(opcode);
    if (size > 1) bytes[1] = static_cast<std::byte>(0x40 | pad << 4);
  }
  std::span<const std::byte> span() const { return {bytes.get(), count}; }

  std::unique_ptr<std::byte[]> bytes;
  std::size_t count;
};

DropReason parse_sized(Opcode opcode, unsigned pad, std::size_t payload_and_pad) {
  const auto code = static_cast<unsigned>(opcode);
  const std::size_t size = opcode_info(opcode).header_bytes + payload_and_pad + kIcrcBytes;
  Packet packet;
  return parse(ExactDatagram{code, pad, size}.span(), packet);
}

bool obeys(Opcode opcode, std::size_t payload, std::size_t path_mtu, int pad = -1) {
  const std::vector<std::byte> bytes(payload);
  Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.pad_count = pad < 0 ? pad_count_for(payload) : static_cast<std::uint8_t>(pad);
  packet.payload = bytes;
  return payload_obeys(packet, path_mtu);
}

void expect_same(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.bth, b.bth);
  EXPECT_EQ(a.reth, b.reth);
  EXPECT_EQ(a.atomic, b.atomic);
  EXPECT_EQ(a.aeth, b.aeth);
  EXPECT_EQ(a.atomic_original, b.atomic_original);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.invalidate, b.invalidate);
  EXPECT_EQ(a.deth, b.deth);
  EXPECT_EQ(a.feth, b.feth);
  EXPECT_EQ(a.xrceth, b.xrceth);
  ASSERT_EQ(a.payload.size(), b.payload.size());
  EXPECT_TRUE(std::equal(a.payload.begin(), a.payload.end(), b.payload.begin()));
}

class GoldenPackets : public testing::TestWithParam<GoldenPacket> {};

TEST_P(GoldenPackets, is_parsed_printed_and_emitted_again_byte_for_byte) {
  const std::vector<std::byte> bytes = test::from_hex(GetParam().ip);
  IpDatagram ip;
  ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
  Packet packet;
  ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
  EXPECT_EQ(to_string(packet), GetParam().text);

  std::vector<std::byte> again(datagram_bytes(packet));
  EXPECT_EQ(emit(packet, ip.path, ip.identification, again), again.size());
  EXPECT_TRUE(std::equal(again.begin(), again.end(), ip.payload.begin(), ip.payload.end()));

  std::vector<std::byte> whole;
  append_ip(ip.path, ip.identification, again, false, whole);
  EXPECT_EQ(whole, bytes);
}

INSTANTIATE_TEST_SUITE_P(Reference, GoldenPackets, testing::ValuesIn(test::kGoldenPackets),
                         [](const auto& tested) { return std::to_string(tested.index); });

TEST(Packet, the_unreliable_send_of_a_public_capture_has_its_icrc) {
  const std::vector<std::byte> payload = test::from_hex("4630818be28935d90e9a95505401be885e50");
  Path path;
  path.source = path.destination = Gid::from_ipv4(192, 168, 0, 7);
  path.source_port = 49152;
  Packet packet;
  packet.bth.opcode = static_cast<Opcode>(0x24);
  packet.bth.pad_count = 2;
  packet.bth.destination = Qpn{211};
  packet.bth.psn = Psn{13571856};
  packet.payload = payload;
  std::vector<std::byte> out(datagram_bytes(packet));
  emit(packet, path, 1144, out);
  EXPECT_EQ(std::vector<std::byte>(out.end() - 4, out.end()), test::from_hex("78f353f3"));
}

TEST(Packet, R001_a_datagram_shorter_than_bth_and_icrc_is_dropped) {
  for (std::size_t size = 0; size < 16; ++size) {
    Packet packet;
    EXPECT_EQ(parse(ExactDatagram{0x04, 0, size}.span(), packet), DropReason::TooShort);
  }
  Packet packet;
  EXPECT_EQ(parse(ExactDatagram{0x04, 0, 16}.span(), packet), DropReason::None);
}

TEST(Packet, R002_a_transport_version_other_than_0_is_dropped) {
  for (unsigned version = 0; version < 16; ++version) {
    const ExactDatagram datagram{0x04, 0, 16};
    datagram.bytes[1] = static_cast<std::byte>(version);
    Packet packet;
    EXPECT_EQ(parse(datagram.span(), packet), version == 0 ? DropReason::None : DropReason::BadVersion);
  }
}

// for everything that can be asked: the outcome is what plain arithmetic says, whatever the
// opcode.
TEST(Packet, R004_no_opcode_pad_and_length_reads_beyond_the_datagram) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
    for (unsigned pad = 0; pad < 4; ++pad) {
      for (std::size_t size = 0; size <= 200; ++size) {
        const ExactDatagram datagram{opcode, pad, size};
        Packet packet;
        const DropReason reason = parse(datagram.span(), packet);
        if (size < 16) {
          ASSERT_EQ(reason, DropReason::TooShort);
        } else if (!info.known) {
          ASSERT_EQ(reason, DropReason::UnknownOpcode);
        } else if (size < info.header_bytes + pad + 4u) {
          ASSERT_EQ(reason, DropReason::Truncated);
        } else if (reason == DropReason::None) {
          ASSERT_EQ(info.header_bytes + packet.payload.size() + pad + 4u, size);
          ASSERT_FALSE(to_string(packet).empty());
        } else {
          ASSERT_EQ(reason, DropReason::BadLength);
          ASSERT_TRUE(!info.request || info.transport == Transport::Ud) << info.name;
        }
      }
    }
  }
}

TEST(Packet, R013_reserved_bits_are_ignored_and_kept) {
  const ExactDatagram datagram{0x64, 0, 24};
  datagram.bytes[4] = std::byte{0xff};
  datagram.bytes[8] = std::byte{0xff};
  datagram.bytes[16] = std::byte{0xff};  // DETH
  Packet packet;
  ASSERT_EQ(parse(datagram.span(), packet), DropReason::None);
  EXPECT_TRUE(packet.bth.fecn && packet.bth.becn && packet.bth.ack_request);
  std::array<std::byte, kMaxHeaderBytes> headers;
  ASSERT_EQ(emit_headers(packet, headers), 20u);
  EXPECT_EQ(std::memcmp(headers.data(), datagram.bytes.get(), 20), 0);
}

TEST(Packet, R050_first_and_middle_carry_exactly_the_path_mtu) {
  for (const Opcode opcode :
       {Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcWriteFirst, Opcode::RcWriteMiddle,
        Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle}) {
    EXPECT_TRUE(obeys(opcode, 1024, 1024));
    for (const std::size_t bytes : {0u, 1u, 1020u, 1023u, 1025u, 1028u, 2048u})
      EXPECT_FALSE(obeys(opcode, bytes, 1024));
  }
}

TEST(Packet, R051_last_carries_1_byte_to_the_path_mtu) {
  for (const Opcode opcode :
       {Opcode::RcSendLast, Opcode::RcSendLastWithImmediate, Opcode::RcSendLastWithInvalidate,
        Opcode::RcWriteLast, Opcode::RcWriteLastWithImmediate, Opcode::RcReadResponseLast}) {
    for (const std::size_t bytes : {1u, 2u, 1023u, 1024u}) EXPECT_TRUE(obeys(opcode, bytes, 1024));
    for (const std::size_t bytes : {0u, 1025u, 2048u}) EXPECT_FALSE(obeys(opcode, bytes, 1024));
  }
}

TEST(Packet, R052_only_carries_0_bytes_to_the_path_mtu) {
  for (const Opcode opcode :
       {Opcode::RcSendOnly, Opcode::RcSendOnlyWithImmediate, Opcode::RcSendOnlyWithInvalidate,
        Opcode::RcWriteOnly, Opcode::RcWriteOnlyWithImmediate, Opcode::RcReadResponseOnly, Opcode::UdSendOnly,
        Opcode::UdSendOnlyWithImmediate}) {
    for (const std::size_t bytes : {0u, 1u, 1023u, 1024u}) EXPECT_TRUE(obeys(opcode, bytes, 1024));
    for (const std::size_t bytes : {1025u, 2048u}) EXPECT_FALSE(obeys(opcode, bytes, 1024));
  }
}

TEST(Packet, R055_reads_atomics_acknowledges_and_flushes_carry_nothing) {
  for (const Opcode opcode :
       {Opcode::RcReadRequest, Opcode::RcCompareSwap, Opcode::RcFetchAdd, Opcode::RcAcknowledge,
        Opcode::RcAtomicAcknowledge, Opcode::RcFlush, Opcode::Cnp}) {
    EXPECT_TRUE(obeys(opcode, 0, 1024));
    EXPECT_FALSE(obeys(opcode, 4, 1024));
  }
}

TEST(Packet, R056_the_pad_fills_up_to_four_bytes_and_no_more) {
  for (std::size_t bytes = 1; bytes <= 8; ++bytes)
    for (int pad = 0; pad < 4; ++pad)
      EXPECT_EQ(obeys(Opcode::RcSendOnly, bytes, 1024, pad),
                (bytes + static_cast<std::size_t>(pad)) % 4 == 0);
  EXPECT_FALSE(obeys(Opcode::RcSendFirst, 1024, 1024, 1));
  EXPECT_FALSE(obeys(Opcode::RcReadRequest, 0, 1024, 3));
}

TEST(Packet, R057_an_atomic_write_carries_exactly_8_bytes) {
  EXPECT_TRUE(obeys(Opcode::RcAtomicWrite, 8, 1024));
  for (const std::size_t bytes : {0u, 4u, 7u, 9u, 12u, 1024u})
    EXPECT_FALSE(obeys(Opcode::RcAtomicWrite, bytes, 1024));
}

TEST(Packet, a_connected_request_with_a_wrong_payload_is_returned_so_that_it_can_be_answered) {
  EXPECT_EQ(parse_sized(Opcode::RcReadRequest, 0, 4), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcSendOnly, 3, 4), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcSendOnly, 0, 5), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcSendLast, 0, 0), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcAtomicWrite, 0, 0), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcWriteOnly, 0, 8192), DropReason::None);
  EXPECT_EQ(parse_sized(static_cast<Opcode>(0x22), 0, 0), DropReason::None);
  EXPECT_EQ(parse_sized(static_cast<Opcode>(0xa2), 0, 0), DropReason::None);
}

TEST(Packet, a_response_or_datagram_with_a_wrong_payload_is_dropped) {
  EXPECT_EQ(parse_sized(Opcode::RcAcknowledge, 0, 4), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcAcknowledge, 2, 2), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcAtomicAcknowledge, 0, 8), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseOnly, 1, 4), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseOnly, 2, 4 + 1), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseLast, 0, 0), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseMiddle, 0, 0), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseMiddle, 2, 1024), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseMiddle, 0, 4096), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::RcReadResponseMiddle, 0, 4100), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::UdSendOnly, 0, 4096), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::UdSendOnly, 0, 4100), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::UdSendOnly, 0, 3), DropReason::BadLength);
  EXPECT_EQ(parse_sized(Opcode::Cnp, 0, 0), DropReason::None);
  EXPECT_EQ(parse_sized(Opcode::Cnp, 0, 4), DropReason::BadLength);
}

// A packet that keeps the rules, with every field that its headers have at random.
Packet random_packet(RandomSource& random, std::span<const std::byte> bytes) {
  Packet packet;
  do {
    packet.bth.opcode = static_cast<Opcode>(random.below(256));
  } while (!packet.info().known);
  const OpcodeInfo& info = packet.info();
  const auto r8 = [&random] { return static_cast<std::uint8_t>(random.next_u64()); };
  std::size_t size = 0;
  if (info.payload == PayloadRule::Full) size = std::size_t{256} << random.below(2);
  if (info.payload == PayloadRule::NonEmpty) size = 1 + random.below(256);
  if (info.payload == PayloadRule::Any) size = random.below(257);
  if (info.payload == PayloadRule::Eight) size = 8;
  if (size > 200 && random.below(100) == 0 && info.payload != PayloadRule::Eight) size = kMaxPathMtu;
  packet.payload = bytes.first(size);
  packet.bth.solicited = random.below(2) != 0;
  packet.bth.migrated = random.below(2) != 0;
  packet.bth.pad_count = pad_count_for(size);
  packet.bth.pkey = static_cast<std::uint16_t>(random.next_u64());
  packet.bth.fecn = random.below(2) != 0;
  packet.bth.becn = random.below(2) != 0;
  packet.bth.reserved_byte4 = r8() & 0x3f;
  packet.bth.destination = Qpn{random.next_u32()};
  packet.bth.ack_request = random.below(2) != 0;
  packet.bth.reserved_byte8 = r8() & 0x7f;
  packet.bth.psn = Psn{random.next_u32()};
  if (info.has(kDeth)) packet.deth = {random.next_u32(), r8(), Qpn{random.next_u32()}};
  if (info.has(kXrceth)) packet.xrceth = random.next_u32();
  if (info.has(kFeth)) packet.feth = {random.next_u32()};
  if (info.has(kReth)) packet.reth = {random.next_u64(), RKey{random.next_u32()}, random.next_u32()};
  if (info.has(kAtomicEth))
    packet.atomic = {random.next_u64(), RKey{random.next_u32()}, random.next_u64(), random.next_u64()};
  if (info.has(kAeth)) packet.aeth = {r8(), random.next_u32() & 0xffffff};
  if (info.has(kAtomicAckEth)) packet.atomic_original = random.next_u64();
  if (info.has(kImmDt)) store_be32(packet.immediate.data(), random.next_u32());
  if (info.has(kIeth)) packet.invalidate = RKey{random.next_u32()};
  return packet;
}

TEST(Packet, the_next_header_differs_by_the_following_number) {
  Bth bth;
  bth.opcode = Opcode::RcWriteMiddle;
  bth.solicited = bth.ack_request = true;
  bth.pad_count = 3;
  bth.pkey = 0x8123;
  bth.reserved_byte8 = 0x55;
  bth.destination = Qpn{0xabcdef};
  std::array<std::byte, kBthBytes> last, next;
  for (const std::uint32_t number : {0u, 0x7fffffu, 0xffffffu}) {
    bth.psn = Psn{number};
    emit_bth(bth, last);
    emit_next_bth(last, next);
    Bth parsed;
    ASSERT_EQ(parse_bth(next, parsed), DropReason::None);
    ++bth.psn;
    EXPECT_EQ(parsed, bth) << number;
  }
}

TEST(Packet, a_datagram_repeats_another_when_nothing_but_its_number_and_payload_differ) {
  const auto middle = [](std::uint32_t psn, std::uint32_t payload = 8) {
    std::vector<std::byte> bytes(kBthBytes + payload + kIcrcBytes, static_cast<std::byte>(psn));
    Bth bth;
    bth.opcode = Opcode::RcWriteMiddle;
    bth.psn = Psn{psn};
    emit_bth(bth, std::span<std::byte>(bytes).first<kBthBytes>());
    return bytes;
  };
  const auto first = middle(7), next = middle(8);
  EXPECT_TRUE(repeats(first, next));
  EXPECT_FALSE(repeats(first, first));
  EXPECT_FALSE(repeats(next, first));
  EXPECT_FALSE(repeats(first, middle(9)));
  EXPECT_FALSE(repeats(first, middle(8, 12)));
  EXPECT_FALSE(repeats(middle(Psn::kMask), middle(0)));  // a number that wraps is left to parse()
  for (std::size_t bit = 0; bit < 8 * kBthBytes; ++bit) {
    auto other = next;
    other[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(repeats(first, other)) << bit;
  }
  auto with_more = first, after = next;  // an extended header may differ, too
  with_more[0] = after[0] = static_cast<std::byte>(Opcode::RcReadResponseFirst);
  EXPECT_FALSE(repeats(with_more, after));
  EXPECT_FALSE(repeats(std::span(first).first(8), std::span(next).first(8)));
}

TEST(Packet, a_hundred_thousand_random_packets_come_back_as_they_were) {
  SeededRandom random{20};
  const std::vector<std::byte> payload = test::random_bytes(random, kMaxPathMtu);
  std::vector<std::byte> first(kMaxHeaderBytes + kMaxPathMtu + 8);
  std::vector<std::byte> second(first.size());
  IcrcVerifier verifier;
  for (int i = 0; i < 100'000; ++i) {
    const Packet packet = random_packet(random, payload);
    const Path path = test::random_path(random);
    const auto identification = static_cast<std::uint16_t>(random.next_u64());
    const std::size_t size = emit(packet, path, identification, first);
    const std::span<const std::byte> datagram = std::span{first}.first(size);
    Packet parsed;
    ASSERT_EQ(parse(datagram, parsed), DropReason::None) << to_string(packet);
    expect_same(packet, parsed);
    ASSERT_EQ(verifier.check(path, identification, datagram, nullptr), IcrcVerdict::Exact);
    ASSERT_EQ(emit(parsed, path, identification, second), size);
    ASSERT_EQ(std::memcmp(first.data(), second.data(), size), 0) << to_string(packet);
    ASSERT_EQ(to_string(packet), to_string(parsed));
    if (HasFailure()) return;
  }
}

TEST(Packet, pad_and_reserved_bytes_are_emitted_as_zero_whatever_stood_in_the_buffer) {
  const std::vector<std::byte> payload(5, std::byte{1});
  Packet packet;
  packet.bth.pad_count = 3;
  packet.payload = payload;
  std::vector<std::byte> out(datagram_bytes(packet), std::byte{0xee});
  emit(packet, test::ipv4_path(), 0, out);
  for (std::size_t i = 17; i < 20; ++i) EXPECT_EQ(out[i], std::byte{0});
  Packet cnp;
  cnp.bth.opcode = Opcode::Cnp;
  out.assign(datagram_bytes(cnp), std::byte{0xee});
  ASSERT_EQ(emit(cnp, test::ipv4_path(), 0, out), 32u);
  for (std::size_t i = 12; i < 28; ++i) EXPECT_EQ(out[i], std::byte{0});
}

TEST(Packet, the_printed_line_says_what_each_extended_header_holds) {
  Packet packet;
  packet.bth.destination = Qpn{0x12};
  packet.bth.psn = Psn{0x800000};
  const auto line = [&packet](Opcode opcode) {
    packet.bth.opcode = opcode;
    return to_string(packet);
  };
  packet.aeth = {0x2c, 9};
  EXPECT_EQ(line(Opcode::RcAcknowledge),
            "RC Acknowledge qpn 0x000012 psn 0x800000 rnr nak wait 640 us msn 9");
  packet.aeth = {0x62, 9};
  EXPECT_EQ(line(Opcode::RcAcknowledge),
            "RC Acknowledge qpn 0x000012 psn 0x800000 nak remote access error msn 9");
  packet.aeth = {0x45, 9};
  EXPECT_EQ(line(Opcode::RcAcknowledge),
            "RC Acknowledge qpn 0x000012 psn 0x800000 reserved syndrome 0x45 msn 9");
  packet.aeth = {0x05, 9};
  packet.atomic_original = 0xff;
  EXPECT_EQ(line(Opcode::RcAtomicAcknowledge),
            "RC Atomic Acknowledge qpn 0x000012 psn 0x800000 ack credits 6 msn 9 original 0xff");
  packet.atomic = {0x1000, RKey{7}, 2, 1};
  EXPECT_EQ(line(Opcode::RcCompareSwap),
            "RC Compare Swap qpn 0x000012 psn 0x800000 va 0x1000 rkey 0x7 compare 0x1 swap 0x2");
  packet.invalidate = RKey{0xabcd};
  EXPECT_EQ(line(Opcode::RcSendOnlyWithInvalidate),
            "RC SEND Only with Invalidate qpn 0x000012 psn 0x800000 invalidate 0xabcd");
  packet.feth.value = 0x12;
  packet.reth = {0x2000, RKey{8}, 64};
  EXPECT_EQ(line(Opcode::RcFlush),
            "RC FLUSH qpn 0x000012 psn 0x800000 region placement 2 va 0x2000 rkey 0x8 len 64");
  packet.xrceth = 0x99;
  EXPECT_EQ(line(static_cast<Opcode>(0xa4)), "XRC SEND Only qpn 0x000012 psn 0x800000 srq 0x000099");
}

TEST(Packet, every_drop_reason_has_a_name_of_its_own) {
  std::vector<std::string_view> names;
  for (int i = 0; i < static_cast<int>(DropReason::Count); ++i) {
    const std::string_view name = to_string(static_cast<DropReason>(i));
    EXPECT_NE(name, "?");
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0);
    names.push_back(name);
  }
}

}  // namespace
}  // namespace verbena::wire
