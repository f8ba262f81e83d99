// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/opcode.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace verbena::wire {
namespace {

// Opcode, header bytes with BTH; written down from the format reference a second time, apart from the table.
const std::map<unsigned, unsigned> kReliable = {{0x00, 12}, {0x01, 12}, {0x02, 12}, {0x03, 16}, {0x04, 12},
                                                {0x05, 16}, {0x06, 28}, {0x07, 12}, {0x08, 12}, {0x09, 16},
                                                {0x0a, 28}, {0x0b, 32}, {0x0c, 28}, {0x0d, 16}, {0x0e, 12},
                                                {0x0f, 16}, {0x10, 16}, {0x11, 16}, {0x12, 24}, {0x13, 40},
                                                {0x14, 40}, {0x16, 16}, {0x17, 16}, {0x1c, 32}, {0x1d, 28}};
const std::set<unsigned> kResponses = {0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12};

std::map<unsigned, unsigned> every_known_opcode() {
  std::map<unsigned, unsigned> all = {{0x64, 20}, {0x65, 24}, {0x81, 28}};
  for (const auto& [opcode, bytes] : kReliable) {
    all[opcode] = bytes;
    if (opcode <= 0x0b) all[0x20 | opcode] = bytes;
    if (opcode <= 0x17) all[0xa0 | opcode] = kResponses.count(opcode) != 0 ? bytes : bytes + 4;
  }
  return all;
}

TEST(Opcode, R003_each_of_the_256_values_is_known_with_its_header_length_or_unknown) {
  const auto known = every_known_opcode();
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
    const auto entry = known.find(opcode);
    EXPECT_EQ(info.known, entry != known.end()) << opcode;
    if (entry != known.end()) {
      EXPECT_EQ(info.header_bytes, entry->second) << opcode;
    } else {
      EXPECT_EQ(info.header_bytes, 0) << opcode;
      EXPECT_EQ(info.headers, kNoHeader) << opcode;
    }
  }
}

TEST(Opcode, reliable_datagram_has_names_and_is_unknown) {
  EXPECT_EQ(opcode_info(0x4c).name, "RD READ Request");
  EXPECT_EQ(opcode_info(0x4c).transport, Transport::Rd);
  EXPECT_FALSE(opcode_info(0x4c).known);
}

TEST(Opcode, names_carry_the_transport) {
  EXPECT_EQ(opcode_info(Opcode::RcSendFirst).name, "RC SEND First");
  EXPECT_EQ(opcode_info(0x2b).name, "UC WRITE Only with Immediate");
  EXPECT_EQ(opcode_info(0xb7).name, "XRC SEND Only with Invalidate");
  EXPECT_EQ(opcode_info(Opcode::UdSendOnly).name, "UD SEND Only");
  EXPECT_EQ(opcode_info(Opcode::Cnp).name, "CNP");
  EXPECT_EQ(opcode_info(0x15).name, "reserved");
}

TEST(Opcode, unreliable_and_extended_connections_repeat_what_the_reliable_one_does) {
  for (unsigned opcode = 0; opcode <= 0x17; ++opcode) {
    const OpcodeInfo& rc = opcode_info(static_cast<std::uint8_t>(opcode));
    for (const unsigned group : {0x20u, 0xa0u}) {
      const OpcodeInfo& other = opcode_info(static_cast<std::uint8_t>(group | opcode));
      if (!other.known) continue;
      EXPECT_EQ(other.operation, rc.operation);
      EXPECT_EQ(other.first, rc.first);
      EXPECT_EQ(other.last, rc.last);
      EXPECT_EQ(other.request, rc.request);
      EXPECT_EQ(other.consumes_receive, rc.consumes_receive);
      EXPECT_EQ(other.completes_receive, rc.completes_receive);
      EXPECT_EQ(other.payload, rc.payload);
    }
  }
}

TEST(Opcode, a_receive_is_consumed_at_the_first_packet_of_a_send_and_at_the_immediate_of_a_write) {
  const std::set<unsigned> consumes = {0x00, 0x04, 0x05, 0x09, 0x0b, 0x17};
  const std::set<unsigned> completes = {0x02, 0x03, 0x04, 0x05, 0x09, 0x0b, 0x16, 0x17};
  for (unsigned opcode = 0; opcode < 0x20; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
    EXPECT_EQ(info.consumes_receive, consumes.count(opcode) != 0) << opcode;
    EXPECT_EQ(info.completes_receive, completes.count(opcode) != 0) << opcode;
  }
}

TEST(Opcode, first_and_last_tell_where_a_message_starts_and_ends) {
  const std::set<unsigned> starts_only = {0x00, 0x06, 0x0d};
  const std::set<unsigned> ends_only = {0x02, 0x03, 0x08, 0x09, 0x0f, 0x16};
  const std::set<unsigned> middles = {0x01, 0x07, 0x0e};
  for (const auto& [opcode, bytes] : kReliable) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
    EXPECT_EQ(info.first, ends_only.count(opcode) == 0 && middles.count(opcode) == 0) << opcode;
    EXPECT_EQ(info.last, starts_only.count(opcode) == 0 && middles.count(opcode) == 0) << opcode;
    EXPECT_EQ(info.request, kResponses.count(opcode) == 0) << opcode;
  }
}

}  // namespace
}  // namespace verbena::wire
