// SPDX-License-Identifier: Apache-2.0
// Acknowledgements, events and completion queues.
#include <set>

#include "bench.h"

namespace verbena::conformance {
namespace {

struct ServedWrites {
  Rig rig;
  Memory& memory;
  explicit ServedWrites(const Given& given = {}) : rig(given), memory(rig.memory(8192)) {}
  wire::Reth reth(std::uint32_t length) const { return {memory.va(), memory.rkey(), length}; }
  void write_only(std::uint32_t n, bool ack_request = true) {
    const Bytes payload = pattern(16, n);
    rig.deliver(rig.write(Opcode::RcWriteOnly, rig.their(n), reth(16), payload, ack_request));
  }
};

TEST(Responder, r090_request_for_an_ack_inside_a_message_is_answered_at_once) {
  ServedWrites s;
  const Bytes payload = pattern(kMtu);
  s.rig.deliver(s.rig.write(Opcode::RcWriteFirst, s.rig.their(0), s.reth(3 * kMtu), payload, true));
  s.rig.pump(soft::Nic::Acks::Owed);
  ASSERT_EQ(s.rig.kept(s.rig.given().peer_qpn).size(), 1u);
  s.rig.expect_ack(s.rig.their(0), 0);
  s.rig.deliver(s.rig.write(Opcode::RcWriteMiddle, s.rig.their(1), s.reth(3 * kMtu), payload, false));
  s.rig.expect_silence();
}

TEST(Responder, r090_ack_at_the_end_of_a_message_is_owed_and_leaves_when_asked_for) {
  ServedWrites s;
  s.write_only(0);
  s.rig.expect_nothing_yet();
  s.rig.expect_ack(s.rig.their(0), 1);
  s.rig.expect_silence();
}

TEST(Responder, r090_one_ack_covers_all_before_it) {
  ServedWrites s;
  for (std::uint32_t n = 0; n < 15; ++n) s.write_only(n, n % 2 == 0);
  s.rig.expect_nothing_yet();
  s.rig.expect_ack(s.rig.their(14), 15);
  s.rig.expect_silence();
}

TEST(Responder, r090_answer_to_a_later_read_says_as_much_as_the_ack) {
  ServedWrites s;
  s.write_only(0);
  s.rig.deliver(s.rig.read(s.rig.their(1), s.reth(16)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(1), s.memory.bytes(0, 16));
  s.rig.expect_silence();
}

TEST(Responder, r090_owed_ack_leaves_after_the_data_of_the_same_turn) {
  ServedWrites s;
  s.write_only(0);
  s.rig.expect_nothing_yet();
  s.rig.post(7, SendOpcode::RdmaWrite, {s.memory.sge(0, 8)}, 0x1000, RKey{1});
  s.rig.expect(Opcode::RcWriteOnly, s.rig.our(0));
  s.rig.expect_ack(s.rig.their(0), 1);
}

TEST(Responder, r091_message_count_rises_once_per_finished_request) {
  ServedWrites s;
  s.rig.post_receive(1, {s.memory.sge(0, 4096)});
  const Bytes payload = pattern(kMtu);
  s.rig.deliver(s.rig.request(Opcode::RcSendFirst, s.rig.their(0), payload, true));
  s.rig.expect_ack(s.rig.their(0), 0);
  s.rig.deliver(s.rig.request(Opcode::RcSendMiddle, s.rig.their(1), payload, true));
  s.rig.expect_ack(s.rig.their(1), 0);
  s.rig.deliver(s.rig.request(Opcode::RcSendLast, s.rig.their(2), payload, true));
  s.rig.expect_ack(s.rig.their(2), 1);
  s.rig.deliver(s.rig.read(s.rig.their(3), s.reth(2 * kMtu)));
  const std::vector<Sent> read = s.rig.take_all();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].packet.aeth.msn, 2u);
  EXPECT_EQ(read[1].packet.aeth.msn, 2u);
  s.rig.deliver(s.rig.fetch_add(s.rig.their(5), s.memory.va(), s.memory.rkey(), 1));
  EXPECT_EQ(s.rig.take().packet.aeth.msn, 3u);
  s.write_only(6);
  s.rig.expect_ack(s.rig.their(6), 4);
  s.write_only(6);  // a duplicate is no further message
  s.rig.expect_ack(s.rig.their(6), 4);
  s.write_only(9);
  EXPECT_EQ(s.rig.take().packet.aeth.msn, 4u) << "in a NAK too";
}

TEST(Responder, r091_message_count_has_24_bits) {
  // A count is sent as the low 24 bits; the next header byte is never touched by its overflow.
  Packet packet;
  packet.bth.opcode = Opcode::RcAcknowledge;
  packet.aeth = {wire::kSyndromeAck, 0x00ffffff};
  Bytes bytes(wire::datagram_bytes(packet));
  wire::emit(packet, wire::Path{}, 0, bytes);
  Packet parsed;
  ASSERT_EQ(wire::parse(bytes, parsed), wire::DropReason::None);
  EXPECT_EQ(parsed.aeth.msn, 0xffffffu);
  EXPECT_EQ(parsed.aeth.syndrome, wire::kSyndromeAck);
}

TEST(Responder, r092_when_the_ack_leaves_data_and_completion_are_there) {
  ServedWrites s;
  s.rig.post_receive(1, {s.memory.sge(4096, 64)});
  const Bytes payload = pattern(16, 0);
  s.write_only(0);
  s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(1), payload));
  s.rig.expect_nothing_yet();
  s.rig.expect_receive(1);
  EXPECT_TRUE(s.memory.holds(0, payload));
  EXPECT_TRUE(s.memory.holds(4096, payload));
  s.rig.expect_ack(s.rig.their(1), 2);
}

