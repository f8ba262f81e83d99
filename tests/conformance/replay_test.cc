// SPDX-License-Identifier: Apache-2.0
// Duplicates beyond the first answer: what is saved for them and how long, what they must not open, and a queue pair
// that begins anew.
#include "bench.h"

namespace verbena::conformance {
namespace {

struct ReplayingRig {
  Rig rig;
  Memory& memory;
  const Bytes eight = pattern(8);

  explicit ReplayingRig(const Given& given = {}) : rig(given), memory(rig.memory(4096)) {
    memory.put(0, pattern(4096));
  }
  wire::Reth reth(std::uint32_t length, std::uint64_t at = 0) const { return {memory.va(at), memory.rkey(), length}; }
  Packet read(std::uint32_t n, std::uint32_t length) const { return rig.read(rig.their(n), reth(length)); }
  Packet add(std::uint32_t n) const { return rig.fetch_add(rig.their(n), memory.va(), memory.rkey(), 1); }
  Packet write(std::uint32_t n) const {
    return rig.write(Opcode::RcWriteOnly, rig.their(n), reth(8, 64), eight);
  }
  void allow(Access access) {
    QueuePairAttributes values;
    values.access = access;
    ASSERT_TRUE(rig.modify(values, AttributeMask::Access));
  }
  // Taken, and nothing leaves yet.
  void take(const Packet& packet) {
    rig.nic.handle_datagram(rig.now, rig.path_in(), 0, rig.emit(packet));
  }
  void begin_anew(QueuePairState state) {
    QueuePairAttributes values;
    values.state = QueuePairState::Reset;
    ASSERT_TRUE(rig.modify(values, AttributeMask::State));
    rig.move_to(state);
  }
};

TEST(Responder, r031_duplicate_read_carries_the_message_count_of_its_time) {
  ReplayingRig r;
  r.rig.deliver(r.read(0, 16));
  EXPECT_EQ(r.rig.take().packet.aeth.msn, 1u);
  r.rig.deliver(r.write(1));
  r.rig.expect_ack(r.rig.their(1), 2);
  r.rig.deliver(r.read(0, 16));
  EXPECT_EQ(r.rig.take().packet.aeth.msn, 1u);
}

TEST(Responder, r031_duplicate_read_does_not_read_what_an_atomic_changed) {
  ReplayingRig r;
  r.rig.deliver(r.add(0));
  r.rig.take_all();
  r.rig.deliver(r.read(0, 8));
  r.rig.expect_silence();
}

// The newest are kept, whichever place they have.
TEST(Responder, r035_a_limit_that_is_raised_in_SQD_forgets_the_oldest_first) {
  Given given;
  given.max_dest_rd_atomic = 2;
  ReplayingRig r(given);
  std::uint32_t n = 0;
  const auto add_one = [&] {
    r.rig.deliver(r.add(n++));
    r.rig.take_all();
  };
  for (int i = 0; i < 3; ++i) add_one();
  QueuePairAttributes values;
  values.state = QueuePairState::Sqd;
  ASSERT_TRUE(r.rig.modify(values, AttributeMask::State));
  values.max_dest_rd_atomic = 4;
  ASSERT_TRUE(r.rig.modify(values, AttributeMask::MaxDestRdAtomic));
  values.state = QueuePairState::Rts;
  ASSERT_TRUE(r.rig.modify(values, AttributeMask::State));
  for (int i = 0; i < 3; ++i) add_one();
  const std::uint64_t before = r.memory.word(0) - 6;
  for (std::uint32_t saved = 2; saved < 6; ++saved) {
    r.rig.deliver(r.add(saved));
    r.rig.expect_atomic_response(r.rig.their(saved), before + saved);
  }
  r.rig.deliver(r.add(1));
  r.rig.expect_silence();
  EXPECT_EQ(r.rig.nic.counters().atomic_replays, 4u);
}

// The requester may have had the first answer, and asked for more.
TEST(Responder, r082_what_is_answered_again_takes_no_place_from_what_is_new) {
  Given given;
  given.max_dest_rd_atomic = 1;
  for (const bool atomic : {false, true}) {
    ReplayingRig r(given);
    const auto fetch = [&](std::uint32_t n) { return atomic ? r.add(n) : r.read(n, 16); };
    r.rig.deliver(fetch(0));
    r.rig.take_all();
    r.take(fetch(0));
    r.take(fetch(1));
    r.rig.pump(soft::Nic::Acks::Owed);
    const std::vector<Sent> sent = r.rig.take_all();
    ASSERT_EQ(sent.size(), 2u) << atomic;
    EXPECT_EQ(sent[0].psn(), r.rig.their(0));
    EXPECT_EQ(sent[1].psn(), r.rig.their(1));
    EXPECT_EQ(r.rig.state(), QueuePairState::Rts);
  }
}

// However few READs it takes, there is room for what each of them can be followed by.
TEST(Responder, r081_an_ack_behind_answers_old_and_new_is_not_lost) {
  Given given;
  given.max_dest_rd_atomic = 1;
  ReplayingRig r(given);
  r.rig.deliver(r.read(0, 16));
  r.rig.take_all();
  r.take(r.read(0, 16));
  r.take(r.read(1, 16));
  r.take(r.write(2));
  r.rig.pump(soft::Nic::Acks::Flush);
  const std::vector<Sent> sent = r.rig.take_all();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[2].opcode(), Opcode::RcAcknowledge);
  EXPECT_EQ(sent[2].psn(), r.rig.their(2));
}

TEST(Responder, r094_nothing_that_is_owed_leaves_once_a_request_of_ours_failed) {
  ReplayingRig r;
  r.rig.post(1, SendOpcode::RdmaWrite, {r.memory.sge(0, 8)}, kRemote, kRkey);
  r.rig.take_all();
  r.take(r.write(0));
  r.take(r.rig.nak(NakCode::RemoteAccess, r.rig.our(0)));
  r.rig.expect_send(1, CompletionStatus::RemoteAccessError);
  EXPECT_EQ(r.rig.state(), QueuePairState::Error);
  r.rig.expect_silence();
}

TEST(Responder, r090_an_ack_that_was_asked_for_is_not_put_off_by_what_follows) {
  ReplayingRig r;
  const Bytes data = pattern(kMtu + 8);
  r.take(r.rig.write(Opcode::RcWriteFirst, r.rig.their(0), r.reth(kMtu + 8), cut(data, 0, kMtu)));
  r.take(r.rig.write(Opcode::RcWriteLast, r.rig.their(1), {}, cut(data, kMtu, 8)));
  r.rig.pump(soft::Nic::Acks::Owed);
  ASSERT_EQ(r.rig.kept(r.rig.given().peer_qpn).size(), 1u);
  r.rig.expect_ack(r.rig.their(1), 1);
}

TEST(Responder, what_comes_twice_early_or_without_right_is_counted_by_its_kind) {
  ReplayingRig r;
  r.rig.deliver(r.read(0, 100));
  r.rig.deliver(r.read(0, 100));
  r.rig.deliver(r.write(7));
  r.rig.deliver(r.write(8));
  const roce::Counters& c = r.rig.nic.counters();
  EXPECT_EQ(c.served_reads, 1u);
  EXPECT_EQ(c.served_read_bytes, 100u);
  EXPECT_EQ(c.duplicate_request, 1u);
  EXPECT_EQ(c.out_of_seq_request, 2u);
  EXPECT_EQ(c.send_seq_err, 1u);
  r.rig.deliver(r.rig.read(r.rig.their(1), {r.memory.va(), RKey{1}, 8}));
  EXPECT_EQ(c.access_violations, 1u);

  ReplayingRig gone;
  gone.take(gone.read(0, 100));
  ASSERT_TRUE(gone.rig.nic.deregister_memory(gone.memory.lkey()));
  gone.rig.pump(soft::Nic::Acks::Owed);
  EXPECT_EQ(gone.rig.nic.counters().access_violations, 1u);
}

TEST(Responder, what_leaves_in_the_middle_of_an_answer_is_counted) {
  ReplayingRig r;
  r.rig.deliver(r.read(0, 10 * kMtu));
  const std::vector<Sent> sent = r.rig.take_all();
  ASSERT_EQ(sent.size(), 10u);
  std::size_t bytes = 0;
  for (const Sent& each : sent) bytes += each.bytes.size();
  EXPECT_EQ(r.rig.nic.counters().sent_pkts, 10u);
  EXPECT_EQ(r.rig.nic.counters().sent_bytes, bytes);
}

// ---- A second life has the numbers of the first, and nothing else of it.

TEST(Responder, q053_a_message_that_was_open_is_not_after_a_reset) {
  ReplayingRig r;
  r.rig.deliver(r.rig.write(Opcode::RcWriteFirst, r.rig.their(0), r.reth(2 * kMtu), pattern(kMtu), false));
  r.rig.deliver(r.write(5));
  r.rig.expect_nak(NakCode::SequenceError, r.rig.their(1));
  r.begin_anew(QueuePairState::Rts);
  r.rig.deliver(r.write(5));
  r.rig.expect_nak(NakCode::SequenceError, r.rig.their(0));
  r.rig.deliver(r.write(0));
  r.rig.expect_ack(r.rig.their(0), 1);
}

TEST(Responder, q053_messages_are_counted_from_zero_after_a_reset_and_no_result_is_saved) {
  ReplayingRig r;
  r.rig.deliver(r.add(0));
  r.rig.deliver(r.add(1));
  r.rig.take_all();
  r.begin_anew(QueuePairState::Rts);
  r.rig.deliver(r.write(0));
  r.rig.expect_ack(r.rig.their(0), 1);
  r.rig.deliver(r.add(0));
  r.rig.expect_silence();
}

TEST(Responder, q053_a_receive_that_was_taken_is_not_after_a_reset) {
  ReplayingRig r;
  r.rig.post_receive(1, {r.memory.sge(0, 1024)});
  r.rig.deliver(r.rig.request(Opcode::RcSendFirst, r.rig.their(0), pattern(kMtu), false));
  r.begin_anew(QueuePairState::Rts);
  r.rig.deliver(r.rig.request(Opcode::RcSendOnly, r.rig.their(0), pattern(8)));
  r.rig.expect_rnr_nak(r.rig.given().min_rnr_timer, r.rig.their(0));
  r.rig.post_receive(2, {r.memory.sge(1024, 1024)});
  r.rig.deliver(r.rig.request(Opcode::RcSendOnly, r.rig.their(0), pattern(8)));
  r.rig.expect_receive(2);
}

TEST(Events, r133_the_first_request_is_told_in_each_life) {
  Given given;
  given.state = QueuePairState::Rtr;
  ReplayingRig r(given);
  r.rig.deliver(r.write(0));
  r.rig.expect_event(AsyncEventType::CommEstablished);
  r.begin_anew(QueuePairState::Rtr);
  r.rig.deliver(r.write(0));
  r.rig.expect_event(AsyncEventType::CommEstablished);
}

TEST(Events, r133_a_wait_for_the_first_request_in_rts_ends_with_its_life) {
  ReplayingRig r;
  r.rig.device().nic.await_first_request(r.rig.qpn());
  r.begin_anew(QueuePairState::Rts);
  r.rig.deliver(r.write(0));
  r.rig.expect_no_event();
}

}  // namespace
}  // namespace verbena::conformance
