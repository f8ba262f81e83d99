// SPDX-License-Identifier: Apache-2.0
// What the kernel's rxe device sent, read and written again.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "soft/wire/cm_message.h"
#include "soft/wire/icrc.h"
#include "soft/wire/packet.h"
#include "soft/wire/test_bytes.h"
#include "soft/wire/test_capture.h"

namespace verbena::wire {
namespace {

class Capture : public testing::TestWithParam<std::string> {};

TEST_P(Capture, every_packet_is_parsed_printed_and_emitted_again_with_the_right_icrc) {
  const auto datagrams = test::roce_datagrams(GetParam());
  ASSERT_FALSE(datagrams.empty());
  IcrcVerifier verifier;
  for (const auto& bytes : datagrams) {
    IpDatagram ip;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    Packet packet;
    ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
    EXPECT_TRUE(payload_obeys(packet, 1024)) << to_string(packet);
    EXPECT_NE(to_string(packet).find(" psn 0x"), std::string::npos);
    EXPECT_EQ(verifier.check(ip.path, ip.identification, ip.payload, nullptr, ip.dont_fragment),
              IcrcVerdict::Exact);
    std::uint16_t found = 0;
    EXPECT_NE(verifier.check(ip.path, std::nullopt, ip.payload, &found, ip.dont_fragment), IcrcVerdict::Bad);
    EXPECT_EQ(found, ip.identification);

    std::vector<std::byte> again(datagram_bytes(packet));
    emit(packet, ip.path, ip.identification, again);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), ip.payload.begin(), ip.payload.end()))
        << to_string(packet);
  }
}

INSTANTIATE_TEST_SUITE_P(Rxe, Capture, testing::Values("rxe-all.pcap", "cm-req-to-host.pcap"),
                         [](const auto& tested) { return tested.index == 0 ? "all" : "cm_req_to_host"; });

TEST(RxeCapture, holds_every_kind_of_packet_that_rxe_sends) {
  std::map<std::string_view, int> counts;
  const auto datagrams = test::roce_datagrams("rxe-all.pcap");
  EXPECT_EQ(datagrams.size(), 234u);
  for (const auto& bytes : datagrams) {
    IpDatagram ip;
    Packet packet;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
    ++counts[packet.info().name];
  }
  EXPECT_EQ(counts["RC Acknowledge"], 45);
  EXPECT_EQ(counts["RC WRITE Middle"], 20);
  EXPECT_EQ(counts["RC READ Response Middle"], 5);
  EXPECT_EQ(counts["RC Atomic Acknowledge"], 10);
  EXPECT_EQ(counts["RC Compare Swap"], 5);
  EXPECT_EQ(counts["UC WRITE First"], 10);
  EXPECT_EQ(counts["UD SEND Only"], 15);
}

// One management datagram of a capture, with the packet it came in.
struct CapturedMad {
  std::vector<std::byte> bytes;
  Path path;
  MadHeader header;
  CmMessage message;
};

std::vector<CapturedMad> mads_of(const std::string& name) {
  std::vector<CapturedMad> mads;
  for (const auto& bytes : test::roce_datagrams(name)) {
    IpDatagram ip;
    Packet packet;
    if (parse_ip(bytes, ip) != DropReason::None || parse(ip.payload, packet) != DropReason::None) continue;
    if (packet.bth.destination != kGsiQpn) continue;
    EXPECT_EQ(packet.deth.qkey, kGsiQkey);
    EXPECT_EQ(packet.deth.source, kGsiQpn);
    CapturedMad mad;
    mad.bytes.assign(packet.payload.begin(), packet.payload.end());
    mad.path = ip.path;
    EXPECT_EQ(parse_cm(mad.bytes, mad.header, mad.message), DropReason::None);
    mads.push_back(mad);
  }
  return mads;
}

TEST(RxeCapture, every_management_datagram_is_emitted_again_byte_for_byte) {
  for (const char* name : {"rxe-all.pcap", "cm-req-to-host.pcap"}) {
    const auto mads = mads_of(name);
    EXPECT_GE(mads.size(), 5u);
    for (const CapturedMad& mad : mads) {
      EXPECT_FALSE(std::holds_alternative<CmUnknown>(mad.message));
      std::array<std::byte, kMadBytes> again;
      emit_mad(mad.header, mad.message, again);
      EXPECT_TRUE(std::equal(again.begin(), again.end(), mad.bytes.begin()))
          << to_string(mad.header, mad.message);
    }
  }
}

