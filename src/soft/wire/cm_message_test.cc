// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/byte_order.h"
#include "soft/wire/test_bytes.h"

namespace verbena::wire {
namespace {

using Mad = std::array<std::byte, kMadBytes>;

TEST(Mad, C18_a_datagram_of_another_length_class_version_or_method_is_dropped) {
  Mad mad;
  emit_mad(MadHeader{}, CmRtu{}, mad);
  MadHeader header;
  EXPECT_EQ(parse_mad(mad, header), DropReason::None);
  for (const std::size_t at : {0u, 1u, 2u, 3u}) {
    for (unsigned value = 0; value < 256; ++value) {
      Mad other = mad;
      other[at] = static_cast<std::byte>(value);
      EXPECT_EQ(parse_mad(other, header), other == mad ? DropReason::None : DropReason::BadMad);
    }
  }
  for (std::size_t size = 0; size <= 300; ++size) {
    std::vector<std::byte> bytes(mad.begin(), mad.end());
    bytes.resize(size);
    EXPECT_EQ(parse_mad(bytes, header), size == 256 ? DropReason::None : DropReason::BadLength);
  }
}

TEST(Mad, the_header_comes_back_as_it_was) {
  MadHeader header;
  header.status = 0x1122;
  header.class_specific = 0x3344;
  header.transaction_id = 0x0102030405060708;
  header.reserved = 0x5566;
  header.attribute_modifier = 0x778899aa;
  Mad mad;
  emit_mad(header, CmDrep{}, mad);
  MadHeader again;
  ASSERT_EQ(parse_mad(mad, again), DropReason::None);
  header.attribute = CmAttribute::Drep;
  EXPECT_EQ(again, header);
}

TEST(CmMessage, random_bytes_are_emitted_as_they_were_parsed_but_for_reserved_bits) {
  SeededRandom random{1};
  for (int i = 0; i < 20'000; ++i) {
    const auto attribute = static_cast<CmAttribute>(0x10 + random.below(11));
    const auto noise = test::random_bytes(random, kMadBytes);
    Mad mad;
    std::copy(noise.begin(), noise.end(), mad.begin());
    MadHeader header;
    header.attribute = attribute;
    emit_mad_header(header, std::span{mad}.first<kMadHeaderBytes>());
    CmMessage message;
    ASSERT_EQ(parse_cm(mad, header, message), DropReason::None);
    Mad emitted;
    emit_mad(header, message, emitted);
    CmMessage again;
    ASSERT_EQ(parse_cm(emitted, header, again), DropReason::None);
    ASSERT_EQ(message, again) << to_string(attribute);
    EXPECT_EQ(std::holds_alternative<CmUnknown>(message),
              attribute == CmAttribute::Lap || attribute == CmAttribute::Apr);
    EXPECT_FALSE(to_string(header, message).empty());
  }
}

// Sets one field, emits, and says at which offset of the CM part which bytes stand; all else is as in the
// default.
template <class Message>
void expect_only_differs_at(const Message& changed, std::size_t at, std::string_view hex) {
  std::array<std::byte, kCmBytes> plain, bytes;
  emit(Message{}, plain);
  emit(changed, bytes);
  const auto expected = test::from_hex(hex);
  std::copy(expected.begin(), expected.end(), plain.begin() + static_cast<std::ptrdiff_t>(at));
  EXPECT_EQ(plain, bytes) << "offset " << at;
}

template <class Message, class Change>
void expect_field(Change change, std::size_t at, std::string_view hex) {
  Message message;
  change(message);
  expect_only_differs_at(message, at, hex);
}

TEST(CmReq, each_field_stands_where_the_reference_puts_it) {
  expect_field<CmReq>([](CmReq& m) { m.local_comm_id = 0x01020304; }, 0, "01020304");
  expect_field<CmReq>([](CmReq& m) { m.service_id = 0x0102030405060708; }, 8, "0102030405060708");
  expect_field<CmReq>([](CmReq& m) { m.local_ca_guid = 0x0102030405060708; }, 16, "0102030405060708");
  expect_field<CmReq>([](CmReq& m) { m.local_qkey = 0x01020304; }, 28, "01020304");
  expect_field<CmReq>([](CmReq& m) { m.local_qpn = Qpn{0x010203}; }, 32, "010203");
  expect_field<CmReq>([](CmReq& m) { m.responder_resources = 9; }, 35, "09");
  expect_field<CmReq>([](CmReq& m) { m.local_eecn = 0x010203; }, 36, "010203");
  expect_field<CmReq>([](CmReq& m) { m.initiator_depth = 9; }, 39, "09");
  expect_field<CmReq>([](CmReq& m) { m.remote_eecn = 0x010203; }, 40, "010203");
  expect_field<CmReq>([](CmReq& m) { m.remote_response_timeout = 20; }, 43, "a0");
  expect_field<CmReq>([](CmReq& m) { m.transport = CmTransport::Uc; }, 43, "02");
  expect_field<CmReq>([](CmReq& m) { m.end_to_end_flow_control = true; }, 43, "01");
  expect_field<CmReq>([](CmReq& m) { m.starting_psn = Psn{0x010203}; }, 44, "010203");
  expect_field<CmReq>([](CmReq& m) { m.local_response_timeout = 20; }, 47, "a0");
  expect_field<CmReq>([](CmReq& m) { m.retry_count = 7; }, 47, "07");
  expect_field<CmReq>([](CmReq& m) { m.pkey = 0x1234; }, 48, "1234");
  expect_field<CmReq>([](CmReq& m) { m.path_mtu = 5; }, 50, "50");
  expect_field<CmReq>([](CmReq& m) { m.rdc_exists = true; }, 50, "08");
  expect_field<CmReq>([](CmReq& m) { m.rnr_retry_count = 7; }, 50, "07");
  expect_field<CmReq>([](CmReq& m) { m.max_cm_retries = 15; }, 51, "f0");
  expect_field<CmReq>([](CmReq& m) { m.srq = true; }, 51, "08");
  expect_field<CmReq>([](CmReq& m) { m.extended_transport = 5; }, 51, "05");
  expect_field<CmReq>([](CmReq& m) { m.private_data[91] = std::byte{1}; }, 231, "01");
}

TEST(CmReq, both_paths_have_the_same_layout) {
  for (const std::size_t base : {52u, 96u}) {
    const auto expect_path = [base](auto change, std::size_t at, std::string_view hex) {
      expect_field<CmReq>([base, &change](CmReq& m) { change(base == 52 ? m.primary : m.alternate); },
                          base + at, hex);
    };
    expect_path([](CmPath& p) { p.local_lid = 0x0102; }, 0, "0102");
    expect_path([](CmPath& p) { p.remote_lid = 0x0102; }, 2, "0102");
    expect_path([](CmPath& p) { p.local_gid.bytes[15] = 7; }, 19, "07");
    expect_path([](CmPath& p) { p.remote_gid.bytes[0] = 7; }, 20, "07");
    expect_path([](CmPath& p) { p.flow_label = 0x12345; }, 36, "12345000");
    expect_path([](CmPath& p) { p.packet_rate = 0x3f; }, 36, "0000003f");
    expect_path([](CmPath& p) { p.traffic_class = 0x68; }, 40, "68");
    expect_path([](CmPath& p) { p.hop_limit = 1; }, 41, "01");
    expect_path([](CmPath& p) { p.service_level = 3; }, 42, "30");
    expect_path([](CmPath& p) { p.subnet_local = true; }, 42, "08");
    expect_path([](CmPath& p) { p.ack_timeout = 17; }, 43, "88");
  }
}

TEST(CmRep, each_field_stands_where_the_reference_puts_it) {
  expect_field<CmRep>([](CmRep& m) { m.local_comm_id = 0x01020304; }, 0, "01020304");
  expect_field<CmRep>([](CmRep& m) { m.remote_comm_id = 0x01020304; }, 4, "01020304");
  expect_field<CmRep>([](CmRep& m) { m.local_qkey = 0x01020304; }, 8, "01020304");
  expect_field<CmRep>([](CmRep& m) { m.local_qpn = Qpn{0x010203}; }, 12, "010203");
  expect_field<CmRep>([](CmRep& m) { m.local_eecn = 0x010203; }, 16, "010203");
  expect_field<CmRep>([](CmRep& m) { m.starting_psn = Psn{0x010203}; }, 20, "010203");
  expect_field<CmRep>([](CmRep& m) { m.responder_resources = 9; }, 24, "09");
  expect_field<CmRep>([](CmRep& m) { m.initiator_depth = 9; }, 25, "09");
  expect_field<CmRep>([](CmRep& m) { m.target_ack_delay = 15; }, 26, "78");
  expect_field<CmRep>([](CmRep& m) { m.failover_accepted = 2; }, 26, "04");
  expect_field<CmRep>([](CmRep& m) { m.end_to_end_flow_control = true; }, 26, "01");
  expect_field<CmRep>([](CmRep& m) { m.rnr_retry_count = 7; }, 27, "e0");
  expect_field<CmRep>([](CmRep& m) { m.srq = true; }, 27, "10");
  expect_field<CmRep>([](CmRep& m) { m.local_ca_guid = 0x0102030405060708; }, 28, "0102030405060708");
  expect_field<CmRep>([](CmRep& m) { m.private_data[0] = std::byte{1}; }, 36, "01");
  expect_field<CmRep>([](CmRep& m) { m.private_data[195] = std::byte{1}; }, 231, "01");
}

TEST(CmMessage, each_field_of_the_short_messages_stands_where_the_reference_puts_it) {
  expect_field<CmRtu>([](CmRtu& m) { m.remote_comm_id = 0x01020304; }, 4, "01020304");
  expect_field<CmRtu>([](CmRtu& m) { m.private_data[0] = std::byte{1}; }, 8, "01");
  expect_field<CmDreq>([](CmDreq& m) { m.remote_qpn = Qpn{0x010203}; }, 8, "01020300");
  expect_field<CmDreq>([](CmDreq& m) { m.private_data[0] = std::byte{1}; }, 12, "01");
  expect_field<CmDrep>([](CmDrep& m) { m.private_data[223] = std::byte{1}; }, 231, "01");
  expect_field<CmRej>([](CmRej& m) { m.rejected = CmMessageKind::Rep; }, 8, "40");
  expect_field<CmRej>([](CmRej& m) { m.information_bytes = 72; }, 9, "90");
  expect_field<CmRej>([](CmRej& m) { m.reason = CmRejectReason::StaleConnection; }, 10, "000a");
  expect_field<CmRej>([](CmRej& m) { m.information[71] = std::byte{1}; }, 83, "01");
  expect_field<CmRej>([](CmRej& m) { m.private_data[0] = std::byte{1}; }, 84, "01");
  expect_field<CmMra>([](CmMra& m) { m.acknowledged = CmMessageKind::Other; }, 8, "80");
  expect_field<CmMra>([](CmMra& m) { m.service_timeout = 24; }, 9, "c0");
  expect_field<CmMra>([](CmMra& m) { m.private_data[0] = std::byte{1}; }, 10, "01");
  expect_field<CmSidrReq>([](CmSidrReq& m) { m.pkey = 0x1234; }, 4, "1234");
  expect_field<CmSidrReq>([](CmSidrReq& m) { m.service_id = 1; }, 8, "0000000000000001");
  expect_field<CmSidrReq>([](CmSidrReq& m) { m.private_data[0] = std::byte{1}; }, 16, "01");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.status = CmSidrStatus::Redirect; }, 4, "04");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.information_bytes = 72; }, 5, "48");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.qpn = Qpn{0x010203}; }, 8, "010203");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.service_id = 1; }, 12, "0000000000000001");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.qkey = kRdmaUdpQkey; }, 20, "01234567");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.information[0] = std::byte{1}; }, 24, "01");
  expect_field<CmSidrRep>([](CmSidrRep& m) { m.private_data[0] = std::byte{1}; }, 96, "01");
}

