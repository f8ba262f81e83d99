// SPDX-License-Identifier: Apache-2.0
// What becomes of the requests a program posts, whichever way they go.
#include <cerrno>
#include <utility>

#include "both_ways.h"

namespace verbena::conformance {
namespace {

using S = QueuePairState;
using Op = SendOpcode;
using Status = CompletionStatus;

class Asking : public BothWays {};
INSTANTIATE_TEST_SUITE_P(, Asking, kWays, name_of);

TEST_P(Asking, q010_q014_o1_requests_end_in_the_order_of_posting_and_are_done_in_it) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Given some = given();
    some.seed = seed;
    Talk talk(some);
    SeededRandom random(seed);
    talk.near.put(0, pattern(8192));
    Outcomes sent, received;
    std::uint64_t value = 0;
    for (std::uint64_t id = 0; id < 50; ++id) {
      const auto length = static_cast<std::uint32_t>(random.below(3000));
      sent.push_back({id});
      switch (random.below(4)) {
        case 0:
          talk.receive(id, 32'768, 3000);
          talk.send(id, 0, length);
          received.push_back({id});
          break;
        case 1:
          talk.write(id, 0, length, 40'000);
          break;
        case 2:
          talk.read(id, 32'768, length, 32'768);
          break;
        default:
          talk.swap(id, static_cast<std::uint32_t>(60'000 + 8 * id), 0, value, id + 100);
          value = id + 100;
      }
    }
    talk.run();
    EXPECT_EQ(talk.sent(), sent) << seed;
    EXPECT_EQ(talk.received(), received) << seed;
    EXPECT_EQ(talk.far.word(0), value) << "each found what the one before it left";
  }
}

// ---- Silence

TEST_P(Asking, q022_q023_a_peer_that_is_stopped_is_given_up_after_that_many_periods) {
  for (const unsigned retries : {0u, 1u, 3u, 7u}) {
    Given some = given();
    some.retry_count = static_cast<std::uint8_t>(retries);
    Talk talk(some);
    talk.stop(1);
    talk.post_receive(0, 30);
    talk.write(1, 0, 8, 0);
    talk.write(2, 0, 8, 0);
    talk.pass(period(some.timeout) * (retries + 1) - Duration::nanoseconds(1));
    EXPECT_EQ(talk.sent(), Outcomes{});
    EXPECT_EQ(talk.side(0).state(), S::Rts);
    talk.pass(period(some.timeout) * 3 * (retries + 1));  // a real expiry may lie anywhere in [T, 4T]
    EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RetryExceeded}, {2, Status::Flushed}}));
    EXPECT_EQ(outcomes(talk.side(0).receives), (Outcomes{{30, Status::Flushed}}));
    EXPECT_EQ(talk.side(0).nic.counters().retry_exceeded_err, 1u);
  }
}

TEST_P(Asking, f09_a_peer_that_was_stopped_for_less_goes_on_as_if_nothing_had_been) {
  Talk talk(given());
  talk.near.put(0, pattern(9000));
  talk.receive(20, 20'000, 9000);
  talk.stop(1);
  talk.write(1, 0, 9000, 0);
  talk.send(2, 0, 9000);
  talk.read(3, 30'000, 9000, 0);
  talk.pass(period(given().timeout) * 6);
  EXPECT_EQ(talk.sent(), Outcomes{});
  talk.resume(1);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}}));
  EXPECT_EQ(talk.received(), Outcomes{{20}});
  EXPECT_TRUE(talk.far.holds(0, pattern(9000)) && talk.far.holds(20'000, pattern(9000)));
  EXPECT_TRUE(talk.near.holds(30'000, pattern(9000)));
}

TEST_P(Asking, f09_who_wakes_up_after_it_was_given_up_changes_nothing_at_its_peer) {
  Talk talk(given());
  talk.post_receive(0, 30, {talk.near.sge(0, 64)});
  talk.far.fill(std::byte{7});
  talk.post(1, 9, Op::Send, {talk.far.sge(0, 64)});
  talk.stop(1);  // before it sent that
  talk.write(1, 0, 8, 64);
  talk.read(2, 128, 8, 0);
  talk.pass(period(given().timeout) * 33);
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RetryExceeded}, {2, Status::Flushed}}));
  EXPECT_EQ(outcomes(talk.side(0).receives), (Outcomes{{30, Status::Flushed}}));
  talk.resume(1);
  talk.run();
  EXPECT_TRUE(talk.near.all(std::byte{0}));
  EXPECT_EQ(outcomes(talk.side(1).sends), (Outcomes{{9, Status::RetryExceeded}}));
  EXPECT_EQ(talk.side(0).receives.size(), 1u);
}

