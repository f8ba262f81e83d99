// SPDX-License-Identifier: Apache-2.0
// Messages that come from the right place and at the wrong time, or name something else than was asked.
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

template <class Message>
MadBytes stray_of(const Message& message, std::uint64_t transaction = 0) {
  wire::MadHeader header;
  header.transaction_id = transaction;
  MadBytes out{};
  wire::emit_mad(header, message, out);
  return out;
}

// The same message under another transaction.
template <class Message>
MadBytes retold(const MadBytes& mad) {
  return stray_of(read<Message>(mad), decode(mad).header.transaction_id ^ 1);
}

// Of what a server says behind its REP.
template <class Message>
Message of_server(const World& w) {
  const auto rep = read<wire::CmRep>(w.rep);
  Message message;
  message.local_comm_id = rep.local_comm_id;
  message.remote_comm_id = rep.remote_comm_id;
  return message;
}

template <class Message>
Message of_client(const World& w) {
  const auto rep = read<wire::CmRep>(w.rep);
  Message message;
  message.local_comm_id = rep.remote_comm_id;
  message.remote_comm_id = rep.local_comm_id;
  return message;
}

TEST(ConnectionManager, C10_a_REP_to_who_gave_one_itself_is_not_answered) {
  World w;
  w.establish();
  auto rep = of_client<wire::CmRep>(w);
  rep.local_qpn = Qpn{0x44};
  w.to_server(stray_of(rep, decode(w.rep).header.transaction_id));
  EXPECT_TRUE(w.silent(w.server));
  EXPECT_EQ(w.server.manager.counters().cm_drop_unknown_id, 1u);
  EXPECT_EQ(w.server.manager.counters().cm_duplicates, 0u);
}

TEST(ConnectionManager, C10_a_REP_of_another_connection_draws_no_RTU) {
  World w;
  w.establish();
  w.to_client(altered<wire::CmRep>(w.rep, [](wire::CmRep& r) { r.local_comm_id ^= 1; }));
  EXPECT_TRUE(w.silent(w.client));
  EXPECT_EQ(w.client.manager.counters().cm_drop_unknown_id, 1u);
}

TEST(ConnectionManager, C10_an_RTU_that_names_another_peer_establishes_nothing) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.to_server(altered<wire::CmRtu>(w.one(w.client), [](wire::CmRtu& r) { r.local_comm_id ^= 1; }));
  EXPECT_EQ(w.server.state(w.passive), State::RepSent);
  EXPECT_TRUE(w.server.events().empty());
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::InvalidCommunicationId);
}

TEST(ConnectionManager, a_REJ_of_another_transaction_rejects_nothing) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.reject(w.now, w.passive, {}).has_value());
  const MadBytes rej = w.one(w.server);
  w.to_client(retold<wire::CmRej>(rej));
  EXPECT_EQ(w.client.state(w.active), State::ReqSent);
  EXPECT_EQ(w.client.manager.counters().cm_drop_transaction, 1u);
  w.to_client(rej);
  w.client.event(EventType::Rejected);
}

TEST(ConnectionManager, C10_a_timeout_REJ_without_all_of_a_GUID_names_nobody) {
  World w;
  w.request();
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  const MadBytes rej = w.one(w.client);
  w.to_server(altered<wire::CmRej>(rej, [](wire::CmRej& r) { r.information_bytes = 7; }));
  EXPECT_EQ(w.server.state(w.passive), State::ReqReceived);
  w.to_server(rej);
  w.server.event(EventType::Rejected);
}

// The peer has nothing to say DREP with.
TEST(ConnectionManager, a_REJ_ends_the_wait_for_a_DREP) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.client.sent(w.now);  // lost
  auto rej = of_server<wire::CmRej>(w);
  rej.rejected = wire::CmMessageKind::Other;
  rej.reason = RejectReason::InvalidCommunicationId;
  w.to_client(stray_of(rej));
  EXPECT_EQ(w.client.state(w.active), State::TimeWait);
  w.client.event(EventType::Disconnected);
}