TEST(CmaHeader, is_36_bytes_with_ipv4_behind_zeros) {
  CmaHeader header;
  header.source_port = 0x1234;
  header.source = Gid::from_ipv4(10, 0, 0, 1);
  header.destination = Gid::from_ipv4(10, 0, 0, 2);
  CmReq req;
  emit(header, cma_part(req.private_data));
  const auto expected =
      test::from_hex("004012340000000000000000000000000a0000010000000000000000000000000a000002");
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), req.private_data.begin()));
  CmaHeader again;
  ASSERT_TRUE(parse_cma_header(cma_part(req.private_data), again));
  EXPECT_EQ(again, header);
  EXPECT_EQ(user_part(req.private_data).size(), 56u);
  EXPECT_EQ(user_part(CmSidrReq{}.private_data).size(), 180u);
}

TEST(CmaHeader, C11_a_wrong_version_or_address_is_refused) {
  std::array<std::byte, kCmaHeaderBytes> bytes{};
  CmaHeader header;
  for (unsigned version = 0; version < 256; ++version) {
    bytes[1] = static_cast<std::byte>(version);
    EXPECT_EQ(parse_cma_header(bytes, header), version >> 4 == 4 || version >> 4 == 6);
  }
  bytes[1] = std::byte{0x40};
  bytes[0] = std::byte{1};
  EXPECT_FALSE(parse_cma_header(bytes, header));
  bytes[0] = std::byte{0};
  bytes[4] = std::byte{1};
  EXPECT_FALSE(parse_cma_header(bytes, header));
  bytes[1] = std::byte{0x60};
  EXPECT_TRUE(parse_cma_header(bytes, header));
  bytes[4] = std::byte{0};
  bytes[14] = bytes[15] = std::byte{0xff};
  EXPECT_FALSE(parse_cma_header(bytes, header));
}