template <class Message>
Message only(const std::vector<CapturedMad>& mads) {
  std::optional<Message> found;
  for (const CapturedMad& mad : mads)
    if (const auto* message = std::get_if<Message>(&mad.message)) {
      EXPECT_FALSE(found.has_value());
      found = *message;
    }
  EXPECT_TRUE(found.has_value());
  return found.value_or(Message{});
}

TEST(RxeCapture, the_messages_of_one_connection_belong_together) {
  const auto mads = mads_of("rxe-all.pcap");
  ASSERT_EQ(mads.size(), 5u);
  const auto req = only<CmReq>(mads);
  const auto rep = only<CmRep>(mads);
  const auto rtu = only<CmRtu>(mads);
  const auto dreq = only<CmDreq>(mads);
  const auto drep = only<CmDrep>(mads);

  EXPECT_TRUE(service_id_is_in(req.service_id, PortSpace::Tcp));
  EXPECT_EQ(req.transport, CmTransport::Rc);
  EXPECT_EQ(req.path_mtu, 3);
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_EQ(req.primary.local_gid, mads[0].path.source);
  EXPECT_EQ(req.primary.remote_gid, mads[0].path.destination);
  EXPECT_EQ(req.alternate, CmPath::absent());
  CmaHeader cma;
  ASSERT_TRUE(parse_cma_header(cma_part(req.private_data), cma));
  EXPECT_EQ(cma.source, mads[0].path.source);
  EXPECT_EQ(cma.destination, mads[0].path.destination);

  EXPECT_EQ(rep.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(rtu.local_comm_id, req.local_comm_id);
  EXPECT_EQ(rtu.remote_comm_id, rep.local_comm_id);
  EXPECT_EQ(drep.local_comm_id, dreq.remote_comm_id);
  EXPECT_EQ(drep.remote_comm_id, dreq.local_comm_id);
  const bool active_ends = dreq.local_comm_id == req.local_comm_id;
  EXPECT_EQ(dreq.remote_qpn, active_ends ? rep.local_qpn : req.local_qpn);
  EXPECT_EQ(mads[0].header.transaction_id, mads[1].header.transaction_id);
  EXPECT_EQ(mads[0].header.transaction_id, mads[2].header.transaction_id);
}

// Each side states the number it expects to receive first: the peer starts sending there.
TEST(RxeCapture, each_side_starts_sending_at_the_psn_the_other_side_named) {
  const auto mads = mads_of("rxe-all.pcap");
  const auto req = only<CmReq>(mads);
  const auto rep = only<CmRep>(mads);
  const Gid active = mads[0].path.source;
  const Gid passive = mads[0].path.destination;
  std::map<std::pair<Gid, Qpn>, Psn> first_request;  // by receiver
  bool connected = false;
  for (const auto& bytes : test::roce_datagrams("rxe-all.pcap")) {
    IpDatagram ip;
    Packet packet;
    ASSERT_EQ(parse_ip(bytes, ip), DropReason::None);
    ASSERT_EQ(parse(ip.payload, packet), DropReason::None);
    connected = connected || packet.bth.destination == kGsiQpn;
    if (!connected || packet.info().transport != Transport::Rc || !packet.info().request) continue;
    first_request.emplace(std::pair{ip.path.destination, packet.bth.destination}, packet.bth.psn);
  }
  ASSERT_EQ(first_request.size(), 2u);
  EXPECT_EQ((first_request[{passive, rep.local_qpn}]), rep.starting_psn);
  EXPECT_EQ((first_request[{active, req.local_qpn}]), req.starting_psn);
}

TEST(RxeCapture, the_side_that_gives_up_on_its_request_says_so_with_a_timeout_reject) {
  const auto mads = mads_of("cm-req-to-host.pcap");
  int requests = 0;
  for (const CapturedMad& mad : mads) requests += std::holds_alternative<CmReq>(mad.message) ? 1 : 0;
  EXPECT_EQ(requests, 6);
  const auto rej = only<CmRej>(mads);
  EXPECT_EQ(rej.reason, CmRejectReason::Timeout);
  EXPECT_EQ(rej.rejected, CmMessageKind::Other);
  EXPECT_LE(rej.information_bytes, rej.information.size());
}

}  // namespace
}  // namespace verbena::wire