TEST(ConnectionManager, an_MRA_of_another_transaction_gives_no_time) {
  World w;
  w.request();
  wire::CmMra mra;
  mra.local_comm_id = 77;
  mra.remote_comm_id = read<wire::CmReq>(w.req).local_comm_id;
  mra.service_timeout = 20;
  const Instant deadline = w.client.manager.next_deadline();
  w.to_client(stray_of(mra, decode(w.req).header.transaction_id ^ 1));
  EXPECT_EQ(w.client.state(w.active), State::ReqSent);
  EXPECT_EQ(w.client.manager.next_deadline(), deadline);
  EXPECT_EQ(w.client.manager.counters().cm_drop_transaction, 1u);
}

TEST(ConnectionManager, an_MRA_adds_its_time_to_that_between_two_sendings) {
  World w;
  w.request();
  wire::CmMra mra;
  mra.local_comm_id = 77;
  mra.remote_comm_id = read<wire::CmReq>(w.req).local_comm_id;
  mra.service_timeout = 20;
  w.to_client(stray_of(mra, decode(w.req).header.transaction_id));
  EXPECT_GE(w.client.manager.next_deadline() - w.now, code_duration(20) + retry_interval(10, 14) * 7 / 8);
}

TEST(ConnectionManager, an_MRA_of_the_REP_is_taken_from_the_peer_it_was_sent_to_and_each_time) {
  World w;
  w.respond();
  auto mra = of_client<wire::CmMra>(w);
  mra.acknowledged = wire::CmMessageKind::Rep;
  mra.service_timeout = 16;
  const std::uint64_t transaction = decode(w.rep).header.transaction_id;
  const MadBytes rightly = stray_of(mra, transaction);
  mra.local_comm_id ^= 1;
  w.to_server(stray_of(mra, transaction));
  EXPECT_EQ(w.server.state(w.passive), State::RepSent);
  for (int i = 0; i < 2; ++i) {
    w.to_server(rightly);
    EXPECT_EQ(w.server.state(w.passive), State::MraRepReceived);
    w.tick(w.server);
    EXPECT_EQ(w.one(w.server), w.rep);
    EXPECT_EQ(w.server.state(w.passive), State::RepSent);
  }
}

TEST(ConnectionManager, C07_a_DREQ_to_who_rejected_the_response_is_answered) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.reject(w.now, w.active, {}).has_value());
  w.client.sent(w.now);  // lost
  ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value()) << "before the RTU";
  EXPECT_EQ(w.server.state(w.passive), State::DreqSent);
  w.to_client(w.one(w.server));
  w.to_server(w.one(w.client));
  EXPECT_EQ(w.server.state(w.passive), State::TimeWait);
  EXPECT_EQ(w.client.state(w.active), State::RejectSent);
}

TEST(ConnectionManager, C07_a_DREQ_that_crosses_ours_is_answered) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
  w.client.sent(w.now);  // lost
  const MadBytes dreq = w.one(w.server);
  w.to_client(dreq);
  const MadBytes drep = w.one(w.client);
  EXPECT_EQ(decode(drep).header.transaction_id, decode(dreq).header.transaction_id);
  w.to_server(drep);
  EXPECT_EQ(w.server.state(w.passive), State::TimeWait);
}

TEST(ConnectionManager, C09_a_DREP_that_nobody_asked_for_ends_nothing) {
  World w;
  w.establish();
  w.to_client(stray_of(of_server<wire::CmDrep>(w)));
  EXPECT_EQ(w.client.state(w.active), State::Established);
  EXPECT_TRUE(w.client.events().empty());
  EXPECT_EQ(w.client.manager.counters().cm_drop_state, 1u);
}

TEST(ConnectionManager, a_disconnect_is_a_transaction_of_its_own) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  EXPECT_NE(decode(w.one(w.client)).header.transaction_id, decode(w.req).header.transaction_id);
}