TEST_P(Asking, q024_without_a_timeout_there_is_no_end_of_waiting) {
  Given some = given();
  some.timeout = 0;
  some.retry_count = 0;
  Talk talk(some);
  talk.stop(1);
  talk.write(1, 0, 8, 0);
  talk.pass(Duration::seconds(100'000));
  EXPECT_EQ(talk.sent(), Outcomes{});
  talk.resume(1);
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{1}});
}

void change_in_sqd(Talk& talk, const QueuePairAttributes& changed, AttributeMask mask) {
  ASSERT_TRUE(talk.step(0, S::Sqd));
  QueuePairAttributes values = changed;
  values.state = S::Sqd;
  ASSERT_TRUE(talk.side(0).nic.modify_qp(talk.now(), talk.side(0).made.qpn, values, AttributeMask::State | mask));
}

TEST_P(Asking, q024_a_timeout_that_is_changed_in_SQD_counts_for_what_is_out) {
  Given some = given();
  some.retry_count = 1;
  const Duration a_period = period(some.timeout);
  QueuePairAttributes never, again;
  again.timeout = std::exchange(some.timeout, std::uint8_t{0});
  Talk talk(some);
  talk.stop(1);
  talk.write(1, 0, 8, 0);
  talk.pass(a_period * 100);
  change_in_sqd(talk, again, AttributeMask::Timeout);
  talk.pass(a_period + a_period / 2);
  change_in_sqd(talk, never, AttributeMask::Timeout);
  talk.pass(a_period * 100);
  EXPECT_EQ(talk.sent(), Outcomes{});
  change_in_sqd(talk, again, AttributeMask::Timeout);
  talk.pass(a_period - Duration::nanoseconds(1));
  EXPECT_EQ(talk.sent(), Outcomes{});
  talk.pass(a_period * 3);  // a real expiry may lie anywhere in [T, 4T]
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RetryExceeded}})) << "one retry was spent before";
}

TEST_P(Asking, q022_what_is_changed_in_SQD_gives_no_retries_back_but_their_number) {
  Given some = given();
  some.retry_count = 1;
  const Duration a_period = period(some.timeout);
  Talk talk(some);
  talk.stop(1);
  talk.write(1, 0, 8, 0);
  QueuePairAttributes values;
  values.min_rnr_timer = 9;
  values.retry_count = 1;
  for (int i = 0; i < 4; ++i) {
    talk.pass(a_period);
    change_in_sqd(talk, values, AttributeMask::RetryCount);
  }
  EXPECT_EQ(talk.sent(), Outcomes{});
  for (int i = 0; i < 5 && talk.side(0).state() != S::Error; ++i) {
    change_in_sqd(talk, values, AttributeMask::MinRnrTimer);
    talk.pass(a_period);
  }
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RetryExceeded}}));
}

TEST_P(Asking, q028_an_answer_begins_the_period_anew) {
  Given some = given();
  some.retry_count = 0;
  Talk talk(some);
  const Duration most = period(some.timeout) * 9 / 10;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    talk.stop(1);
    talk.write(2 * id, 0, 8, 0);
    talk.pass(most / 2);
    talk.write(2 * id + 1, 0, 8, 0);
    talk.pass(most / 2);
    talk.resume(1);
    talk.pass(Duration::microseconds(200));
    EXPECT_EQ(talk.sent(), (Outcomes{{2 * id}, {2 * id + 1}}));
  }
  EXPECT_EQ(talk.side(0).nic.counters().local_ack_timeout_err, 0u);
}