TEST(Responder, r093_owed_ack_waits_no_longer_than_its_time) {
  ServedWrites s;
  const Instant start = s.rig.now;
  s.write_only(0);
  const Duration limit = s.rig.given().transport.max_owed_ack_time;
  EXPECT_LE(s.rig.nic.next_deadline(), start + limit);
  s.rig.advance(limit / 2);
  s.write_only(1);  // coalesced; the time runs since the first
  EXPECT_LE(s.rig.nic.next_deadline(), start + limit);
  s.rig.expect_nothing_yet();
  s.rig.advance(limit / 2);
  ASSERT_EQ(s.rig.kept(s.rig.given().peer_qpn).size(), 1u) << "without being asked to flush";
  s.rig.expect_ack(s.rig.their(1), 2);
  EXPECT_TRUE(s.rig.nic.next_deadline().is_never()) << "nothing is owed any more";
}

TEST(Responder, r094_fatal_nak_is_sent_once_and_then_there_is_silence) {
  ServedWrites s;
  const Bytes payload = pattern(16);
  const Packet bad = s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), {s.memory.va(), RKey{1}, 16}, payload);
  s.rig.deliver(bad);
  s.rig.expect_nak(NakCode::RemoteAccess, s.rig.their(0));
  for (int i = 0; i < 3; ++i) {
    s.rig.deliver(bad);
    s.write_only(0);
    s.write_only(5);
    s.rig.advance(Duration::seconds(1));
    s.rig.expect_silence();
  }
  EXPECT_TRUE(s.memory.all(std::byte{0}));
  s.rig.expect_event(AsyncEventType::QpAccessError);
  s.rig.expect_no_event();
  EXPECT_TRUE(s.rig.nic.next_deadline().is_never());
}

TEST(Responder, r094_violation_that_is_not_in_sequence_kills_nobody) {
  ServedWrites s;
  const Bytes payload = pattern(16);
  s.write_only(0);
  s.rig.expect_ack(s.rig.their(0), 1);
  for (const std::uint32_t n : {0u, 5u, Psn::kMask}) {
    s.rig.deliver(s.rig.write(Opcode::RcWriteOnly, s.rig.their(n), {s.memory.va(), RKey{1}, 16}, payload));
    EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
  }
  s.rig.expect_no_event();
}

// ---- Events

void expect_wake(Device& device, core::CqId cq, int line = __builtin_LINE()) {
  const auto event = device.event();
  ASSERT_TRUE(event) << line;
  EXPECT_EQ(event->kind, core::Event::Kind::Completion) << line;
  EXPECT_EQ(event->cq, cq) << line;
}

TEST(Events, r130_solicited_message_wakes_a_queue_armed_for_solicited_ones) {
  for (const Opcode opcode :
       {Opcode::RcSendOnly, Opcode::RcSendOnlyWithImmediate, Opcode::RcWriteOnlyWithImmediate}) {
    ServedWrites s;
    s.rig.post_receive(1, {s.memory.sge(0, 64)});
    s.rig.post_receive(2, {s.memory.sge(0, 64)});
    s.rig.receive_cq().arm(true);
    const Bytes payload = pattern(8);
    Packet packet = s.rig.write(opcode, s.rig.their(0), s.reth(8), payload);
    s.rig.deliver(packet);
    s.rig.expect_receive(1);
    s.rig.expect_no_event();
    packet.bth.psn = s.rig.their(1);
    packet.bth.solicited = true;
    s.rig.deliver(packet);
    s.rig.expect_receive(2);
    expect_wake(s.rig, s.rig.receive_cq_id());
    s.rig.expect_no_event();
  }
}

TEST(Events, r130_failed_completion_wakes_a_queue_armed_for_solicited_ones) {
  ServedWrites s;
  s.rig.post_receive(1, {s.memory.sge(0, 64)});
  s.rig.receive_cq().arm(true);
  QueuePairAttributes values;
  values.state = QueuePairState::Error;
  ASSERT_TRUE(s.rig.modify(values, AttributeMask::State));
  s.rig.expect_receive(1, CompletionStatus::Flushed);
  expect_wake(s.rig, s.rig.receive_cq_id());
}

TEST(Events, r131_one_event_per_arm) {
  ServedWrites s;
  for (std::uint64_t id = 1; id <= 6; ++id) s.rig.post_receive(id, {s.memory.sge(0, 64)});
  const Bytes payload = pattern(8);
  s.rig.receive_cq().arm(false);
  for (std::uint32_t n = 0; n < 3; ++n)
    s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(n), payload));
  expect_wake(s.rig, s.rig.receive_cq_id());
  s.rig.expect_no_event();
  s.rig.receive_cq().arm(false);
  for (std::uint32_t n = 3; n < 6; ++n)
    s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(n), payload));
  expect_wake(s.rig, s.rig.receive_cq_id());
  s.rig.expect_no_event();
}

