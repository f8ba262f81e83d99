// SPDX-License-Identifier: Apache-2.0
// Sending again: when the timer counts from, what a second loss does, and from where the bytes are taken.
#include <algorithm>
#include <iterator>

#include "bench.h"

namespace verbena::conformance {
namespace {

constexpr Duration kFirstWait = Duration::milliseconds(5);  // before anything was measured

struct ResendingRig {
  Rig rig;
  Memory& memory;

  explicit ResendingRig(const Given& given = {}) : rig(given), memory(rig.memory(65536)) {}
  void write(std::uint64_t id, std::uint32_t length = 8) {
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(0, length)}, kRemote, kRkey);
  }
  std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> list;
    for (const Sent& sent : rig.take_all()) list.push_back(Psn::distance(sent.psn(), rig.our(0)) & 0xffffff);
    return list;
  }
  const roce::Counters& counters() { return rig.nic.counters(); }
};

using Resent = std::vector<std::uint32_t>;

Given given_with(std::uint8_t timeout, std::uint8_t retry_count = 7) {
  Given given;
  given.timeout = timeout;
  given.retry_count = retry_count;
  return given;
}

TEST(Retry, q021_what_is_sent_meanwhile_does_not_put_off_sending_again) {
  ResendingRig a(given_with(18));
  for (std::uint64_t id = 1; id <= 6; ++id) {
    a.write(id);
    EXPECT_EQ(a.numbers(), Resent{static_cast<std::uint32_t>(id) - 1});
    a.rig.advance(Duration::milliseconds(1));
  }
  EXPECT_EQ(a.numbers(), (Resent{0, 1, 2, 3, 4, 5}));
}

TEST(Retry, q021_a_second_loss_is_answered_to_a_nak_though_the_first_was) {
  for (const std::uint8_t timeout : {std::uint8_t{8}, std::uint8_t{18}}) {  // ends a period first, or the wait
    ResendingRig a(given_with(timeout));
    for (std::uint64_t id = 1; id <= 3; ++id) a.write(id);
    a.rig.take_all();
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
    EXPECT_EQ(a.numbers(), (Resent{0, 1, 2})) << "lost as well";
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
    EXPECT_EQ(a.numbers(), Resent{}) << "an echo";
    ASSERT_TRUE(a.rig.advance_to_deadline());
    EXPECT_EQ(a.numbers(), (Resent{0, 1, 2}));
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
    EXPECT_EQ(a.numbers(), (Resent{0, 1, 2}));
  }
}

// 5, 10 and 20 ms fit into the first period of 67 ms, 40 does not, and what follows is no shorter.
TEST(Retry, q022_the_end_of_a_period_backs_off_too) {
  ResendingRig a(given_with(14));
  a.write(1);
  a.rig.advance(period(14) * 4);
  EXPECT_EQ(a.counters().local_ack_timeout_err, 4u);
  EXPECT_EQ(a.counters().adaptive_retransmissions, 3u);
}

TEST(Retry, q025_what_was_refused_is_sent_once_when_the_wait_is_over) {
  ResendingRig a(given_with(18));
  a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));  // 10.24 ms
  while (a.rig.kept(a.rig.given().peer_qpn).empty()) ASSERT_TRUE(a.rig.advance_to_deadline());
  EXPECT_EQ(a.numbers(), Resent{0});
  a.rig.advance(kFirstWait - Duration::nanoseconds(1));
  EXPECT_EQ(a.numbers(), Resent{});
  EXPECT_EQ(a.counters().adaptive_retransmissions, 0u);
}

// The way to the peer is no longer for its having had no receive: what is lost next is sent again as soon as ever.
TEST(Retry, q025_the_wait_is_no_round_trip) {
  ResendingRig a(given_with(18));
  a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));
  a.rig.advance(Duration::milliseconds(12));
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
  a.rig.take_all();
  a.write(2);
  EXPECT_EQ(a.numbers(), Resent{1});
  a.rig.advance(kFirstWait * 9 / 8);
  EXPECT_EQ(a.numbers(), Resent{1});
}

TEST(Retry, q027_a_peer_that_is_silent_after_the_wait_is_given_up) {
  ResendingRig a(given_with(14, 1));
  a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));
  a.rig.advance(Duration::milliseconds(12));
  a.rig.expect_no_completion();
  a.rig.advance(period(14) * 8);
  a.rig.expect_send(1, CompletionStatus::RetryExceeded);
}

// Nor does another ACK timeout end it.
TEST(Retry, q025_a_timeout_that_is_changed_in_SQD_leaves_the_wait_alone) {
  ResendingRig a(given_with(18));
  a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));
  QueuePairAttributes values;
  values.state = QueuePairState::Sqd;
  ASSERT_TRUE(a.rig.modify(values, AttributeMask::State));
  values.timeout = 17;
  ASSERT_TRUE(a.rig.modify(values, AttributeMask::Timeout));
  while (a.rig.kept(a.rig.given().peer_qpn).empty()) ASSERT_TRUE(a.rig.advance_to_deadline());
  EXPECT_EQ(a.numbers(), Resent{0});
  a.rig.advance(kFirstWait - Duration::nanoseconds(1));
  EXPECT_EQ(a.numbers(), Resent{});
}

