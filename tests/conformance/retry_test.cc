// SPDX-License-Identifier: Apache-2.0
// Going back, waiting and giving up.
#include <algorithm>
#include <set>

#include "base/rnr_timer.h"
#include "bench.h"

namespace verbena::conformance {
namespace {

struct RetryingRig {
  Rig rig;
  Memory& memory;

  explicit RetryingRig(const Given& given = {}) : rig(given), memory(rig.memory(32768)) {}
  void write(std::uint64_t id, std::uint32_t length = 8) {
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(0, length)}, kRemote, kRkey);
  }
  void send(std::uint64_t id, std::uint32_t length = 8) {
    rig.post(id, SendOpcode::Send, {memory.sge(0, length)});
  }
  std::vector<std::uint32_t> sent_numbers() {
    std::vector<std::uint32_t> list;
    for (const Sent& sent : rig.take_all()) list.push_back(Psn::distance(sent.psn(), rig.our(0)) & 0xffffff);
    return list;
  }
};

using Numbers = std::vector<std::uint32_t>;

TEST(Retry, q020_sequence_nak_acknowledges_what_is_before_it_and_goes_back_to_it) {
  RetryingRig a;
  for (std::uint64_t id = 1; id <= 5; ++id) a.write(id);
  EXPECT_EQ(a.sent_numbers(), (Numbers{0, 1, 2, 3, 4}));
  a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(2)));
  a.rig.expect_send(1);
  a.rig.expect_send(2);
  a.rig.expect_no_completion();
  EXPECT_EQ(a.sent_numbers(), (Numbers{2, 3, 4}));
  a.rig.deliver(a.rig.ack(a.rig.our(4), 5));
  for (std::uint64_t id = 3; id <= 5; ++id) a.rig.expect_send(id);
  EXPECT_EQ(a.rig.nic.counters().rcvd_seq_err, 1u);
}

TEST(Retry, q020_sequence_nak_in_the_middle_of_a_message_goes_back_to_that_packet) {
  RetryingRig a;
  a.write(1, 6 * kMtu);
  EXPECT_EQ(a.sent_numbers().size(), 6u);
  a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(3)));
  const std::vector<Sent> again = a.rig.take_all();
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].opcode(), Opcode::RcWriteMiddle);
  EXPECT_EQ(again[0].psn(), a.rig.our(3));
  EXPECT_EQ(again[2].opcode(), Opcode::RcWriteLast);
  a.rig.expect_no_completion();
}

TEST(Retry, q020_sequence_nak_beyond_a_read_goes_back_to_the_read) {
  RetryingRig a;
  a.write(1);
  a.rig.post(2, SendOpcode::RdmaRead, {a.memory.sge(0, 10)}, kRemote, kRkey);
  a.write(3);
  a.write(4);
  EXPECT_EQ(a.sent_numbers().size(), 4u);
  a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(3)));
  a.rig.expect_send(1);
  a.rig.expect_no_completion();
  EXPECT_EQ(a.sent_numbers(), (Numbers{1, 2, 3}));
}

TEST(Retry, q021_after_the_timeout_everything_unacknowledged_is_sent_again) {
  for (const unsigned code : {1u, 8u, 14u, 18u}) {
    Given given;
    given.timeout = static_cast<std::uint8_t>(code);
    RetryingRig a(given);
    for (std::uint64_t id = 1; id <= 3; ++id) a.write(id);
    a.rig.take_all();
    a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
    a.rig.expect_send(1);
    a.rig.advance(period(code));
    const Numbers again = a.sent_numbers();
    ASSERT_GE(again.size(), 2u) << code;
    EXPECT_EQ(again[0], 1u) << "from the oldest unacknowledged one on";
    EXPECT_EQ(again[1], 2u);
    a.rig.deliver(a.rig.ack(a.rig.our(2), 3));
    a.rig.expect_send(2);
    a.rig.expect_send(3);
    a.rig.advance(Duration::seconds(10));
    a.rig.expect_silence();
    EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
  }
}

TEST(Retry, q021_a_lost_read_answer_is_asked_for_again_after_the_timeout) {
  RetryingRig a;
  a.rig.post(1, SendOpcode::RdmaRead, {a.memory.sge(0, 3 * kMtu)}, kRemote, kRkey);
  a.rig.take_all();
  const Bytes data = pattern(3 * kMtu);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(0), cut(data, 0, kMtu)));
  a.rig.advance(period(14));
  const Sent again = a.rig.expect(Opcode::RcReadRequest, a.rig.our(1));
  EXPECT_EQ(again.packet.reth, (wire::Reth{kRemote + kMtu, kRkey, 2 * kMtu}));
}

