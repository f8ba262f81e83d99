// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

std::uint16_t number(RejectReason reason) { return static_cast<std::uint16_t>(reason); }

void connect_and_close(bool ipv6) {
  World w(ipv6);
  const auto hello = bytes_of("hello");
  const auto welcome = bytes_of("welcome");
  ConnectParams connect = w.connect_params();
  connect.private_data = hello;
  w.active = w.client.manager.connect(w.now, connect).value();
  w.exchange();
  const Event request = w.server.event(EventType::ConnectRequest);
  w.passive = request.connection;
  EXPECT_EQ(request.listener, w.listener);
  EXPECT_EQ(request.parameters.remote, w.client.gid());
  EXPECT_EQ(request.parameters.remote_qpn, Qpn{0x44});
  EXPECT_EQ(request.parameters.remote_psn, Psn{0x4000});
  EXPECT_EQ(request.parameters.local_port, kPort);
  EXPECT_EQ(request.parameters.path_mtu_bytes, 1024u);
  EXPECT_TRUE(std::equal(hello.begin(), hello.end(), request.private_data.bytes.begin()));

  AcceptParams accept = accept_params();
  accept.private_data = welcome;
  accept.rnr_retry_count = 3;
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept).has_value());
  w.exchange();
  const Event response = w.client.event(EventType::ConnectResponse);
  EXPECT_EQ(response.parameters.remote_qpn, Qpn{0x55});
  EXPECT_EQ(response.parameters.remote_psn, Psn{0x5000});
  EXPECT_EQ(response.parameters.rnr_retry_count, 3);
  EXPECT_EQ(response.parameters.remote_port, kPort);
  EXPECT_EQ(response.parameters.local_port, request.parameters.remote_port);
  EXPECT_TRUE(std::equal(welcome.begin(), welcome.end(), response.private_data.bytes.begin()));
  EXPECT_EQ(w.server.manager.half_open(), 1u);

  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.exchange();
  w.client.event(EventType::Established);
  w.server.event(EventType::Established);
  EXPECT_EQ(w.server.manager.half_open(), 0u);
  EXPECT_TRUE(w.client.manager.next_deadline().is_never());
  EXPECT_TRUE(w.server.manager.next_deadline().is_never());

  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.exchange();
  w.server.event(EventType::Disconnected);
  w.client.event(EventType::Disconnected);
  w.settle();
  w.server.event(EventType::TimewaitExit);
  w.client.event(EventType::TimewaitExit);
  w.destroy_both();
  w.expect_nothing_left();
}

TEST(ConnectionManager, C13_connects_and_closes_with_events_in_order_over_ipv4) { connect_and_close(false); }
TEST(ConnectionManager, C13_connects_and_closes_with_events_in_order_over_ipv6) { connect_and_close(true); }

TEST(ConnectionManager, connects_a_device_to_itself) {
  Node node(quick_config(false, 1), 5);
  const Instant now{0};
  ASSERT_TRUE(node.manager.listen(now, PortSpace::Tcp, kPort, 1).has_value());
  ConnectParams p;
  p.remote = node.gid();
  p.port = kPort;
  p.qpn = Qpn{0x44};
  const ConnectionId active = node.manager.connect(now, p).value();
  ConnectionId passive;
  int established = 0;
  for (int round = 0; round < 4; ++round) {
    for (const auto& mad : node.sent(now)) {
      node.manager.handle_mad(now, path_between(node.gid(), node.gid()), mad.bytes);
    }
    for (const Event& event : node.events()) {
      if (event.type == EventType::ConnectRequest) {
        passive = event.connection;
        ASSERT_TRUE(node.manager.accept(now, passive, accept_params()).has_value());
      } else if (event.type == EventType::ConnectResponse) {
        ASSERT_TRUE(node.manager.confirm(now, active).has_value());
      } else if (event.type == EventType::Established) {
        ++established;
      }
    }
  }
  EXPECT_EQ(established, 2);
}

