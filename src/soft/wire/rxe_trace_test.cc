// SPDX-License-Identifier: Apache-2.0
// What the kernel's rxe device sent for each rule that could be provoked, read and written again.
// tests/data/rxe/README.md says how each was provoked.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "soft/wire/icrc.h"
#include "soft/wire/packet.h"
#include "soft/wire/test_capture.h"

namespace verbena::wire {
namespace {

constexpr std::uint32_t kMtu = 1024;

struct Trace {
  const char* file;
  std::vector<Opcode> opcodes;
  std::vector<std::uint8_t> syndromes = {};  // of the packets with an AETH
};

using enum Opcode;
constexpr std::uint8_t kAck = 0x1f, kSequence = 0x60, kInvalid = 0x61, kAccess = 0x62, kOperation = 0x63;
constexpr std::uint8_t kRnr = 0x20 + 20;  // 10.24 ms, as the receiver was told

const std::vector<Trace> kTraces{
    {"send", {RcSendFirst, RcSendMiddle, RcSendLast}},
    {"send_only", {RcSendOnly, RcSendOnly}},
    {"send_with_immediate",
     {RcSendFirst, RcSendLastWithImmediate, RcSendOnlyWithImmediate, RcSendOnlyWithImmediate}},
    {"write", {RcWriteFirst, RcWriteMiddle, RcWriteLast}},
    {"write_only", {RcWriteOnly, RcWriteOnly}},
    {"write_with_immediate",
     {RcWriteFirst, RcWriteLastWithImmediate, RcWriteOnlyWithImmediate, RcWriteOnlyWithImmediate}},
    {"read_request", {RcReadRequest, RcReadRequest, RcReadRequest, RcReadRequest}},
    {"read_request_for_the_rest", {RcReadRequest, RcReadRequest}},
    {"read_response", {RcReadResponseFirst, RcReadResponseMiddle, RcReadResponseLast}, {kAck, kAck}},
    {"read_response_only", {RcReadResponseOnly, RcReadResponseOnly}, {kAck, kAck}},
    {"atomic_request", {RcCompareSwap, RcFetchAdd}},
    {"atomic_response",
     {RcAtomicAcknowledge, RcAtomicAcknowledge, RcAtomicAcknowledge, RcAtomicAcknowledge},
     {kAck, kAck, kAck, kAck}},
    {"acknowledge", {RcAcknowledge}, {kAck}},
    {"rnr_nak", {RcAcknowledge, RcAcknowledge}, {kRnr, kRnr}},
    {"rnr_nak_then_sequence_nak", {RcAcknowledge, RcAcknowledge}, {kRnr, kSequence}},
    {"sequence_nak", {RcAcknowledge}, {kSequence}},
    {"nak_invalid_request", {RcAcknowledge}, {kInvalid}},
    {"nak_remote_access", {RcAcknowledge}, {kAccess}},
    {"nak_remote_operation", {RcAcknowledge}, {kOperation}},
    {"duplicate_acknowledge", {RcAcknowledge, RcAcknowledge}, {kAck, kAck}},
    {"duplicate_read", {RcReadResponseOnly, RcReadResponseOnly}, {kAck, kAck}},
    {"duplicate_atomic", {RcAtomicAcknowledge, RcAtomicAcknowledge}, {kAck, kAck}},
};

class RxeTrace : public testing::TestWithParam<Trace> {};

TEST_P(RxeTrace, is_parsed_with_the_right_icrc_and_emitted_again_byte_for_byte) {
  std::vector<Opcode> opcodes;
  std::vector<std::uint8_t> syndromes;
  IcrcVerifier verifier;
  for (const auto& bytes : test::roce_datagrams(std::string{"rxe/"} + GetParam().file + ".pcap")) {
    IpDatagram ip;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    Packet packet;
    ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
    opcodes.push_back(packet.bth.opcode);
    if (packet.info().has(kAeth)) syndromes.push_back(packet.aeth.syndrome);
    EXPECT_TRUE(payload_obeys(packet, kMtu)) << to_string(packet);
    EXPECT_EQ(verifier.check(ip.path, ip.identification, ip.payload, nullptr, ip.dont_fragment),
              IcrcVerdict::Exact);
    std::vector<std::byte> again(datagram_bytes(packet));
    emit(packet, ip.path, ip.identification, again);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), ip.payload.begin(), ip.payload.end()))
        << to_string(packet);
  }
  EXPECT_EQ(opcodes, GetParam().opcodes);
  EXPECT_EQ(syndromes, GetParam().syndromes);
}

INSTANTIATE_TEST_SUITE_P(Rxe, RxeTrace, testing::ValuesIn(kTraces),
                         [](const auto& tested) { return std::string{tested.param.file}; });

// Rules: the same answer both times.
TEST(RxeTraces, a_duplicate_gets_the_answer_of_the_original) {
  for (const char* file : {"duplicate_acknowledge", "duplicate_read", "duplicate_atomic"}) {
    std::vector<Packet> packets;
    const auto datagrams = test::roce_datagrams(std::string{"rxe/"} + file + ".pcap");
    for (const auto& bytes : datagrams) {
      IpDatagram ip;
      Packet packet;
      ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
      ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
      packets.push_back(packet);
    }
    ASSERT_EQ(packets.size(), 2u);
    EXPECT_EQ(packets[0].bth.psn, packets[1].bth.psn);
    EXPECT_EQ(packets[0].aeth.syndrome, packets[1].aeth.syndrome);
    EXPECT_EQ(packets[0].atomic_original, packets[1].atomic_original);
    EXPECT_TRUE(std::equal(packets[0].payload.begin(), packets[0].payload.end(), packets[1].payload.begin(),
                           packets[1].payload.end()));
  }
}

// Rule Q-015: what is missing of a READ is asked for again with address and length moved on by whole packets.
TEST(RxeTraces, the_rest_of_a_read_is_asked_for_with_address_and_length_adjusted) {
  std::vector<Packet> packets;
  const auto datagrams = test::roce_datagrams("rxe/read_request_for_the_rest.pcap");
  for (const auto& bytes : datagrams) {
    IpDatagram ip;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    ASSERT_EQ(parse(ip.payload, packets.emplace_back()), DropReason::None);
  }
  ASSERT_EQ(packets.size(), 2u);
  const auto skipped = static_cast<std::uint32_t>(Psn::distance(packets[1].bth.psn, packets[0].bth.psn));
  EXPECT_EQ(packets[1].reth.va, packets[0].reth.va + skipped * kMtu);
  EXPECT_EQ(packets[1].reth.length, packets[0].reth.length - skipped * kMtu);
}

}  // namespace
}  // namespace verbena::wire