TEST_P(Asking, q026_q027_refused_too_often_is_an_error_7_is_for_ever_and_costs_no_other_retry) {
  for (const unsigned limit : {0u, 2u, 7u}) {
    Given some = given();
    some.rnr_retry = static_cast<std::uint8_t>(limit);
    some.min_rnr_timer = 20;  // 10.24 ms
    some.retry_count = 0;
    some.timeout = 8;  // about a millisecond
    Talk talk(some);
    talk.send(1, 0, 8);
    talk.send(2, 0, 8);
    talk.pass(Duration::milliseconds(1000));
    EXPECT_EQ(talk.side(0).nic.counters().local_ack_timeout_err, 0u);
    if (limit == 7) {
      EXPECT_EQ(talk.sent(), Outcomes{});
      talk.receive(20, 0, 8);
      talk.receive(21, 0, 8);
      talk.run();
      EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}}));
      continue;
    }
    EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RnrRetryExceeded}, {2, Status::Flushed}}));
    EXPECT_EQ(talk.side(0).nic.counters().rcvd_rnr_err, limit + 1);
  }
}

// ---- Order and limits

TEST_P(Asking, q030_no_more_reads_and_atomics_are_out_than_the_peer_takes) {
  for (const unsigned limit : {1u, 2u, 4u}) {
    Given some = given();
    some.max_rd_atomic = some.max_dest_rd_atomic = static_cast<std::uint8_t>(limit);
    Talk talk(some);
    Outcomes all;
    for (std::uint64_t id = 0; id < 30; ++id) {
      all.push_back({id});
      if (id % 3 == 0)
        talk.read(id, 0, 600, 0);
      else if (id % 3 == 1)
        talk.add(id, 8000, 8000, 1);
      else
        talk.write(id, 0, 8, 9000);
    }
    talk.run();
    EXPECT_EQ(talk.sent(), all) << "more would have been refused (R-082)";
    EXPECT_EQ(talk.far.word(8000), 10u);
  }
  Given none = given();
  none.max_rd_atomic = 0;
  Talk talk(none);
  talk.write(1, 0, 8, 0);
  talk.read(2, 0, 8, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2, Status::LocalQpOperationError}}));
}

TEST_P(Asking, q031_o3_a_fenced_request_carries_what_the_reads_before_it_brought) {
  Talk talk(given());
  for (std::uint64_t i = 1; i <= 20; ++i) {
    talk.far.put_word(0, i);
    talk.read(i, 0, 8, 0);
    talk.add(100 + i, 8, 0, 1, SendFlags::Signaled | SendFlags::Fence);
    talk.write(200 + i, 0, 8, 8, SendFlags::Signaled | SendFlags::Fence);
    talk.write(300 + i, 8, 8, 16);
    talk.run();
    EXPECT_EQ(talk.far.word(8), i);
    EXPECT_EQ(talk.far.word(16), i);
    EXPECT_EQ(talk.near.word(0), i);
    EXPECT_EQ(talk.sent().size(), 4u);
  }
}

TEST_P(Asking, q033_inline_bytes_are_those_of_the_post_and_need_no_key) {
  Talk talk(given());
  char text[] = "inline";
  talk.receive(20, 0, 6);
  talk.post(0, 1, Op::Send, {{reinterpret_cast<std::uint64_t>(text), 6, LKey{0xbad}}}, 0, {},
            SendFlags::Signaled | SendFlags::Inline);
  std::fill_n(text, 6, 'x');
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{1}});
  EXPECT_TRUE(std::equal(text, text + 6, "xxxxxx"));
  EXPECT_TRUE(talk.far.holds(0, std::as_bytes(std::span("inline", 6))));
}

TEST_P(Asking, q034_q035_what_is_not_signaled_ends_silently_unless_it_fails_or_all_are) {
  for (const bool all : {true, false}) {
    Given some = given();
    some.signal_all = all;
    Talk talk(some);
    talk.write(1, 0, 8, 0, SendFlags::None);
    talk.write(2, 0, 8, 0);
    talk.write(3, 0, 8, 0, SendFlags::None);
    talk.run();
    EXPECT_EQ(talk.sent(), all ? (Outcomes{{1}, {2}, {3}}) : Outcomes{{2}});
    talk.post(0, 4, Op::RdmaWrite, {talk.near.sge(0, 8)}, 0, RKey{0xbad}, SendFlags::None);
    talk.write(5, 0, 8, 0, SendFlags::None);
    talk.run();
    EXPECT_EQ(talk.sent(), (Outcomes{{4, Status::RemoteAccessError}, {5, Status::Flushed}}));
  }
}