TEST(ConnectionManager, C01_a_duplicate_REQ_makes_no_second_connection) {
  World w;
  w.request();
  w.to_server(w.req);
  EXPECT_TRUE(w.silent(w.server));  // pending: the application has not spoken
  EXPECT_TRUE(w.server.events().empty());
  EXPECT_EQ(w.server.manager.connections(), 1u);

  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  const MadBytes rep = w.one(w.server);
  w.to_server(w.req);
  EXPECT_EQ(w.one(w.server), rep);

  w.to_client(rep);
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.exchange();
  w.server.events();
  w.to_server(w.req);
  EXPECT_TRUE(w.silent(w.server));
  EXPECT_TRUE(w.server.events().empty());
  EXPECT_EQ(w.server.manager.connections(), 1u);
}

TEST(ConnectionManager, C01_a_duplicate_REQ_after_reject_meets_the_same_REJ) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.reject(w.now, w.passive, bytes_of("no")).has_value());
  const MadBytes rej = w.one(w.server);
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  w.to_server(w.req);
  EXPECT_EQ(w.one(w.server), rej);
  EXPECT_TRUE(w.server.events().empty());

  w.to_client(rej);
  const Event rejected = w.client.event(EventType::Rejected);
  EXPECT_EQ(rejected.reason, 28);
  EXPECT_EQ(rejected.private_data.size, kRejectPrivateBytes);
  EXPECT_EQ(rejected.private_data.bytes[1], std::byte{'o'});
  w.settle();
  EXPECT_EQ(w.server.manager.footprint(), 0u);
}

TEST(ConnectionManager, C01_a_duplicate_REQ_in_timewait_is_stale) {
  World w;
  w.establish();
  ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
  w.exchange();
  w.server.events();
  w.to_server(w.req);
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::StaleConnection);
  EXPECT_TRUE(w.server.events().empty());
}

TEST(ConnectionManager, C02_a_REQ_from_a_live_queue_pair_is_stale_and_ends_the_old_connection) {
  World w;
  w.establish();
  Node restarted(w.client.manager.config(), 99);  // same device, same queue pair number, nothing remembered
  ASSERT_TRUE(restarted.manager.connect(w.now, w.connect_params()).has_value());
  w.give(restarted, w.server, w.one(restarted));
  const auto answers = w.server.sent(w.now);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(read<wire::CmDreq>(answers[0].bytes).remote_qpn, Qpn{0x44});
  EXPECT_EQ(read<wire::CmRej>(answers[1].bytes).reason, RejectReason::StaleConnection);
  for (const auto& mad : answers) w.give(w.server, restarted, mad.bytes);
  EXPECT_EQ(restarted.event(EventType::Rejected).reason, 10);
  w.give(restarted, w.server, w.one(restarted));  // DREP of one who knows nothing
  EXPECT_EQ(w.server.event(EventType::Disconnected).reason, 10);
  EXPECT_EQ(w.server.state(w.passive), State::TimeWait);
}

TEST(ConnectionManager, C02_a_REQ_from_the_queue_pair_of_a_pending_request_ends_that_request) {
  World w;
  w.request();
  const MadBytes other = altered<wire::CmReq>(w.req, [](wire::CmReq& r) { r.local_comm_id ^= 1; });
  w.to_server(other);
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::StaleConnection);
  EXPECT_EQ(w.server.event(EventType::ConnectError).reason, 10);
  EXPECT_EQ(w.server.state(w.passive), State::Idle);
}

TEST(ConnectionManager, C02_a_REP_from_a_live_queue_pair_is_stale) {
  World w;
  w.establish();
  const ConnectionId second = w.connect(0x45);
  w.to_server(w.one(w.client));
  const Event request = w.server.event(EventType::ConnectRequest);
  ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept_params(0x55)).has_value());
  w.to_client(w.one(w.server));
  EXPECT_EQ(w.client.event(EventType::ConnectError).reason, 10);
  EXPECT_EQ(w.client.state(second), State::Idle);
  EXPECT_EQ(w.client.state(w.active), State::DreqSent);
  w.exchange();
  const auto events = w.server.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::Rejected);
  EXPECT_EQ(events[1].type, EventType::Disconnected);
}

TEST(ConnectionManager, C03_a_REQ_without_listener_is_refused_with_reason_8) {
  World w;
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, w.listener).has_value());
  w.connect();
  w.exchange();
  EXPECT_EQ(w.client.event(EventType::Rejected).reason, 8);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  EXPECT_EQ(w.server.manager.counters().cm_rej_no_listener, 1u);
}