// Fails after exactly that many periods without progress?
void expect_periods(unsigned retry_count) {
  constexpr unsigned kCode = 14;
  Given given;
  given.retry_count = static_cast<std::uint8_t>(retry_count);
  given.timeout = kCode;
  RetryingRig a(given);
  a.write(1);
  a.rig.advance(period(kCode) * (retry_count + 1) - Duration::nanoseconds(1));
  a.rig.expect_no_completion();
  EXPECT_EQ(a.rig.state(), QueuePairState::Rts);
  a.rig.take_all();
  a.rig.advance(period(kCode) * 3 * (retry_count + 1));  // a real expiry may lie anywhere in [T, 4T]
  a.rig.expect_send(1, CompletionStatus::RetryExceeded);
  EXPECT_EQ(a.rig.state(), QueuePairState::Error);
  EXPECT_EQ(a.rig.nic.counters().local_ack_timeout_err, retry_count + 1);
  EXPECT_EQ(a.rig.nic.counters().retry_exceeded_err, 1u);
}

TEST(Retry, q022_each_period_without_progress_costs_one_retry) {
  for (unsigned retry_count = 0; retry_count < 7; ++retry_count) expect_periods(retry_count);
}

TEST(Retry, q022_seven_is_seven) { expect_periods(7); }

TEST(Retry, q022_retransmissions_inside_a_period_are_free) {
  Given given;
  given.retry_count = 0;
  given.timeout = 18;  // a second
  RetryingRig a(given);
  a.write(1);
  a.rig.take_all();
  a.rig.advance(period(18) / 2);
  EXPECT_GE(a.sent_numbers().size(), 3u);
  EXPECT_GE(a.rig.nic.counters().adaptive_retransmissions, 3u);
  EXPECT_EQ(a.rig.nic.counters().local_ack_timeout_err, 0u);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Retry, q022_retransmissions_back_off) {
  Given given;
  given.timeout = 20;
  RetryingRig a(given);
  a.write(1);
  a.rig.take_all();
  a.rig.advance(period(20));
  EXPECT_LE(a.sent_numbers().size(), 16u) << "in four seconds, beginning at milliseconds";
}

TEST(Retry, q022_progress_gives_all_retries_back) {
  Given given;
  given.retry_count = 2;
  RetryingRig a(given);
  a.write(1, 4 * kMtu);
  for (std::uint32_t n = 0; n < 3; ++n) {
    a.rig.advance(period(14) * 5 / 2);  // two periods gone
    EXPECT_EQ(a.rig.state(), QueuePairState::Rts);
    a.rig.deliver(a.rig.ack(a.rig.our(n)));
    a.rig.take_all();
  }
  a.rig.expect_no_completion();
  a.rig.advance(period(14) * 12);
  a.rig.expect_send(1, CompletionStatus::RetryExceeded);
}

TEST(Retry, q022_naks_without_progress_do_not_save_from_giving_up) {
  Given given;
  given.retry_count = 1;
  RetryingRig a(given);
  a.write(1);
  for (int i = 0; i < 40 && a.rig.state() == QueuePairState::Rts; ++i) {
    a.rig.advance(period(14) / 4);
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
    a.rig.take_all();
  }
  a.rig.expect_send(1, CompletionStatus::RetryExceeded);
}

TEST(Retry, q023_when_retries_are_spent_the_oldest_fails_and_the_rest_is_flushed) {
  Given given;
  given.retry_count = 1;
  RetryingRig a(given);
  for (std::uint64_t id = 1; id <= 4; ++id) a.write(id);
  a.rig.post_receive(11);
  a.rig.post_receive(12);
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.advance(period(14) * 9);
  a.rig.expect_send(1);
  a.rig.expect_send(2, CompletionStatus::RetryExceeded);
  a.rig.expect_send(3, CompletionStatus::Flushed);
  a.rig.expect_send(4, CompletionStatus::Flushed);
  a.rig.expect_receive(11, CompletionStatus::Flushed);
  a.rig.expect_receive(12, CompletionStatus::Flushed);
  a.rig.expect_no_completion();
  a.rig.take_all();
  a.rig.advance(Duration::seconds(10));
  a.rig.expect_silence();
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
}