// Which of the two was answered nobody knows (Karn).
TEST(Retry, no_round_trip_is_measured_of_what_was_sent_twice) {
  ResendingRig a(given_with(18));
  a.write(1);
  a.rig.take_all();
  ASSERT_TRUE(a.rig.advance_to_deadline());
  EXPECT_EQ(a.numbers(), Resent{0});
  a.rig.advance(Duration::microseconds(10));
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
  a.write(2);
  a.rig.take_all();
  EXPECT_GE(a.rig.nic.next_deadline() - a.rig.now, kFirstWait);
}

// Its owner may change it by mistake, or have it changed by a peer: the check value is that of what leaves.
TEST(Requester, q002_what_is_sent_again_leaves_from_a_copy_and_is_counted) {
  constexpr std::uint32_t kPackets = 6;
  Given given = given_with(18);
  given.path_mtu = 4096;
  ResendingRig a(given);
  a.write(1, kPackets * 4096);
  EXPECT_EQ(a.numbers().size(), kPackets);
  EXPECT_EQ(a.counters().retransmitted_pkts, 0u);
  a.rig.nic.handle_datagram(a.rig.now, a.rig.path_in(), 0, a.rig.emit(a.rig.nak(NakCode::SequenceError, a.rig.our(0))));
  roce::Train train{roce::TrainLimits{}};
  std::uint32_t again = 0;
  while (a.rig.nic.poll_transmit(a.rig.now, soft::Nic::Acks::Owed, train)) {
    again += train.datagrams();
    for (const roce::Piece& piece : train.pieces())
      EXPECT_FALSE(piece.data >= a.memory.data() && piece.data < a.memory.data() + a.memory.size());
  }
  EXPECT_EQ(again, kPackets);
  EXPECT_EQ(a.counters().retransmitted_pkts, kPackets);
}

// Posted together, they leave together: each by its own rules.
TEST(Requester, short_messages_that_leave_together_keep_what_they_differ_in) {
  ResendingRig a;
  a.memory.put(0, pattern(64));
  const ScatterGather whole[] = {a.memory.sge(0, 16)}, next[] = {a.memory.sge(16, 16)};
  const ScatterGather parts[] = {a.memory.sge(40, 8), a.memory.sge(32, 8)};
  std::vector<SendRequest> requests(4);
  for (std::uint64_t i = 0; i < 4; ++i) requests[i].id = i;
  requests[0].local = whole;
  requests[1].local = parts;
  requests[2].local = whole;
  requests[3].local = next;
  requests[3].opcode = SendOpcode::SendWithImmediate;
  requests[3].immediate = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  ASSERT_EQ(a.rig.queues().post_send(requests).posted, 4u);
  a.rig.nic.handle_post(a.rig.now, a.rig.queues());
  a.rig.pump(soft::Nic::Acks::Owed);
  const Bytes bytes = pattern(64);
  const auto payload_of = [&](std::uint32_t n, Opcode opcode) {
    const Sent sent = a.rig.expect(opcode, a.rig.our(n));
    return Bytes(sent.packet.payload.begin(), sent.packet.payload.end());
  };
  const auto part = [&](std::size_t from, std::size_t size) {
    return Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                 bytes.begin() + static_cast<std::ptrdiff_t>(from + size));
  };
  EXPECT_EQ(payload_of(0, Opcode::RcSendOnly), part(0, 16));
  Bytes joined = part(40, 8);
  std::ranges::copy(part(32, 8), std::back_inserter(joined));
  EXPECT_EQ(payload_of(1, Opcode::RcSendOnly), joined);
  EXPECT_EQ(payload_of(2, Opcode::RcSendOnly), part(0, 16));
  EXPECT_EQ(payload_of(3, Opcode::RcSendOnlyWithImmediate), part(16, 16));
}

TEST(Posting, q031_a_fence_holds_among_short_messages_that_leave_together) {
  ResendingRig a;
  const ScatterGather local[] = {a.memory.sge(0, 16)};
  std::vector<SendRequest> requests(4);
  for (SendRequest& request : requests) request.local = local;
  requests[0].opcode = SendOpcode::RdmaRead;
  requests[0].remote_address = kRemote;
  requests[0].rkey = kRkey;
  requests[3].flags = SendFlags::Fence;
  ASSERT_EQ(a.rig.queues().post_send(requests).posted, 4u);
  a.rig.nic.handle_post(a.rig.now, a.rig.queues());
  a.rig.pump(soft::Nic::Acks::Owed);
  EXPECT_EQ(a.numbers(), (Resent{0, 1, 2}));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(0), pattern(16)));
  EXPECT_EQ(a.numbers(), Resent{3});
}

TEST(Completer, answers_that_came_late_and_those_that_were_lost_are_counted_apart) {
  ResendingRig a;
  a.write(1);
  a.rig.post(2, SendOpcode::RdmaRead, {a.memory.sge(0, 3 * kMtu)}, kRemote, kRkey);
  a.write(3);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));  // behind us
  EXPECT_EQ(a.counters().ghost_acks, 0u);
  a.rig.deliver(a.rig.ack(a.rig.our(9), 1));
  EXPECT_EQ(a.counters().ghost_acks, 1u);
  a.rig.deliver(a.rig.ack(a.rig.our(4), 3));  // beyond the READ
  EXPECT_EQ(a.counters().implied_nak_seq_err, 1u);
  const Bytes data = pattern(kMtu);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(2), data));
  EXPECT_EQ(a.counters().implied_nak_seq_err, 2u);
}

}  // namespace
}  // namespace verbena::conformance
