// SPDX-License-Identifier: Apache-2.0
// What two ends tell each other of their queue pairs and of the time they take, and the bounds of it.
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

// A request that reaches the server in other words than it was made.
template <class F>
ConnectionId asked_otherwise(World& w, F&& change) {
  w.active = w.connect();
  w.req = w.one(w.client);
  w.to_server(altered<wire::CmReq>(w.req, change));
  return w.server.event(EventType::ConnectRequest).connection;
}

TEST(ConnectionManager, each_side_says_whether_its_receives_are_shared) {
  for (const bool shared : {false, true}) {
    World w;
    ConnectParams connect = w.connect_params();
    connect.srq = shared;
    w.active = w.client.manager.connect(w.now, connect).value();
    w.exchange();
    const Event request = w.server.event(EventType::ConnectRequest);
    EXPECT_EQ(request.parameters.remote_srq, shared);
    AcceptParams accept = accept_params();
    accept.srq = !shared;
    ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept).has_value());
    w.exchange();
    EXPECT_EQ(w.client.event(EventType::ConnectResponse).parameters.remote_srq, !shared);
  }
}

TEST(ConnectionManager, an_ACK_timeout_that_was_chosen_is_kept_whatever_delay_the_peer_states) {
  for (const std::uint8_t chosen : {std::uint8_t{0}, std::uint8_t{19}}) {
    World w;
    ConnectParams connect = w.connect_params();
    connect.ack_timeout_code = chosen;
    w.request(connect);
    ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
    w.to_client(altered<wire::CmRep>(w.one(w.server), [](wire::CmRep& r) { r.target_ack_delay = 31; }));
    const std::uint8_t limit = w.client.manager.config().peer_timeout_code_limit;
    EXPECT_EQ(w.client.event(EventType::ConnectResponse).parameters.ack_timeout_code,
              chosen != 0 ? chosen : ack_timeout_code(limit, 10));
  }
}

TEST(ConnectionManager, a_path_MTU_above_the_devices_is_refused_at_both_ends) {
  ManagerConfig small = quick_config(false, 2);
  small.max_path_mtu_bytes = 1024;
  World w(quick_config(false, 1), small);
  ConnectParams connect = w.connect_params();
  connect.path_mtu_bytes = 2048;
  ASSERT_TRUE(w.client.manager.connect(w.now, connect).has_value());
  w.to_server(w.one(w.client));
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::InvalidMtu);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  connect.remote = w.client.gid();
  EXPECT_EQ(w.server.manager.connect(w.now, connect).error().code(), ErrorCode::InvalidArgument);
  connect.path_mtu_bytes = 1024;
  EXPECT_TRUE(w.server.manager.connect(w.now, connect).has_value());
}

TEST(ConnectionManager, C19_a_REQ_asks_for_no_more_than_its_own_device_can_do) {
  ManagerConfig small = quick_config(false, 1);
  small.max_responder_resources = 3;
  small.max_initiator_depth = 2;
  World w(small, quick_config(false, 2));
  w.connect();
  const auto req = read<wire::CmReq>(w.one(w.client));
  EXPECT_EQ(req.responder_resources, 3);
  EXPECT_EQ(req.initiator_depth, 2);
}

TEST(ConnectionManager, a_flow_label_has_20_bits) {
  World w;
  ConnectParams connect = w.connect_params();
  connect.flow_label = 0xabcd'1234;
  const ConnectionId id = w.client.manager.connect(w.now, connect).value();
  EXPECT_EQ(w.client.manager.query(id)->parameters.flow_label, 0xd'1234u);
  EXPECT_EQ(read<wire::CmReq>(w.one(w.client)).primary.flow_label, 0xd'1234u);
}

TEST(ConnectionManager, accept_refuses_more_RNR_retries_than_three_bits_say) {
  World w;
  w.request();
  AcceptParams accept = accept_params();
  accept.rnr_retry_count = 8;
  EXPECT_EQ(w.server.manager.accept(w.now, w.passive, accept).error().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(w.server.state(w.passive), State::ReqReceived);
  accept.rnr_retry_count = 7;
  EXPECT_TRUE(w.server.manager.accept(w.now, w.passive, accept).has_value());
}

TEST(ConnectionManager, a_REP_is_sent_as_often_as_the_requester_said) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{3}}) {
    World w;
    const ConnectionId id = asked_otherwise(w, [&](wire::CmReq& r) { r.max_cm_retries = retries; });
    ASSERT_TRUE(w.server.manager.accept(w.now, id, accept_params()).has_value());
    int reps = 0;
    while (w.server.state(id) == State::RepSent) {
      for (const auto& mad : w.server.sent(w.now)) reps += decode(mad.bytes).is<wire::CmRep>() ? 1 : 0;
      w.tick(w.server);
    }
    EXPECT_EQ(reps, 1 + retries);
    w.server.event(EventType::Unreachable);
  }
}