TEST_P(Asking, q040_q041_q042_what_a_post_can_refuse_it_refuses_and_keeps_what_stood_before) {
  Given some = given();
  some.capabilities.max_send_requests = 4;
  Talk talk(some);
  const std::array<ScatterGather, 5> wide{};
  SendRequest request;
  core::QueuePair& queues = *talk.side(0).made.queues;
  request.local = wide;
  EXPECT_EQ(queues.post_send({&request, 1}).status, PostStatus::TooManySegments);
  for (std::uint64_t id = 1; id <= 4; ++id) talk.write(id, 0, 8, 0);
  request.local = {};
  EXPECT_EQ(queues.post_send({&request, 1}).status, PostStatus::QueueFull);
  talk.run();
  talk.write(5, 0, 8, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}, {4}, {5}}));
  ASSERT_TRUE(talk.step(0, S::Sqd));
  talk.write(6, 0, 8, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{}) << "taken, and not started";
  ASSERT_TRUE(talk.step(0, S::Error));
  talk.write(7, 0, 8, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{6, Status::Flushed}, {7, Status::Flushed}}));
  ASSERT_TRUE(talk.step(0, S::Reset));
  EXPECT_EQ(queues.post_send({&request, 1}).status, PostStatus::WrongState);
}

// ---- Errors and flushes

TEST_P(Asking, q050_bad_memory_fails_a_request_in_its_turn_and_nothing_of_it_is_done) {
  for (const Op op : {Op::Send, Op::RdmaWrite, Op::RdmaRead, Op::FetchAndAdd})
    for (int kind = 0; kind < 5; ++kind) {
      Talk talk(given());
      soft::Nic& nic = talk.side(0).nic;
      Memory readonly(nic, talk.side(0).pd, 64, Access::RemoteRead, {});
      Memory foreign(nic, nic.create_pd().value(), 64, Access::All, {});
      Memory dead(nic, talk.side(0).pd, 64, Access::All, {});
      ASSERT_TRUE(nic.deregister_memory(dead.lkey()));
      const bool fetches = op == Op::RdmaRead || op == Op::FetchAndAdd;
      if (kind == 4 && !fetches) continue;
      const ScatterGather bad[] = {{talk.near.va(), 8, LKey{1}},
                                   {talk.near.va(Pair::kMemoryBytes - 7), 8, talk.near.lkey()},
                                   foreign.sge(0, 8),
                                   dead.sge(0, 8),
                                   readonly.sge(0, 8)};
      talk.receive(20, 0, 8);
      talk.write(1, 0, 8, 64);
      talk.read(2, 64, 8, 64);
      talk.post(0, 3, op, {bad[kind]}, talk.far.va(128), talk.far.rkey(), SendFlags::None);
      talk.write(4, 0, 8, 256);
      talk.run();
      EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3, Status::LocalProtectionError}, {4, Status::Flushed}}));
      EXPECT_NE(talk.received(), Outcomes{{20}});
      EXPECT_TRUE(talk.far.all(std::byte{0}));
      EXPECT_EQ(talk.side(0).state(), S::Error);
      EXPECT_TRUE(readonly.all(std::byte{0}));
    }
}

TEST_P(Asking, q051_every_request_and_receive_has_one_outcome_in_order_at_both_ends) {
  Talk talk(given());
  for (std::uint64_t id = 1; id <= 10; ++id) {
    talk.post_receive(0, 30 + id);
    talk.receive(20 + id, 0, id == 6 ? 5 : 1000);
    talk.post(1, 50 + id, Op::RdmaWrite, {talk.far.sge(0, 8)}, talk.near.va(8000), talk.near.rkey(),
              SendFlags::None);
    talk.send(id, 0, 1000, id % 2 == 0 ? SendFlags::None : SendFlags::Signaled);
  }
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1},
                                   {3},
                                   {5},
                                   {6, Status::RemoteInvalidRequest},
                                   {7, Status::Flushed},
                                   {8, Status::Flushed},
                                   {9, Status::Flushed},
                                   {10, Status::Flushed}}));
  const Outcomes received = talk.received();
  ASSERT_EQ(received.size(), 10u);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(received[i].id, 21 + i);
    EXPECT_EQ(received[i].status, i < 5    ? Status::Success
                                  : i == 5 ? Status::LocalLengthError
                                           : Status::Flushed);
  }
  const Outcomes ours = outcomes(talk.side(0).receives);
  ASSERT_EQ(ours.size(), 10u);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(ours[i], (Outcome{31 + i, Status::Flushed}));
  talk.pass(Duration::seconds(10));
  EXPECT_EQ(talk.sent(), Outcomes{});
}

