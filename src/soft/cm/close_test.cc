// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

TEST(ConnectionManager, C05_a_lost_DREQ_is_sent_again_and_the_end_comes_in_any_case) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  int sent = 0;
  while (w.client.state(w.active) == State::DreqSent) {
    for (const auto& mad : w.client.sent(w.now)) sent += decode(mad.bytes).is<wire::CmDreq>() ? 1 : 0;
    w.tick(w.client);
  }
  EXPECT_EQ(sent, 16);
  w.client.event(EventType::Disconnected);
  w.tick(w.client);
  w.client.event(EventType::TimewaitExit);
}

TEST(ConnectionManager, both_sides_may_disconnect_at_once) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
  w.exchange();
  w.client.event(EventType::Disconnected);
  w.server.event(EventType::Disconnected);
  EXPECT_EQ(w.client.state(w.active), State::TimeWait);
  EXPECT_EQ(w.server.state(w.passive), State::TimeWait);
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  EXPECT_TRUE(w.silent(w.client));
}

TEST(ConnectionManager, C07_a_repeated_DREQ_is_answered_in_timewait_and_after) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  const MadBytes dreq = w.one(w.client);
  w.to_server(dreq);
  const MadBytes drep = w.one(w.server);
  w.to_server(dreq);
  EXPECT_EQ(w.one(w.server), drep);
  w.tick(w.server);
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  EXPECT_EQ(w.server.manager.connections(), 0u);
  w.to_server(dreq);
  EXPECT_EQ(w.one(w.server), drep);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  w.to_client(drep);
  w.client.event(EventType::Disconnected);
}

TEST(ConnectionManager, C08_a_DREQ_for_another_queue_pair_is_ignored) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.to_server(altered<wire::CmDreq>(w.one(w.client), [](wire::CmDreq& d) { d.remote_qpn = Qpn{0x56}; }));
  EXPECT_TRUE(w.silent(w.server));
  EXPECT_TRUE(w.server.events().empty());
  EXPECT_EQ(w.server.state(w.passive), State::Established);
  EXPECT_EQ(w.server.manager.counters().cm_drop_qpn, 1u);
}

TEST(ConnectionManager, C09_a_REJ_of_the_REQ_does_nothing_to_an_established_connection) {
  World w;
  w.establish();
  const Decoded req = decode(w.req);
  wire::CmRej rej;
  rej.remote_comm_id = req.as<wire::CmReq>().local_comm_id;
  rej.rejected = wire::CmMessageKind::Req;
  MadBytes bytes{};
  wire::emit_mad(req.header, rej, bytes);
  w.to_client(bytes);
  EXPECT_EQ(w.client.state(w.active), State::Established);
  EXPECT_EQ(w.client.manager.counters().cm_drop_state, 1u);
}

TEST(ConnectionManager, C09_a_REJ_in_timewait_is_ignored) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.exchange();
  w.client.events();
  wire::CmRej rej;
  const auto rtu = read<wire::CmRtu>(w.rtu);
  rej.local_comm_id = rtu.remote_comm_id;
  rej.remote_comm_id = rtu.local_comm_id;
  rej.rejected = wire::CmMessageKind::Other;
  MadBytes bytes{};
  wire::emit_mad(wire::MadHeader{}, rej, bytes);
  w.to_client(bytes);
  EXPECT_EQ(w.client.state(w.active), State::TimeWait);
  EXPECT_TRUE(w.client.events().empty());
}

TEST(ConnectionManager, C10_messages_with_unknown_ids_change_nothing) {
  World w;
  w.establish();
  const auto rtu = read<wire::CmRtu>(w.rtu);
  const auto each = [&](std::uint32_t ours, std::uint32_t theirs) {
    const auto give = [&](auto message) {
      message.local_comm_id = theirs;
      message.remote_comm_id = ours;
      MadBytes bytes{};
      wire::emit_mad(wire::MadHeader{}, message, bytes);
      w.to_server(bytes);
    };
    wire::CmRep rep;
    rep.local_qpn = Qpn{0x99};
    give(rep);
    give(wire::CmRtu{});
    wire::CmDreq dreq;
    dreq.remote_qpn = Qpn{0x55};
    give(dreq);
    give(wire::CmDrep{});
    give(wire::CmMra{});
    for (const auto kind : {wire::CmMessageKind::Req, wire::CmMessageKind::Rep, wire::CmMessageKind::Other}) {
      wire::CmRej rej;
      rej.rejected = kind;
      give(rej);
      rej.reason = RejectReason::Timeout;
      rej.information_bytes = 8;
      give(rej);
    }
  };
  each(0xdeadbeef, 0xfeedface);
  each(rtu.remote_comm_id, 0xfeedface);
  each(0xdeadbeef, rtu.local_comm_id);
  each(rtu.remote_comm_id, 0);
  EXPECT_EQ(w.server.state(w.passive), State::Established);
  EXPECT_TRUE(w.server.events().empty());
  EXPECT_EQ(w.server.manager.connections(), 1u);
  EXPECT_GT(w.server.manager.counters().cm_drop_unknown_id, 0u);
}