TEST(ConnectionManager, C03_other_port_spaces_and_foreign_service_ids_have_no_listener) {
  World w;
  w.connect();
  const MadBytes req = w.one(w.client);
  for (const std::uint64_t id :
       {std::uint64_t{0x013f0000} | kPort, std::uint64_t{1} << 32 | 0x01060000 | kPort,
        std::uint64_t{0xffffffffffffffff}, std::uint64_t{0}}) {
    w.to_server(altered<wire::CmReq>(req, [&](wire::CmReq& r) { r.service_id = id; }));
    EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::InvalidServiceId);
  }
}

TEST(ConnectionManager, requests_not_yet_seen_are_refused_when_the_listener_stops) {
  World w;
  w.request();  // seen
  w.connect(0x45);
  w.exchange();  // not seen
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, w.listener).has_value());
  EXPECT_TRUE(w.server.events().empty());
  w.exchange();
  EXPECT_EQ(w.client.event(EventType::Rejected).reason, 8);
  EXPECT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
}

TEST(ConnectionManager, C05_a_lost_REP_is_sent_again_by_timer) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  const MadBytes lost = w.one(w.server);
  w.tick(w.server);
  const MadBytes again = w.one(w.server);
  EXPECT_EQ(lost, again);
  w.to_client(again);
  w.client.event(EventType::ConnectResponse);
  EXPECT_GE(w.server.manager.counters().cm_retries, 1u);
}

TEST(ConnectionManager, C06_a_lost_RTU_is_sent_again_for_a_repeated_REP) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  const MadBytes lost = w.one(w.client);
  w.tick(w.server);
  w.to_client(w.one(w.server));
  const MadBytes again = w.one(w.client);
  EXPECT_EQ(lost, again);
  w.to_server(again);
  w.server.event(EventType::Established);
  w.client.event(EventType::Established);
  w.to_server(again);
  EXPECT_TRUE(w.server.events().empty());
}

TEST(ConnectionManager, C06_data_before_RTU_establishes) {
  World w;
  w.respond();
  ASSERT_TRUE(w.server.manager.establish(w.now, w.passive).has_value());
  w.server.event(EventType::Established);
  ASSERT_TRUE(w.server.manager.establish(w.now, w.passive).has_value());
  EXPECT_TRUE(w.server.events().empty());
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.exchange();
  EXPECT_TRUE(w.server.events().empty());
}

TEST(ConnectionManager, C13_a_requester_that_hears_nothing_ends_unreachable) {
  World w;
  w.active = w.connect();
  int sent = 1;
  w.one(w.client);
  while (!w.client.manager.next_deadline().is_never()) {
    w.tick(w.client);
    for (const auto& mad : w.client.sent(w.now)) sent += decode(mad.bytes).is<wire::CmReq>() ? 1 : 0;
  }
  EXPECT_EQ(sent, 16);
  w.client.event(EventType::Unreachable);
  EXPECT_EQ(w.client.state(w.active), State::Idle);
}

TEST(ConnectionManager, C13_an_acceptor_that_hears_nothing_ends_unreachable_and_says_so) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.client.events();
  w.client.sent(w.now);  // lost
  int reps = 0;
  while (w.server.state(w.passive) == State::RepSent) {
    w.tick(w.server);
    for (const auto& mad : w.server.sent(w.now)) {
      if (decode(mad.bytes).is<wire::CmRep>()) ++reps;
      if (decode(mad.bytes).is<wire::CmDreq>()) w.to_client(mad.bytes);
    }
  }
  EXPECT_EQ(reps, 15);
  w.server.event(EventType::Unreachable);
  w.client.event(EventType::Disconnected);
  w.settle();
  EXPECT_EQ(w.server.event(EventType::TimewaitExit).connection, w.passive);
}

TEST(ConnectionManager, an_RTU_for_a_connection_that_is_gone_is_answered_by_REJ_6) {
  World w;
  w.establish();
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  while (!w.server.manager.next_deadline().is_never()) w.tick(w.server);
  w.server.sent(w.now);  // every DREQ is lost
  EXPECT_EQ(w.server.manager.footprint(), 0u);
  w.to_server(w.rtu);
  w.exchange();
  EXPECT_EQ(w.client.event(EventType::Disconnected).reason, 6);
}