TEST(ConnectionManager, what_answers_a_stranger_carries_no_congestion_mark_of_the_network) {
  World w;
  w.establish();
  const wire::Path marked = path_between(w.server.gid(), w.client.gid(), 0x6b);
  w.client.manager.handle_mad(w.now, marked,
                              altered<wire::CmRep>(w.rep, [](wire::CmRep& r) { r.remote_comm_id ^= 1; }));
  auto dreq = of_server<wire::CmDreq>(w);
  dreq.remote_comm_id ^= 1;
  w.client.manager.handle_mad(w.now, marked, stray_of(dreq));
  w.client.manager.handle_mad(w.now, marked,
                              stray_of([&] {
                                auto rtu = of_server<wire::CmRtu>(w);
                                rtu.remote_comm_id ^= 1;
                                return rtu;
                              }()));
  const auto answers = w.client.sent(w.now);
  ASSERT_EQ(answers.size(), 3u);
  for (const OutgoingMad& answer : answers) EXPECT_EQ(answer.traffic_class, 0x68);
}

TEST(ConnectionManager, C01_a_duplicate_REQ_meets_a_connection_that_is_being_closed_as_stale) {
  World w;
  w.establish();
  ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
  w.server.sent(w.now);  // lost
  w.to_server(w.req);
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::StaleConnection);
  EXPECT_EQ(w.server.state(w.passive), State::DreqSent);
}

TEST(ConnectionManager, C02_a_REQ_from_the_queue_pair_of_an_accepted_request_ends_that_connection) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  w.server.sent(w.now);  // lost
  w.to_server(altered<wire::CmReq>(w.req, [](wire::CmReq& r) { r.local_comm_id ^= 1; }));
  EXPECT_EQ(w.server.event(EventType::ConnectError).reason, 10);
  EXPECT_EQ(w.server.state(w.passive), State::DreqSent);
  const auto answers = w.server.sent(w.now);
  ASSERT_EQ(answers.size(), 2u);
  read<wire::CmDreq>(answers[0].bytes);
  EXPECT_EQ(read<wire::CmRej>(answers[1].bytes).reason, RejectReason::StaleConnection);
  while (!w.server.manager.next_deadline().is_never()) w.tick(w.server);
  w.server.event(EventType::TimewaitExit);
}

TEST(ConnectionManager, C02_a_REP_from_the_queue_pair_of_a_response_not_yet_confirmed_ends_both) {
  World w;
  w.respond();
  const ConnectionId second = w.connect(0x45);
  w.to_server(w.one(w.client));
  const Event request = w.server.event(EventType::ConnectRequest);
  ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept_params(0x55)).has_value());
  w.to_client(w.one(w.server));
  const auto events = w.client.events();
  ASSERT_EQ(events.size(), 2u);
  for (const Event& event : events) {
    EXPECT_EQ(to_string(event.type), to_string(EventType::ConnectError));
    EXPECT_EQ(event.reason, 10);
  }
  EXPECT_EQ(w.client.state(w.active), State::Idle);
  EXPECT_EQ(w.client.state(second), State::Idle);
}

TEST(ConnectionManager, C02_a_REP_by_the_id_of_a_live_connection_is_stale) {
  World w;
  w.establish();
  const ConnectionId second = w.connect(0x45);
  w.to_server(w.one(w.client));
  const Event request = w.server.event(EventType::ConnectRequest);
  ASSERT_TRUE(w.server.manager.accept(w.now, request.connection, accept_params(0x56)).has_value());
  const std::uint32_t live = read<wire::CmRep>(w.rep).local_comm_id;
  w.to_client(altered<wire::CmRep>(w.one(w.server), [&](wire::CmRep& r) { r.local_comm_id = live; }));
  EXPECT_EQ(w.client.event(EventType::ConnectError).connection, second);
  EXPECT_EQ(read<wire::CmRej>(w.one(w.client)).reason, RejectReason::StaleConnection);
  EXPECT_EQ(w.client.state(w.active), State::Established);
}

}  // namespace
}  // namespace verbena::cm