TEST(Retry, q024_timeout_of_zero_never_expires) {
  Given given;
  given.timeout = 0;
  given.retry_count = 0;
  RetryingRig a(given);
  a.write(1);
  a.rig.take_all();
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
  a.rig.advance(Duration::seconds(100'000));
  a.rig.expect_silence();
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));  // the peer still has a word
  EXPECT_EQ(a.sent_numbers(), Numbers{0});
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Retry, q025_rnr_nak_is_waited_for_and_then_everything_from_it_on_is_sent_again) {
  for (unsigned code = 0; code < 32; ++code) {
    RetryingRig a;
    for (std::uint64_t id = 1; id <= 5; ++id) a.send(id);
    a.rig.take_all();
    a.rig.deliver(a.rig.rnr_nak(static_cast<std::uint8_t>(code), a.rig.our(2)));
    a.rig.expect_send(1);
    a.rig.expect_send(2);
    const Duration wait = rnr_duration(static_cast<std::uint8_t>(code));
    a.rig.advance(wait - Duration::nanoseconds(1));
    a.rig.expect_silence();
    a.rig.advance(wait / 7);  // and not for ever
    const Numbers again = a.sent_numbers();
    ASSERT_GE(again.size(), 3u) << code;
    EXPECT_EQ((Numbers{again.begin(), again.begin() + 3}), (Numbers{2, 3, 4}));
    a.rig.deliver(a.rig.ack(a.rig.our(4), 5));
    for (std::uint64_t id = 3; id <= 5; ++id) a.rig.expect_send(id);
  }
}

TEST(Retry, q025_nothing_new_is_sent_while_waiting_and_nothing_is_forgotten) {
  RetryingRig a;
  a.send(1);
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));  // 10.24 ms
  a.send(2);
  a.write(3);
  a.rig.expect_silence();
  a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));  // once more, as from the network: it shortens nothing
  a.rig.advance(Duration::milliseconds(10));
  a.rig.expect_silence();
  a.rig.advance(Duration::milliseconds(10));
  const Numbers all = a.sent_numbers();
  ASSERT_GE(all.size(), 3u);
  EXPECT_EQ((Numbers{all.begin(), all.begin() + 3}), (Numbers{0, 1, 2}));
}

TEST(Retry, q025_acknowledgement_while_waiting_counts) {
  RetryingRig a;
  for (std::uint64_t id = 1; id <= 3; ++id) a.send(id);
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(1)));
  a.rig.expect_send(1);
  a.rig.deliver(a.rig.ack(a.rig.our(2), 3));  // a copy of what was refused found a receive
  a.rig.expect_send(2);
  a.rig.expect_send(3);
  a.rig.advance(Duration::seconds(1));
  a.rig.expect_silence();
  a.send(4);
  EXPECT_EQ(a.sent_numbers(), Numbers{3});
}

TEST(Retry, q026_rnr_retries_are_counted) {
  for (unsigned limit = 0; limit < 7; ++limit) {
    Given given;
    given.rnr_retry = static_cast<std::uint8_t>(limit);
    RetryingRig a(given);
    a.send(1);
    a.send(2);
    a.rig.take_all();
    for (unsigned n = 0; n < limit; ++n) {
      a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
      a.rig.expect_no_completion();
      a.rig.advance(Duration::milliseconds(1));
      a.rig.take_all();
    }
    a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
    a.rig.expect_send(1, CompletionStatus::RnrRetryExceeded);
    a.rig.expect_send(2, CompletionStatus::Flushed);
    EXPECT_EQ(a.rig.state(), QueuePairState::Error);
  }
}

TEST(Retry, q026_seven_rnr_retries_are_without_end) {
  Given given;
  given.rnr_retry = 7;
  RetryingRig a(given);
  a.send(1);
  for (int n = 0; n < 500; ++n) {
    a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
    a.rig.advance(Duration::milliseconds(1));
    a.rig.take_all();
  }
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Retry, q026_progress_gives_rnr_retries_back) {
  Given given;
  given.rnr_retry = 2;
  RetryingRig a(given);
  for (std::uint64_t id = 1; id <= 4; ++id) a.send(id);
  a.rig.take_all();
  for (std::uint32_t n = 0; n < 4; ++n) {
    for (int i = 0; i < 2; ++i) {
      a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(n)));
      a.rig.advance(Duration::milliseconds(1));
      a.rig.take_all();
    }
    a.rig.deliver(a.rig.ack(a.rig.our(n), n + 1));
    a.rig.expect_send(n + 1);
  }
}