TEST(ConnectionManager, the_active_side_may_reject_a_response) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.reject(w.now, w.active, bytes_of("not you")).has_value());
  const MadBytes lost = w.one(w.client);
  w.tick(w.server);
  w.to_client(w.one(w.server));
  EXPECT_EQ(w.one(w.client), lost);
  w.to_server(lost);
  const Event rejected = w.server.event(EventType::Rejected);
  EXPECT_EQ(rejected.reason, 28);
  EXPECT_EQ(rejected.private_data.bytes[0], std::byte{'n'});
  w.destroy_both();
  w.settle();
  w.expect_nothing_left();
}

TEST(ConnectionManager, an_MRA_stretches_the_patience_of_the_requester) {
  World w;
  w.request();
  const Instant before = w.client.manager.next_deadline();
  wire::CmMra mra;
  mra.local_comm_id = 77;
  mra.remote_comm_id = read<wire::CmReq>(w.req).local_comm_id;
  mra.service_timeout = 20;
  MadBytes bytes{};
  wire::emit_mad(decode(w.req).header, mra, bytes);
  w.to_client(bytes);
  EXPECT_EQ(w.client.state(w.active), State::MraReqReceived);
  EXPECT_GE(w.client.manager.next_deadline() - before, Duration::seconds(3));
  w.tick(w.client);
  EXPECT_EQ(w.one(w.client), w.req);
  EXPECT_EQ(w.client.state(w.active), State::ReqSent);
}

TEST(ConnectionManager, an_MRA_is_sent_for_a_repeated_REQ_when_the_application_is_slow) {
  ManagerConfig patient = quick_config(false, 2);
  patient.mra_after = Duration::milliseconds(10);
  World w(quick_config(false, 1), patient);
  w.request();
  w.to_server(w.req);
  EXPECT_TRUE(w.silent(w.server));
  w.tick(w.client);
  w.exchange();
  EXPECT_EQ(w.client.state(w.active), State::MraReqReceived);
  EXPECT_EQ(w.server.state(w.passive), State::MraReqSent);
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  w.exchange();
  w.client.event(EventType::ConnectResponse);
}

TEST(ConnectionManager, an_MRA_asks_for_no_less_than_the_REQ_grants_anyway) {
  for (const std::uint8_t granted : {std::uint8_t{14}, std::uint8_t{20}}) {
    ManagerConfig asking = quick_config(false, 1), patient = quick_config(false, 2);
    asking.response_timeout_code = granted;
    patient.mra_after = Duration::milliseconds(10);
    patient.mra_service_code = 16;
    World w(asking, patient);
    w.request();
    w.tick(w.client);
    w.to_server(w.one(w.client));
    EXPECT_EQ(read<wire::CmMra>(w.one(w.server)).service_timeout, std::max<int>(granted, 16));
  }
}

TEST(ConnectionManager, an_application_may_take_longer_than_sixteen_sendings_without_MRA) {
  ManagerConfig patient = quick_config(false, 2);
  patient.mra_after = Duration::milliseconds(10);
  patient.mra_service_code = 19;
  World w(quick_config(false, 1), patient);
  w.request();
  const Instant asked = w.now;
  while (w.now - asked < retry_interval(10, 14) * 100) {
    w.tick(w.client);
    w.server.manager.handle_timeout(w.now);
    w.exchange();
  }
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  w.exchange();
  w.client.event(EventType::ConnectResponse);
}

TEST(ConnectionManager, an_MRA_is_sent_for_a_repeated_REP_when_the_application_is_slow) {
  ManagerConfig patient = quick_config(false, 1);
  patient.mra_after = Duration::milliseconds(10);
  World w(patient, quick_config(false, 2));
  w.respond();
  w.tick(w.server);
  w.exchange();
  EXPECT_EQ(w.server.state(w.passive), State::MraRepReceived);
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.exchange();
  w.server.event(EventType::Established);
}