TEST(CmaHeader, service_ids_are_port_space_and_port) {
  EXPECT_EQ(service_id(PortSpace::Tcp, 7174), 0x0000000001061c06u);
  EXPECT_EQ(service_id_port(0x0000000001061c06u), 7174);
  EXPECT_TRUE(service_id_is_in(service_id(PortSpace::Udp, 1), PortSpace::Udp));
  EXPECT_FALSE(service_id_is_in(service_id(PortSpace::Tcp, 1) | std::uint64_t{1} << 63, PortSpace::Tcp));
}

TEST(CmMessage, C12_private_data_is_zero_filled_and_never_too_long) {
  CmRej rej;
  rej.private_data.fill(std::byte{0xff});
  const std::vector<std::byte> too_long(149);
  EXPECT_FALSE(fill_private_data(rej.private_data, too_long));
  EXPECT_EQ(rej.private_data[0], std::byte{0xff});
  ASSERT_TRUE(fill_private_data(rej.private_data, std::vector<std::byte>(3, std::byte{7})));
  EXPECT_EQ(rej.private_data[2], std::byte{7});
  for (std::size_t i = 3; i < rej.private_data.size(); ++i) EXPECT_EQ(rej.private_data[i], std::byte{0});
}

TEST(CmRej, reasons_have_words) {
  EXPECT_EQ(to_string(CmRejectReason::NoQueuePair), "no queue pair");
  EXPECT_EQ(to_string(CmRejectReason::StaleConnection), "stale connection");
  EXPECT_EQ(to_string(CmRejectReason::Consumer), "consumer");
  EXPECT_EQ(to_string(CmRejectReason::VendorOption), "vendor option");
  for (const unsigned number : {0u, 34u, 36u, 65535u})
    EXPECT_EQ(to_string(static_cast<CmRejectReason>(number)), "reserved reason");
}