TEST(ConnectionManager, C10_an_unknown_REP_is_answered_so_that_its_sender_can_stop) {
  World w;
  w.request();
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  w.client.sent(w.now);  // its REJ is lost
  EXPECT_EQ(w.client.manager.footprint(), 0u);
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  w.exchange();
  EXPECT_EQ(w.server.event(EventType::Rejected).reason, 6);
}

TEST(ConnectionManager, a_DREQ_before_the_RTU_establishes_and_ends) {
  World w;
  w.respond();
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.client.sent(w.now);  // RTU lost
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.exchange();
  const auto events = w.server.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::Established);
  EXPECT_EQ(events[1].type, EventType::Disconnected);
}

TEST(ConnectionManager, a_DREQ_before_confirm_is_a_failed_connect) {
  World w;
  w.respond();
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  w.exchange();
  w.client.event(EventType::ConnectError);
  EXPECT_FALSE(w.client.manager.confirm(w.now, w.active).has_value());
}

// Who never said no.
TEST(ConnectionManager, a_request_that_is_destroyed_behind_its_listener_meets_no_service) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, w.listener).has_value());
  ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::InvalidServiceId);
  EXPECT_EQ(w.server.manager.counters().cm_rej_no_listener, 1u);
}

TEST(ConnectionManager, destroying_a_live_connection_tears_it_down) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  EXPECT_FALSE(w.client.manager.query(w.active).has_value());
  w.exchange();
  w.server.event(EventType::Disconnected);
  EXPECT_EQ(w.client.manager.connections(), 1u);  // timewait, nobody's
  w.settle();
  EXPECT_EQ(w.client.manager.connections(), 0u);
  EXPECT_TRUE(w.client.events().empty());
}

TEST(ConnectionManager, destroy_works_in_every_state_and_leaves_nothing) {
  for (int stage = 0; stage < 6; ++stage) {
    for (const bool client_too : {false, true}) {
      World w;
      if (stage == 0) w.request();
      if (stage == 1) w.respond();
      if (stage >= 2) w.establish();
      if (stage == 3) {
        ASSERT_TRUE(w.server.manager.disconnect(w.now, w.passive).has_value());
      } else if (stage >= 4) {
        ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
        w.exchange();
        if (stage == 5) w.settle();
      }
      ASSERT_TRUE(w.server.manager.destroy(w.now, w.passive).has_value());
      if (client_too) {
        ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
      }
      w.settle();
      EXPECT_EQ(w.server.manager.footprint(), 0u) << stage;
      EXPECT_TRUE(w.server.events().empty());
      if (!client_too) {
        EXPECT_FALSE(w.client.events().empty() && stage < 4) << stage;
        EXPECT_EQ(w.client.state(w.active), State::Idle);
        ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
      }
      EXPECT_EQ(w.client.manager.footprint(), 0u) << stage;
    }
  }
}

TEST(ConnectionManager, a_connection_lost_by_REJ_is_disconnected) {
  World w;
  w.establish();
  const auto rtu = read<wire::CmRtu>(w.rtu);
  wire::CmRej rej;
  rej.local_comm_id = rtu.remote_comm_id;
  rej.remote_comm_id = rtu.local_comm_id;
  rej.rejected = wire::CmMessageKind::Other;
  rej.reason = RejectReason::NoResources;
  MadBytes bytes{};
  wire::emit_mad(wire::MadHeader{}, rej, bytes);
  w.to_client(bytes);
  EXPECT_EQ(w.client.event(EventType::Disconnected).reason, 3);
  w.tick(w.client);
  w.client.event(EventType::TimewaitExit);
}

TEST(ConnectionManager, C02_after_timewait_the_same_queue_pair_may_connect_again) {
  World w;
  w.establish();
  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  w.settle();
  w.client.events();
  w.server.events();
  w.destroy_both();
  w.establish();
}

TEST(ConnectionManager, datagram_services_are_refused) {
  World w;
  wire::CmSidrReq sidr;
  sidr.request_id = 0x1234;
  sidr.service_id = 0x01110000 | kPort;
  MadBytes bytes{};
  wire::MadHeader header;
  header.transaction_id = 9;
  wire::emit_mad(header, sidr, bytes);
  w.to_server(bytes);
  const MadBytes answer = w.one(w.server);
  EXPECT_EQ(decode(answer).header.transaction_id, 9u);
  EXPECT_EQ(read<wire::CmSidrRep>(answer).request_id, 0x1234u);
  EXPECT_EQ(read<wire::CmSidrRep>(answer).status, wire::CmSidrStatus::Unsupported);
  EXPECT_EQ(w.server.manager.footprint(), 0u);
}

}  // namespace
}  // namespace verbena::cm