TEST(ConnectionManager, C12_private_data_has_its_exact_sizes) {
  World w;
  const std::vector<std::byte> data(200, std::byte{0xab});
  const auto first = [&](std::size_t n) { return std::span(data).first(n); };
  ConnectParams connect = w.connect_params();
  connect.private_data = first(57);
  EXPECT_EQ(w.client.manager.connect(w.now, connect).error().code(), ErrorCode::InvalidArgument);
  connect.private_data = first(56);
  w.active = w.client.manager.connect(w.now, connect).value();
  w.exchange();
  const Event request = w.server.event(EventType::ConnectRequest);
  EXPECT_EQ(request.private_data.size, 56u);
  EXPECT_EQ(request.private_data.bytes[55], std::byte{0xab});
  AcceptParams accept = accept_params();
  accept.private_data = first(197);
  EXPECT_EQ(w.server.manager.accept(w.now, request.connection, accept).error().code(),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(w.server.manager.reject(w.now, request.connection, first(149)).error().code(),
            ErrorCode::InvalidArgument);
  accept.private_data = first(196);
  ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept).has_value());
  w.exchange();
  const Event response = w.client.event(EventType::ConnectResponse);
  EXPECT_EQ(response.private_data.size, 196u);
  EXPECT_EQ(response.private_data.bytes[195], std::byte{0xab});
  ASSERT_TRUE(w.client.manager.reject(w.now, w.active, first(148)).has_value());
  w.exchange();
  const Event rejected = w.server.event(EventType::Rejected);
  EXPECT_EQ(rejected.private_data.size, 148u);
  EXPECT_EQ(rejected.private_data.bytes[147], std::byte{0xab});
}

TEST(ConnectionManager, C12_shorter_private_data_arrives_zero_padded) {
  World w;
  const auto hi = bytes_of("hi");
  ConnectParams connect = w.connect_params();
  connect.private_data = hi;
  ASSERT_TRUE(w.client.manager.connect(w.now, connect).has_value());
  w.exchange();
  const Event request = w.server.event(EventType::ConnectRequest);
  EXPECT_EQ(request.private_data.size, 56u);
  for (std::size_t i = 2; i < 56; ++i) EXPECT_EQ(request.private_data.bytes[i], std::byte{0});
}

TEST(ConnectionManager, C19_depths_exceed_neither_side) {
  ManagerConfig small = quick_config(false, 2);
  small.max_responder_resources = 3;
  small.max_initiator_depth = 2;
  World w(quick_config(false, 1), small);
  ConnectParams connect = w.connect_params();
  connect.responder_resources = 200;  // cut to the client's own 16
  connect.initiator_depth = 8;
  w.active = w.client.manager.connect(w.now, connect).value();
  const MadBytes req = w.one(w.client);
  EXPECT_EQ(read<wire::CmReq>(req).responder_resources, 16);
  w.to_server(req);
  const Event request = w.server.event(EventType::ConnectRequest);
  EXPECT_EQ(request.parameters.responder_resources, 3);
  EXPECT_EQ(request.parameters.initiator_depth, 2);
  AcceptParams accept = accept_params();
  accept.responder_resources = 100;
  accept.initiator_depth = 1;
  ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept).has_value());
  const MadBytes rep = w.one(w.server);
  EXPECT_EQ(read<wire::CmRep>(rep).responder_resources, 3);
  EXPECT_EQ(read<wire::CmRep>(rep).initiator_depth, 1);
  // A peer that claims more than it was offered gets no more.
  w.to_client(
      altered<wire::CmRep>(rep, [](wire::CmRep& r) { r.responder_resources = r.initiator_depth = 255; }));
  const Event response = w.client.event(EventType::ConnectResponse);
  EXPECT_EQ(response.parameters.responder_resources, 16);
  EXPECT_EQ(response.parameters.initiator_depth, 8);
}

TEST(ConnectionManager, timeouts_are_those_of_the_format_reference) {
  EXPECT_EQ(retry_interval(16, 20), Duration::milliseconds(512 + 4096));
  EXPECT_EQ(ack_timeout_code(15, 16), 17);
  EXPECT_EQ(ack_timeout_code(15, 18), 19);
  EXPECT_EQ(code_duration(0), Duration::milliseconds(1));
  EXPECT_EQ(code_duration(8), Duration::milliseconds(1));
  EXPECT_EQ(code_duration(17), Duration::milliseconds(512));
}

TEST(ConnectionManager, a_peer_that_states_absurd_times_is_cut_to_the_limit) {
  World w;
  w.connect();
  const MadBytes req = altered<wire::CmReq>(w.one(w.client), [](wire::CmReq& r) {
    r.local_response_timeout = r.remote_response_timeout = 31;
    r.primary.ack_timeout = 31;
  });
  w.to_server(req);
  const Event request = w.server.event(EventType::ConnectRequest);
  EXPECT_EQ(request.parameters.ack_timeout_code, 21);
  const Duration life = w.server.manager.next_deadline() - w.now;
  EXPECT_LE(life, (code_duration(21) + code_duration(10) * 2) * 17);
}