TEST(CmMessage, the_printed_line_names_service_addresses_and_reason) {
  MadHeader header;
  header.transaction_id = 0x1f;
  CmReq req;
  req.local_comm_id = 0x12;
  req.service_id = service_id(PortSpace::Tcp, 7174);
  req.local_qpn = Qpn{0x11};
  req.path_mtu = 3;
  CmaHeader cma;
  cma.source_port = 4000;
  cma.source = Gid::from_ipv4(10, 0, 0, 1);
  cma.destination = Gid::from_ipv4(10, 0, 0, 2);
  emit(cma, cma_part(req.private_data));
  EXPECT_EQ(to_string(header, req),
            "REQ tid 0x1f id 0x00000012 service 0x1061c06 (tcp 7174) 10.0.0.1 port 4000 -> 10.0.0.2 qpn "
            "0x000011 psn "
            "0x000000 mtu code 3 resources 0 depth 0 retry 0 rnr retry 0 ack timeout 0");
  header.attribute = CmAttribute::Rej;
  CmRej rej;
  rej.reason = CmRejectReason::InvalidServiceId;
  EXPECT_EQ(to_string(header, rej),
            "REJ tid 0x1f id 0x00000000 peer 0x00000000 of REQ reason 8 (invalid service id)");
  header.attribute = static_cast<CmAttribute>(0x99);
  EXPECT_EQ(to_string(header, CmUnknown{}), "attribute 0x99 tid 0x1f");
}

}  // namespace
}  // namespace verbena::wire