TEST_P(Asking, q052_error_by_the_user_flushes_and_its_peer_meets_it_with_what_it_asks) {
  Talk talk(given());
  talk.stop(1);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    talk.write(id, 0, 8, 0, SendFlags::None);
    talk.post_receive(0, 10 + id);
  }
  talk.run(Duration::milliseconds(1));
  ASSERT_TRUE(talk.step(0, S::Error));
  talk.resume(1);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::Flushed}, {2, Status::Flushed}, {3, Status::Flushed}}));
  EXPECT_EQ(outcomes(talk.side(0).receives),
            (Outcomes{{11, Status::Flushed}, {12, Status::Flushed}, {13, Status::Flushed}}));
  EXPECT_EQ(talk.events(0), Events{});
  EXPECT_EQ(talk.side(1).state(), S::Rts);
  talk.post(1, 5, Op::RdmaWrite, {talk.far.sge(0, 8)}, talk.near.va(0), talk.near.rkey());
  talk.run();
  EXPECT_EQ(outcomes(talk.side(1).sends), (Outcomes{{5, Status::RetryExceeded}}));
}

// What is in its memory already has come: it is done and said. Packets that nobody has taken have not.
TEST_P(Asking, q052_what_has_come_is_answered_before_its_queue_pair_stops) {
  for (const S stops : {S::Error, S::Reset}) {
    Talk talk(given());
    talk.near.put(0, pattern(100));
    talk.stop(1);
    talk.write(1, 0, 100, 0);
    talk.run(Duration::milliseconds(1));
    ASSERT_TRUE(talk.step(1, stops));
    talk.resume(1);
    talk.run();
    const bool came = given().way != Way::Packets;
    EXPECT_EQ(talk.sent(), (Outcomes{{1, came ? Status::Success : Status::RetryExceeded}}));
    EXPECT_EQ(talk.far.holds(0, pattern(100)), came);
  }
}

TEST_P(Asking, q053_reset_discards_without_a_word_and_a_new_life_begins_afresh) {
  Talk talk(given());
  talk.near.put(0, pattern(3000));
  for (int life = 0; life < 3; ++life) {
    talk.stop(1);
    talk.send(1, 0, 3000);
    talk.write(2, 0, 3000, 0);
    talk.post_receive(0, 30);
    talk.run(Duration::microseconds(100));
    for (const int i : {0, 1}) ASSERT_TRUE(talk.step(i, S::Reset));
    talk.resume(1);
    talk.run();
    EXPECT_EQ(talk.sent(), Outcomes{});
    EXPECT_EQ(talk.side(0).receives.size(), 0u);
    EXPECT_EQ(talk.received(), Outcomes{});
    talk.join(talk.side(0).made.qpn, talk.side(1).made.qpn);
    talk.far.fill(std::byte{0});
    talk.receive(20, 4000, 3000);
    talk.send(3, 0, 3000);
    talk.write(4, 0, 3000, 0);
    talk.run();
    EXPECT_EQ(talk.sent(), (Outcomes{{3}, {4}}));
    EXPECT_EQ(talk.received(), Outcomes{{20}});
    EXPECT_TRUE(talk.far.holds(0, pattern(3000)) && talk.far.holds(4000, pattern(3000)));
  }
}

TEST_P(Asking, q055_in_SQD_what_was_started_ends_the_rest_waits_and_the_peer_is_still_served) {
  Talk talk(given());
  talk.near.put(0, pattern(3000));
  talk.stop(1);
  talk.write(1, 0, 3000, 0);
  talk.run(Duration::microseconds(1));
  QueuePairAttributes values;
  values.state = S::Sqd;
  values.sq_drained_event = true;
  ASSERT_TRUE(talk.side(0).nic.modify_qp(talk.now(), talk.side(0).made.qpn, values,
                                         AttributeMask::State | AttributeMask::SqDrainedEvent));
  talk.write(2, 0, 8, 8000);
  EXPECT_EQ(talk.events(0), Events{});
  talk.resume(1);
  talk.post(1, 5, Op::RdmaWrite, {talk.far.sge(4000, 8)}, talk.near.va(9000), talk.near.rkey());
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{1}});
  EXPECT_TRUE(talk.far.holds(0, pattern(3000)));
  EXPECT_EQ(talk.far.word(8000), 0u);
  EXPECT_EQ(talk.events(0), Events{AsyncEventType::SqDrained});
  EXPECT_EQ(outcomes(talk.side(1).sends), Outcomes{{5}});
  ASSERT_TRUE(talk.step(0, S::Rts));
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{2}});
}