TEST(Retry, q027_waiting_for_receives_costs_no_transport_retry) {
  Given given;
  given.retry_count = 0;
  given.timeout = 8;  // about a millisecond
  given.rnr_retry = 7;
  RetryingRig a(given);
  a.send(1);
  for (int n = 0; n < 50; ++n) {
    a.rig.deliver(a.rig.rnr_nak(20, a.rig.our(0)));  // ten times the timeout
    for (int i = 0; i < 100 && a.rig.kept(given.peer_qpn).empty(); ++i)
      a.rig.advance(Duration::microseconds(200));
    a.rig.take_all();
    ASSERT_EQ(a.rig.state(), QueuePairState::Rts) << n;
  }
  EXPECT_EQ(a.rig.nic.counters().local_ack_timeout_err, 0u);
}

TEST(Retry, q027_timeouts_cost_no_rnr_retry) {
  Given given;
  given.rnr_retry = 1;
  RetryingRig a(given);
  a.send(1);
  a.rig.advance(period(14) * 7 / 2);
  EXPECT_EQ(a.rig.nic.counters().local_ack_timeout_err, 3u);
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
  a.rig.expect_no_completion();
  a.rig.advance(period(14) * 2);
  a.rig.take_all();
  a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
  a.rig.expect_send(1, CompletionStatus::RnrRetryExceeded);
}

TEST(Retry, q028_progress_restarts_the_timer) {
  Given given;
  given.retry_count = 0;
  RetryingRig a(given);
  a.write(1, 8 * kMtu);
  for (std::uint32_t n = 0; n < 7; ++n) {
    a.rig.advance(period(14) * 9 / 10);
    a.rig.deliver(a.rig.ack(a.rig.our(n)));
  }
  a.rig.expect_no_completion();
  EXPECT_EQ(a.rig.nic.counters().local_ack_timeout_err, 0u);
}

TEST(Retry, q028_duplicate_answers_do_not_restart_the_timer) {
  Given given;
  given.retry_count = 0;
  RetryingRig a(given);
  a.write(1);
  a.write(2);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
  for (int i = 0; i < 41; ++i) {
    a.rig.advance(period(14) / 10);
    a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
    a.rig.deliver(a.rig.ack(a.rig.our(99), 1));
    a.rig.take_all();
  }
  a.rig.expect_send(2, CompletionStatus::RetryExceeded);
}

TEST(Retry, q028_idle_queue_pair_has_no_timer) {
  RetryingRig a;
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
  a.write(1);
  EXPECT_FALSE(a.rig.nic.next_deadline().is_never());
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.advance(Duration::seconds(1));
  a.rig.expect_silence();
  EXPECT_EQ(a.rig.nic.counters().retransmitted_pkts, 0u);
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
}

// When each of 32 queue pairs that lost the same at the same time sends again.
std::set<std::int64_t> times_of_return(bool rnr) {
  Given given;
  Device device(given);
  Memory& memory = device.memory(64);
  std::vector<std::unique_ptr<Line>> lines;
  for (std::uint32_t i = 0; i < 32; ++i) {
    given.peer_qpn = Qpn{0x100 + i};
    lines.push_back(std::make_unique<Line>(device, given));
    lines.back()->post(1, SendOpcode::Send, {memory.sge(0, 8)});
    lines.back()->take_all();
  }
  if (rnr)
    for (const auto& line : lines) line->deliver(line->rnr_nak(20, line->our(0)));
  std::set<std::int64_t> times;
  std::vector<bool> back(lines.size(), false);
  for (int step = 0; step < 1000 && device.advance_to_deadline(); ++step) {
    if (device.now.ns > 1'060'000'000) break;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (back[i] || device.kept(lines[i]->given().peer_qpn).empty()) continue;
      back[i] = true;
      times.insert(device.now.ns);
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count(back.begin(), back.end(), true)), lines.size());
  return times;
}

TEST(Retry, q029_queue_pairs_refused_together_do_not_return_together) {
  EXPECT_GT(times_of_return(true).size(), 16u);
}
TEST(Retry, q029_queue_pairs_that_lost_together_do_not_return_together) {
  EXPECT_GT(times_of_return(false).size(), 16u);
}

}  // namespace
}  // namespace verbena::conformance