TEST(ConnectionManager, a_requester_without_ACK_timeout_is_given_one) {
  World w;
  w.connect();
  w.to_server(altered<wire::CmReq>(w.one(w.client), [](wire::CmReq& r) { r.primary.ack_timeout = 0; }));
  EXPECT_NE(w.server.event(EventType::ConnectRequest).parameters.ack_timeout_code, 0);
}

TEST(ConnectionManager, commands_refuse_what_does_not_fit_the_state) {
  World w;
  w.request();
  Manager& client = w.client.manager;
  Manager& server = w.server.manager;
  const auto code = [](const Result<void>& r) {
    return r.has_value() ? ErrorCode::Internal : r.error().code();
  };
  EXPECT_EQ(code(client.confirm(w.now, w.active)), ErrorCode::WrongState);
  EXPECT_EQ(code(client.accept(w.now, w.active, accept_params())), ErrorCode::WrongState);
  EXPECT_EQ(code(client.reject(w.now, w.active)), ErrorCode::WrongState);
  EXPECT_EQ(code(client.disconnect(w.now, w.active)), ErrorCode::WrongState);
  EXPECT_EQ(code(server.establish(w.now, w.passive)), ErrorCode::WrongState);
  EXPECT_EQ(code(server.disconnect(w.now, w.passive)), ErrorCode::WrongState);
  EXPECT_EQ(code(server.accept(w.now, w.passive, accept_params(1))), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(server.accept(w.now, ConnectionId{999}, accept_params())), ErrorCode::NotFound);
  EXPECT_EQ(code(server.destroy(w.now, ConnectionId{})), ErrorCode::NotFound);
}

TEST(ConnectionManager, connect_and_listen_refuse_bad_arguments) {
  World w;
  const auto code = [&](auto change) {
    ConnectParams p = w.connect_params();
    change(p);
    const auto r = w.client.manager.connect(w.now, p);
    return r.has_value() ? ErrorCode::Internal : r.error().code();
  };
  EXPECT_EQ(code([](ConnectParams& p) { p.remote = Gid{}; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.remote = gid_of(true, 2); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.port = 0; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.qpn = kGsiQpn; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.qpn = kMulticastQpn; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.path_mtu_bytes = 1500; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.retry_count = 8; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code([](ConnectParams& p) { p.port_space = PortSpace::Udp; }), ErrorCode::NotSupported);

  Manager& server = w.server.manager;
  EXPECT_EQ(server.listen(w.now, PortSpace::Tcp, kPort, 1).error().code(), ErrorCode::AddressInUse);
  EXPECT_TRUE(server.listen(w.now, PortSpace::Ib, kPort, 1).has_value());
  EXPECT_EQ(server.listen(w.now, PortSpace::Tcp, 1, 0).error().code(), ErrorCode::InvalidArgument);
  const ListenerId any = server.listen(w.now, PortSpace::Tcp, 0, 1).value();
  EXPECT_GE(server.listening_port(any).value(), 49152);
  ASSERT_TRUE(server.stop_listening(w.now, w.listener).has_value());
  EXPECT_FALSE(server.stop_listening(w.now, w.listener).has_value());
  EXPECT_TRUE(server.listen(w.now, PortSpace::Tcp, kPort, 1).has_value());
}

TEST(ConnectionManager, refuses_transports_and_path_MTUs_it_cannot_serve) {
  World w;
  w.connect();
  const MadBytes req = w.one(w.client);
  const auto answer = [&](auto change) {
    w.to_server(altered<wire::CmReq>(req, change));
    return number(read<wire::CmRej>(w.one(w.server)).reason);
  };
  EXPECT_EQ(answer([](wire::CmReq& r) { r.transport = wire::CmTransport::Uc; }), 9);
  EXPECT_EQ(answer([](wire::CmReq& r) { r.path_mtu = 0; }), 26);
  EXPECT_EQ(answer([](wire::CmReq& r) { r.path_mtu = 6; }), 26);
  EXPECT_EQ(answer([](wire::CmReq& r) { r.primary.remote_gid = gid_of(false, 9); }), 12);
}

}  // namespace
}  // namespace verbena::cm