TEST_P(Asking, q070_refused_changes_of_attributes_change_nothing) {
  Talk talk(given());
  QueuePairAttributes values;
  values.state = S::Rtr;
  values.path_mtu = 777;
  for (const AttributeMask mask :
       {AttributeMask::State, AttributeMask::PathMtu, AttributeMask::State | AttributeMask::Timeout})
    EXPECT_EQ(talk.side(0).nic.modify_qp(talk.now(), talk.side(0).made.qpn, values, mask).error().native(),
              EINVAL);
  EXPECT_EQ(talk.side(0).state(), S::Rts);
  talk.write(1, 0, 3000, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{1}});
}

// ---- What users may rely on

TEST_P(Asking, o2_a_completed_receive_means_that_all_earlier_writes_are_there) {
  Talk talk(given());
  talk.near.put(0, pattern(16'000));
  for (std::uint64_t id = 0; id < 8; ++id) {
    talk.receive(id, 60'000, 8);
    talk.write(id, static_cast<std::uint32_t>(id * 2000), 1400, id * 2000, SendFlags::None);
    talk.write(id, static_cast<std::uint32_t>(id * 2000 + 1400), 600, id * 2000 + 1400, SendFlags::None);
    talk.send(id, 0, 0);
  }
  std::size_t seen = 0;
  talk.watch = [&] {
    for (; seen < talk.side(1).receives.size(); ++seen)
      EXPECT_TRUE(talk.far.holds(seen * 2000, talk.near.bytes(seen * 2000, 2000))) << seen;
  };
  talk.run();
  EXPECT_EQ(seen, 8u);
}

TEST_P(Asking, o4_the_last_byte_of_a_write_comes_after_all_others_and_before_the_next_write) {
  constexpr std::uint32_t kBytes = 5000;
  Talk talk(given());
  talk.near.fill(std::byte{7});
  talk.watch = [&] {
    const std::byte* const at = talk.far.data();
    const auto first = std::count(at, at + kBytes, std::byte{7});
    const auto second = std::count(at + kBytes, at + 2 * kBytes, std::byte{7});
    EXPECT_TRUE(first == kBytes || (at[kBytes - 1] == std::byte{0} && second == 0));
    EXPECT_TRUE(second == kBytes || at[2 * kBytes - 1] == std::byte{0});
  };
  talk.write(1, 0, kBytes, 0);
  talk.write(2, 0, kBytes, kBytes);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}}));
}

TEST_P(Asking, o5_a_queue_pair_that_waits_or_fails_leaves_the_others_alone) {
  Given some = given();
  some.min_rnr_timer = 20;
  Talk talk(some);
  soft::Nic::QpInit init[2];
  core::QueuePair* others[2];
  for (const int i : {0, 1}) {
    init[i].pd = talk.side(i).pd;
    init[i].send_cq = init[i].receive_cq = talk.side(i).send_cq;
    init[i].capabilities = {64, 64, 1, 1, 0};
    others[i] = talk.side(i).nic.create_qp(init[i]).value().queues;
  }
  talk.join(others[0]->qpn(), others[1]->qpn());
  const auto write = [&](std::uint64_t id) {
    const ScatterGather piece = talk.near.sge(0, 3000);
    SendRequest request;
    request.id = id;
    request.opcode = Op::RdmaWrite;
    request.local = {&piece, 1};
    request.remote_address = talk.far.va(0);
    request.rkey = talk.far.rkey();
    ASSERT_TRUE(others[0]->post_send({&request, 1}));
    talk.side(0).nic.ring_doorbell(*others[0]);
  };
  talk.send(1, 0, 8);  // no receive is there
  write(100);
  talk.pass(Duration::milliseconds(5));
  EXPECT_EQ(talk.sent(), Outcomes{{100}});
  talk.receive(20, 0, 4);  // and then one that is too short
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RemoteInvalidRequest}}));
  write(101);
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{101}});
}

}  // namespace
}  // namespace verbena::conformance
