// SPDX-License-Identifier: Apache-2.0
// Small guards that no other script would miss.
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

template <class Message>
MadBytes mad_of(const Message& message, std::uint64_t transaction = 0) {
  wire::MadHeader header;
  header.transaction_id = transaction;
  MadBytes out{};
  wire::emit_mad(header, message, out);
  return out;
}

TEST(ConnectionManager, C10_a_peer_id_of_zero_does_not_open_a_request_in_flight) {
  World w;
  w.active = w.connect();
  const std::uint32_t our_id = read<wire::CmReq>(w.one(w.client)).local_comm_id;
  wire::CmRej rej;
  rej.remote_comm_id = our_id;
  rej.rejected = wire::CmMessageKind::Other;
  w.to_client(mad_of(rej));
  EXPECT_EQ(w.client.state(w.active), State::ReqSent);
}

TEST(ConnectionManager, C10_a_timeout_REJ_names_our_id_rightly_or_not_at_all) {
  World w;
  w.request();
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  const MadBytes rej = w.one(w.client);
  w.to_server(altered<wire::CmRej>(rej, [](wire::CmRej& r) { r.remote_comm_id = 0xbad; }));
  EXPECT_EQ(w.server.state(w.passive), State::ReqReceived);
}

TEST(ConnectionManager, an_MRA_of_absurd_length_is_cut_and_one_out_of_place_does_nothing) {
  World w;
  w.active = w.connect();
  w.req = w.one(w.client);
  wire::CmMra mra;
  mra.remote_comm_id = read<wire::CmReq>(w.req).local_comm_id;
  mra.service_timeout = 31;
  const MadBytes bytes = mad_of(mra, decode(w.req).header.transaction_id);
  w.to_client(bytes);
  const Instant deadline = w.client.manager.next_deadline();
  EXPECT_LE(deadline - w.now, code_duration(24) + Duration::seconds(1));
  w.now = w.now + Duration::seconds(1);
  w.to_client(bytes);
  EXPECT_EQ(w.client.manager.next_deadline(), deadline);

  World v;
  v.establish();
  mra.local_comm_id = read<wire::CmRtu>(v.rtu).remote_comm_id;
  mra.remote_comm_id = read<wire::CmRtu>(v.rtu).local_comm_id;
  for (const auto kind : {wire::CmMessageKind::Req, wire::CmMessageKind::Rep, wire::CmMessageKind::Other}) {
    mra.acknowledged = kind;
    v.to_client(mad_of(mra, decode(v.req).header.transaction_id));
  }
  EXPECT_EQ(v.client.state(v.active), State::Established);
  EXPECT_TRUE(v.client.manager.next_deadline().is_never());
}

TEST(ConnectionManager, C18_a_REP_without_id_or_queue_pair_is_dropped) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  const MadBytes rep = w.one(w.server);
  w.to_client(altered<wire::CmRep>(rep, [](wire::CmRep& r) { r.local_comm_id = 0; }));
  w.to_client(altered<wire::CmRep>(rep, [](wire::CmRep& r) { r.local_qpn = kGsiQpn; }));
  w.to_client(altered<wire::CmRep>(rep, [](wire::CmRep& r) { r.local_qpn = kMulticastQpn; }));
  EXPECT_EQ(w.client.manager.counters().cm_drop_malformed, 3u);
  EXPECT_EQ(w.client.state(w.active), State::ReqSent);
}

TEST(ConnectionManager, C04_one_source_cannot_take_the_place_of_others) {
  ManagerConfig config = quick_config(false, 2);
  config.half_open_per_source = 2;
  World w(quick_config(false, 1), config);
  for (std::uint32_t i = 0; i < 5; ++i) w.connect(0x100 + i);
  w.exchange();
  EXPECT_EQ(w.server.manager.half_open(), 2u);
  Node other(quick_config(false, 3), 8);
  ASSERT_TRUE(other.manager.connect(w.now, w.connect_params()).has_value());
  w.give(other, w.server, w.one(other));
  EXPECT_EQ(w.server.manager.half_open(), 3u);
}

TEST(ConnectionManager, a_response_not_yet_seen_is_withdrawn_when_the_peer_gives_up) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  w.to_client(w.one(w.server));
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  w.exchange();
  w.client.event(EventType::ConnectError);
}

TEST(ConnectionManager, connections_started_together_do_not_retry_together) {
  World w;
  w.connect(0x100);
  const Instant first = w.client.manager.next_deadline();
  Node other(quick_config(false, 1), 1234);
  ASSERT_TRUE(other.manager.connect(w.now, w.connect_params()).has_value());
  EXPECT_NE(other.manager.next_deadline(), first);
  const Duration interval = retry_interval(10, 14);
  EXPECT_GE(first - w.now, interval * 7 / 8);
  EXPECT_LE(first - w.now, interval * 9 / 8);
}

TEST(ConnectionManager, a_requester_that_gives_up_tells_the_peer) {
  World w;
  w.request();
  while (!w.client.manager.next_deadline().is_never()) w.tick(w.client);
  w.client.event(EventType::Unreachable);
  const auto sent = w.client.sent(w.now);
  ASSERT_FALSE(sent.empty());
  w.to_server(sent.back().bytes);
  EXPECT_EQ(w.server.event(EventType::Rejected).reason, 4);
}

TEST(ConnectionManager, C14_destroy_withdraws_events_that_nobody_has_seen) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  EXPECT_TRUE(w.client.events().empty());
}

// Gives every number eight times.
class Stutter final : public RandomSource {
 public:
  std::uint64_t next_u64() override { return (calls_++ / 8 + 1) << 32; }

 private:
  std::uint64_t calls_ = 0;
};

TEST(ConnectionManager, C16_a_communication_id_in_use_is_drawn_again) {
  Stutter random;
  Manager manager(quick_config(false, 1), random);
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 20; ++i) {
    ConnectParams p;
    p.remote = gid_of(false, 2);
    p.port = kPort;
    p.qpn = Qpn{0x100 + i};
    ASSERT_TRUE(manager.connect(Instant{0}, p).has_value());
    OutgoingMad mad;
    ASSERT_TRUE(manager.poll_transmit(Instant{0}, mad));
    const std::uint32_t id = read<wire::CmReq>(mad.bytes).local_comm_id;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0);
    ids.push_back(id);
  }
}

TEST(ConnectionManager, a_REJ_of_a_REQ_names_no_id_of_ours_that_the_requester_never_heard) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.reject(w.now, w.passive).has_value());
  const auto rej = read<wire::CmRej>(w.one(w.server));
  EXPECT_EQ(rej.local_comm_id, 0u);
  EXPECT_EQ(rej.remote_comm_id, read<wire::CmReq>(w.req).local_comm_id);
  EXPECT_EQ(rej.rejected, wire::CmMessageKind::Req);
}

}  // namespace
}  // namespace verbena::cm