TEST(Events, r132_overrun_queue_breaks_every_queue_pair_on_it_and_keeps_what_was_unread) {
  Given given;
  Device device(given);
  const core::CqId tiny = device.nic.create_cq(2).value();
  const core::CqId other = device.nic.create_cq(16).value();
  Memory& memory = device.memory(64);
  Line a(device, given, other, tiny);
  given.peer_qpn = Qpn{0x111};
  Line b(device, given, tiny, other);
  given.peer_qpn = Qpn{0x222};
  Line unconcerned(device, given, other, other);
  for (std::uint64_t id = 1; id <= 5; ++id) a.post_receive(id, {memory.sge(0, 64)});
  const Bytes payload = pattern(8);
  for (std::uint32_t n = 0; n < 3; ++n) a.deliver(a.request(Opcode::RcSendOnly, a.their(n), payload));
  EXPECT_EQ(a.state(), QueuePairState::Error);
  EXPECT_EQ(b.state(), QueuePairState::Error);
  EXPECT_EQ(unconcerned.state(), QueuePairState::Rts);
  a.expect_event(AsyncEventType::CqError);
  std::set<std::uint32_t> fatal;
  while (const auto event = device.event()) {
    EXPECT_EQ(event->type, AsyncEventType::QpFatal);
    EXPECT_TRUE(fatal.insert(event->qpn.value()).second);
  }
  EXPECT_EQ(fatal, (std::set<std::uint32_t>{a.qpn().value(), b.qpn().value()}));
  a.expect_receive(1);
  a.expect_receive(2);
  Completion left;
  EXPECT_EQ(a.receive_cq().poll({&left, 1}), 0u);
}

TEST(Events, r132_queue_that_overran_without_packets_breaks_its_queue_pairs_too) {
  Given given;
  given.cq_entries = 2;
  Rig rig(given);
  for (std::uint64_t id = 1; id <= 5; ++id) rig.post_receive(id);
  QueuePairAttributes values;
  values.state = QueuePairState::Error;
  ASSERT_TRUE(rig.modify(values, AttributeMask::State));
  rig.expect_event(AsyncEventType::CqError);
  rig.expect_receive(1, CompletionStatus::Flushed);
  rig.expect_receive(2, CompletionStatus::Flushed);
  rig.expect_no_completion();
}

TEST(Events, r133_first_request_in_rtr_is_told_as_established_communication) {
  Given given;
  given.state = QueuePairState::Rtr;
  ServedWrites s(given);
  s.rig.expect_no_event();
  s.write_only(0);
  s.rig.expect_event(AsyncEventType::CommEstablished);
  s.write_only(1);
  s.rig.expect_no_event();
  s.rig.expect_ack(s.rig.their(1), 2);
}

TEST(Events, r133_nothing_is_told_in_rts) {
  ServedWrites s;
  s.write_only(0);
  s.rig.expect_no_event();
}

TEST(Events, r133_first_request_in_rts_is_told_where_it_is_awaited) {
  ServedWrites s;
  s.rig.device().nic.await_first_request(s.rig.qpn());
  s.write_only(0);
  s.rig.expect_event(AsyncEventType::CommEstablished);
  s.write_only(1);
  s.rig.expect_no_event();
}

TEST(Events, r134_fatal_errors_of_the_responder_are_told_by_their_kind) {
  const Bytes payload = pattern(16);
  struct Case {
    int kind;
    AsyncEventType event;
    NakCode code;
  };
  for (const Case& c : {Case{0, AsyncEventType::QpRequestError, NakCode::InvalidRequest},
                        Case{1, AsyncEventType::QpAccessError, NakCode::RemoteAccess},
                        Case{2, AsyncEventType::QpRequestError, NakCode::RemoteOperation},
                        Case{3, AsyncEventType::QpRequestError, NakCode::InvalidRequest}}) {
    ServedWrites s;
    if (c.kind == 2) s.rig.post_receive(1, {{s.memory.va(), 64, LKey{5}}});
    if (c.kind == 3) s.rig.post_receive(1, {s.memory.sge(0, 15)});
    if (c.kind == 0)
      s.rig.deliver(s.rig.request(Opcode::RcSendMiddle, s.rig.their(0), pattern(kMtu)));
    else if (c.kind == 1)
      s.rig.deliver(s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), {0, RKey{1}, 16}, payload));
    else
      s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(0), payload));
    s.rig.expect_nak(c.code, s.rig.their(0));
    s.rig.expect_event(c.event);
    s.rig.expect_no_event();
  }
}

TEST(Events, r134_gaps_and_missing_receives_are_no_errors) {
  ServedWrites s;
  s.write_only(3);
  s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(0), pattern(3)));
  s.rig.take_all();
  s.rig.expect_no_event();
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
}

}  // namespace
}  // namespace verbena::conformance