TEST(ConnectionManager, C20_a_request_waits_as_long_as_the_slower_side_of_it_states) {
  for (const bool ours_is_slower : {false, true}) {
    World w;
    const ConnectionId id = asked_otherwise(w, [&](wire::CmReq& r) {
      r.local_response_timeout = ours_is_slower ? 12 : 18;
      r.remote_response_timeout = ours_is_slower ? 18 : 12;
    });
    EXPECT_EQ(w.server.manager.next_deadline() - w.now, retry_interval(10, 18) * 17);
    w.tick(w.server);
    EXPECT_EQ(w.server.event(EventType::Unreachable).connection, id);
    EXPECT_EQ(w.server.manager.counters().cm_rej_timeout, 1u);
  }
}

// C-20 lets the application have what the REQ grants; asking for patience takes nothing of it away.
TEST(ConnectionManager, an_MRA_never_shortens_the_time_an_application_has) {
  ManagerConfig patient = quick_config(false, 2);
  patient.mra_after = Duration::milliseconds(10);
  patient.mra_service_code = 9;
  World w(quick_config(false, 1), patient);
  w.request();
  const Instant before = w.server.manager.next_deadline();
  w.tick(w.client);
  w.to_server(w.one(w.client));
  read<wire::CmMra>(w.one(w.server));
  EXPECT_EQ(w.server.state(w.passive), State::MraReqSent);
  EXPECT_GE(w.server.manager.next_deadline(), before);
}

TEST(ConnectionManager, timewait_lasts_as_long_as_the_ACK_timeout_up_to_the_limit) {
  for (const std::uint8_t code : {std::uint8_t{14}, std::uint8_t{20}, std::uint8_t{31}}) {
    World w;
    ConnectParams connect = w.connect_params();
    connect.ack_timeout_code = code;
    w.request(connect);
    ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
    w.exchange();
    ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
    w.exchange();
    ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
    w.to_client(w.one(w.server));
    const std::uint8_t limit = w.client.manager.config().peer_timeout_code_limit;
    EXPECT_EQ(w.client.manager.next_deadline() - w.now, code_duration(std::min(code, limit)));
  }
}

TEST(ConnectionManager, listeners_are_bounded) {
  ManagerConfig config = quick_config(false, 2);
  config.listeners = 2;
  World w(quick_config(false, 1), config);  // whose listener is the first
  const ListenerId second = w.server.manager.listen(w.now, PortSpace::Tcp, 0, 1).value();
  EXPECT_EQ(w.server.manager.listen(w.now, PortSpace::Tcp, 0, 1).error().code(), ErrorCode::ResourceExhausted);
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, second).has_value());
  EXPECT_TRUE(w.server.manager.listen(w.now, PortSpace::Tcp, 0, 1).has_value());
}

TEST(ConnectionManager, no_more_messages_wait_than_its_queue_takes) {
  ManagerConfig config = quick_config(false, 1);
  config.outgoing_messages = 3;
  World w(config, quick_config(false, 2));
  for (std::uint32_t i = 0; i < 5; ++i) w.connect(0x100 + i);
  EXPECT_EQ(w.client.manager.counters().cm_drop_queue_full, 2u);
  EXPECT_EQ(w.client.sent(w.now).size(), 3u);
  EXPECT_EQ(w.client.manager.counters().cm_req_sent, 3u);
}

}  // namespace
}  // namespace verbena::cm
