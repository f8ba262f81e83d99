// SPDX-License-Identifier: Apache-2.0
// What two rings do when something is not as it should be: no receive, no right, no answer, no peer, no memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

#include "base/fault_guard.h"
#include "base/rnr_timer.h"
#include "base/sanitizer.h"
#include "soft/core/shared_receive_queue.h"
#include "soft/local/test_pair.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

using namespace testing;

// ---- No receive

TEST(LocalReceive, r070_r071_q025_all_from_the_refused_request_on_comes_again_after_the_wait) {
  Given given;
  given.min_rnr_timer = 12;
  Pair pair(given);
  pair.a.put(0, pattern(3000));
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 30'000);
  pair.a.send(2, 0, 3000);
  pair.a.fetch_or_write(Op::FetchAndAdd, 3, 40'000, 8, pair.b, 40'000);
  pair.a.fetch_or_write(Op::RdmaWrite, 4, 0, 8, pair.b, 30'008);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{1}) << "all before it is done";
  EXPECT_EQ(pair.b.word(40'000), 0u) << "nothing behind it is";
  EXPECT_TRUE(pair.b.holds(30'008, Bytes(8)));
  const Duration wait = pair.a.transport->deadline() - pair.now;
  EXPECT_GE(wait, rnr_duration(12));
  EXPECT_LE(wait, rnr_duration(12) + rnr_duration(12) / 8);
  pair.b.receive(9, 0, 3000);
  pair.run();
  EXPECT_TRUE(pair.b.received().empty()) << "before the time is over";
  EXPECT_TRUE(pair.wait());
  EXPECT_EQ(ids(pair.b.received()), Ids{9});
  EXPECT_TRUE(pair.b.holds(0, pattern(3000)));
  EXPECT_EQ(pair.b.word(40'000), 9u);
  EXPECT_EQ(ids(pair.a.sent()), (Ids{2, 3, 4}));
  EXPECT_EQ(pair.a.counters.rcvd_rnr_err, 1u);
  EXPECT_EQ(pair.b.counters.send_rnr_err, 1u);
}

TEST(LocalReceive, q026_q027_refused_too_often_is_an_error_and_7_is_for_ever) {
  for (const std::uint8_t retries : std::initializer_list<std::uint8_t>{0, 3, 7}) {
    Given given;
    given.rnr_retry = retries;
    given.retry_count = 0;
    Pair pair(given);
    pair.a.send(1, 0, 8);
    pair.a.send(2, 0, 8);
    pair.run();
    for (int i = 0; i < 100 && pair.wait(); ++i) {
    }
    if (retries == 7) {
      EXPECT_EQ(pair.a.qp->state(), QueuePairState::Rts);
      EXPECT_GE(pair.b.counters.send_rnr_err, 100u);
      continue;
    }
    EXPECT_EQ(pair.b.counters.send_rnr_err, retries + 1u);
    EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::RnrRetryExceeded, Status::Flushed}));
    EXPECT_EQ(pair.a.counters.retry_rnr_exceeded_err, 1u);
    EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  }
}

TEST(LocalReceive, r072_a_write_with_immediate_needs_its_receive_only_at_the_end) {
  Given given;
  given.capacity = 512;
  Pair pair(given);
  pair.a.put(0, pattern(2000));
  pair.a.fetch_or_write(Op::RdmaWriteWithImmediate, 1, 0, 2000, pair.b, 0);
  pair.run();
  EXPECT_TRUE(pair.b.holds(0, pattern(1000))) << "what came before stays written";
  pair.b.receive(5, 0, 0);
  EXPECT_TRUE(pair.wait());
  EXPECT_TRUE(pair.b.holds(0, pattern(2000)));
  EXPECT_EQ(ids(pair.b.received()), Ids{5});
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
}

TEST(LocalReceive, a_program_that_receives_again_only_when_its_own_send_is_done_goes_on_at_both_ends) {
  Pair pair;
  std::uint64_t done_a = 0, done_b = 0;
  pair.a.send(0, 0, 8);
  pair.b.send(0, 0, 8);
  for (int i = 0; i < 1000 && (done_a < 20 || done_b < 20); ++i) {
    pair.run();
    for (auto* side : {&pair.a, &pair.b}) {
      side->received();
      for (const Completion& completion : side->sent()) {
        ASSERT_EQ(completion.status, Status::Success);
        std::uint64_t& done = side == &pair.a ? done_a : done_b;
        ++done;
        side->receive(done, 0, 8);
        side->send(done, 0, 8);
      }
    }
    if (i == 0) {
      pair.a.receive(100, 0, 8);
      pair.b.receive(100, 0, 8);
    }
    pair.wait();
  }
  EXPECT_GE(done_a, 20u);
  EXPECT_GE(done_b, 20u);
}

TEST(LocalReceive, r075_r076_r077_shared_receives_are_given_out_once) {
  core::EventQueue events;
  core::SharedReceiveQueue shared(core::SrqId{1}, {}, 8, 2, events);
  shared.arm(2);
  Given given;
  Side a(given, 1), b(given, 2, &shared);
  RingStorage to_b(1024), to_a(1024);
  a.to(QueuePairState::Rts);
  b.to(QueuePairState::Rts);
  const ScatterGather local = b.sge(0, 64);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const ReceiveRequest request{id, {&local, 1}};
    ASSERT_TRUE(shared.post({&request, 1}));
  }
  a.transport->attach(Instant{}, {RingProducer(to_b.memory()), RingConsumer(to_a.memory())});
  b.transport->attach(Instant{}, {RingProducer(to_a.memory()), RingConsumer(to_b.memory())});
  for (std::uint64_t id = 1; id <= 3; ++id) a.send(id, 0, 8);
  a.transport->emit(Instant{});
  b.transport->handle_records(Instant{});
  EXPECT_EQ(ids(b.received()), (Ids{1, 2}));
  EXPECT_EQ(b.counters.send_rnr_err, 1u);
  ASSERT_TRUE(b.go(QueuePairState::Error));
  EXPECT_EQ(b.happened(), Events{AsyncEventType::LastWqeReached});
}

TEST(LocalPeer, one_that_is_gone_is_told_of_where_nothing_was_outstanding_to_fail) {
  for (const bool gone : {false, true}) {
    Pair pair(Given{});
    pair.run();
    pair.a.receive(1, 0, 8);
    pair.a.transport->handle_hang_up(pair.now, gone);
    EXPECT_EQ(pair.a.happened(), gone ? Events{AsyncEventType::PeerEnded} : Events{});
    EXPECT_EQ(pair.a.qp->state(), QueuePairState::Rts);
    pair.a.send(2, 0, 8);
    pair.a.transport->handle_doorbell();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
    EXPECT_EQ(statuses(pair.a.received()), Statuses{Status::Flushed});
  }
  Pair pair(Given{});
  pair.run();
  pair.a.send(1, 0, 8);
  pair.a.transport->handle_hang_up(pair.now, true);
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
  EXPECT_EQ(pair.a.happened(), Events{});
}

// ---- Lengths, rights and keys

struct Refused {
  Op op;
  Status status;
  AsyncEventType event;
};

// One request that the responder must refuse without touching memory; the one before it stays done.
void expect_refused(Pair& pair, const Refused& want, std::uint64_t length = 8) {
  const Bytes untouched(pair.b.data(), pair.b.data() + 60'000);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, want.status, Status::Flushed})) << length;
  EXPECT_EQ(pair.a.qp->state(), QueuePairState::Error);
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Error);
  EXPECT_EQ(pair.b.happened(), Events{want.event});
  EXPECT_TRUE(pair.a.happened().empty());
  EXPECT_TRUE(pair.a.transport->finished() && pair.b.transport->finished());
  EXPECT_TRUE(pair.b.holds(0, untouched));
}

struct Attempt {
  Op op = Op::RdmaWrite;
  std::uint64_t remote = 64;
  std::size_t length = 8;
  std::optional<RKey> rkey;
};

void attempt(Pair& pair, const Attempt& what) {
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 0, pair.b, 0);
  const ScatterGather local = pair.a.sge(0, what.length);
  SendRequest request;
  request.id = 2;
  request.opcode = what.op;
  request.local = {&local, 1};
  request.remote_address = pair.b.region.iova + what.remote;
  request.rkey = what.rkey.value_or(pair.b.region.rkey);
  pair.a.post(request);
  pair.a.send(3, 0, 8);
}

constexpr Refused kInvalid{Op::Send, Status::RemoteInvalidRequest, AsyncEventType::QpRequestError};
constexpr Refused kAccess{Op::Send, Status::RemoteAccessError, AsyncEventType::QpAccessError};

TEST(LocalRights, r060_each_right_is_needed_of_the_queue_pair_and_of_the_region) {
  const std::pair<Op, Access> all[] = {{Op::RdmaWrite, Access::RemoteWrite},
                                       {Op::RdmaRead, Access::RemoteRead},
                                       {Op::CompareAndSwap, Access::RemoteAtomic},
                                       {Op::FetchAndAdd, Access::RemoteAtomic}};
  for (const auto& [op, right] : all) {
    const auto others =
        static_cast<Access>(static_cast<std::uint32_t>(Access::All) & ~static_cast<std::uint32_t>(right));
    Given weak_qp, weak_region;
    // The zero-length WRITE before it needs the queue pair's right to write.
    weak_qp.qp_access = others;
    if (op != Op::RdmaWrite) {
      Pair pair({}, weak_qp);
      attempt(pair, {op, 64, 8, {}});
      expect_refused(pair, kInvalid);
    } else {
      Pair pair({}, weak_qp);
      pair.a.fetch_or_write(op, 1, 0, 8, pair.b, 64);
      pair.run();
      EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteInvalidRequest});
    }
    weak_region.memory_access = others;
    Pair pair({}, weak_region);
    attempt(pair, {op, 64, 8, {}});
    expect_refused(pair, kAccess);
  }
}

TEST(LocalRights, r062_r063_r066_no_byte_outside_the_region_and_no_dead_key) {
  const std::size_t end = Given{}.memory_bytes;
  for (const Op op : {Op::RdmaWrite, Op::RdmaRead})
    for (const Attempt& what : {Attempt{op, ~std::uint64_t{0}, 8, {}}, Attempt{op, end - 7, 8, {}},
                                Attempt{op, end, 1, {}}, Attempt{op, ~std::uint64_t{0} - 0x10000 - 3, 8, {}},
                                Attempt{op, 0, 8, RKey{77}}}) {
      Pair pair;
      attempt(pair, what);
      expect_refused(pair, kAccess);
    }
  Pair pair;
  attempt(pair, {Op::RdmaWrite, end - 8, 8, {}});
  pair.b.receive(1, 0, 8);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3})) << "up to the last byte";
}

TEST(LocalRights, r064_of_nothing_neither_key_nor_address_is_looked_at) {
  for (const Op op : {Op::RdmaWrite, Op::RdmaRead}) {
    Pair pair;
    attempt(pair, {op, ~std::uint64_t{0} - 5, 0, RKey{1}});
    pair.b.receive(1, 0, 8);
    pair.run();
    EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3}));
  }
}

TEST(LocalRights, r065_an_atomic_that_is_not_aligned_is_refused) {
  for (const std::uint64_t offset : {1u, 4u, 7u}) {
    Pair pair;
    attempt(pair, {Op::FetchAndAdd, 64 + offset, 8, {}});
    expect_refused(pair, kInvalid);
  }
}

TEST(LocalRights, r067_a_region_that_goes_in_the_middle_of_a_write_takes_no_further_byte) {
  Given given;
  given.capacity = 1024;
  Pair pair(given);
  pair.a.put(0, pattern(20'000));
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 20'000, pair.b, 0);
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  EXPECT_TRUE(pair.b.holds(0, pattern(100)));
  ASSERT_TRUE(pair.b.memory.deregister(pair.b.region.lkey));
  const Bytes before(pair.b.data(), pair.b.data() + 60'000);
  pair.run();
  EXPECT_TRUE(pair.b.holds(0, before));
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteAccessError});
}

TEST(LocalRights, r031_a_region_that_goes_in_the_middle_of_a_read_ends_it) {
  Given given;
  given.capacity = 1024;
  Pair pair(given);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 20'000, pair.b, 0);
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  EXPECT_TRUE(pair.b.transport->emit(pair.now));
  ASSERT_TRUE(pair.b.memory.deregister(pair.b.region.lkey));
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteAccessError});
  EXPECT_EQ(pair.b.happened(), Events{AsyncEventType::QpAccessError});
}

TEST(LocalRights, r058_a_receive_that_is_too_short_ends_both_ends) {
  Pair pair;
  pair.b.receive(1, 0, 7);
  pair.b.receive(2, 0, 7);
  attempt(pair, {Op::Send, 0, 8, {}});
  expect_refused(pair, kInvalid);
  EXPECT_EQ(statuses(pair.b.received()), (Statuses{Status::LocalLengthError, Status::Flushed}));
}

TEST(LocalRights, r079_a_receive_with_a_wrong_key_is_a_remote_operation_error) {
  Pair pair;
  const ScatterGather wrong{pair.b.va(0), 64, LKey{5}};
  const ReceiveRequest receive{1, {&wrong, 1}};
  ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
  attempt(pair, {Op::Send, 0, 8, {}});
  expect_refused(pair, {Op::Send, Status::RemoteOperationError, AsyncEventType::QpRequestError});
  EXPECT_EQ(statuses(pair.b.received()), Statuses{Status::LocalProtectionError});
}

TEST(LocalRights, r094_all_before_a_refusal_is_answered_and_after_it_there_is_silence) {
  Pair pair;
  pair.b.put(0, pattern(9000));
  pair.a.fetch_or_write(Op::RdmaRead, 1, 20'000, 9000, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaRead, 2, 0, 8, pair.b, ~std::uint64_t{0});
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Error);
  EXPECT_FALSE(pair.b.transport->finished()) << "the reason is not out";
  pair.run();
  EXPECT_TRUE(pair.b.transport->finished());
  EXPECT_FALSE(pair.b.transport->ready(pair.now));
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::RemoteAccessError}));
  EXPECT_TRUE(pair.a.holds(20'000, pattern(9000)));
}

// ---- No answer

TEST(LocalSilence, q022_a_request_that_finds_no_room_waits_for_the_peer_as_one_that_was_written) {
  Given given;
  given.retry_count = 2;
  Pair pair(given);
  const std::uint32_t most = given.capacity;
  pair.b.fetch_or_write(Op::RdmaRead, 1, 0, most, pair.a, 0);
  EXPECT_TRUE(pair.b.transport->emit(pair.now));
  EXPECT_TRUE(pair.a.transport->handle_records(pair.now));
  while (pair.a.transport->ready(pair.now)) ASSERT_TRUE(pair.a.transport->emit(pair.now));
  EXPECT_TRUE(pair.a.transport->deadline().is_never()) << "it waits for nothing";
  pair.a.send(2, 0, 8);
  pair.a.send(3, 0, 8);
  EXPECT_FALSE(pair.a.transport->ready(pair.now)) << "what the peer does not read";
  for (int period = 0; period < 3; ++period) {
    ASSERT_FALSE(pair.a.transport->deadline().is_never());
    EXPECT_TRUE(pair.a.sent().empty());
    pair.now = pair.a.transport->deadline();
    pair.a.transport->handle_timeout(pair.now);
    static_cast<void>(pair.a.transport->ready(pair.now));
  }
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::RetryExceeded, Status::Flushed}));
}

TEST(LocalSilence, q022_a_peer_that_goes_on_reading_makes_room_and_is_not_given_up) {
  Given given;
  given.retry_count = 0;
  Pair pair(given);
  pair.b.fetch_or_write(Op::RdmaRead, 1, 0, given.capacity, pair.a, 0);
  EXPECT_TRUE(pair.b.transport->emit(pair.now));
  EXPECT_TRUE(pair.a.transport->handle_records(pair.now));
  while (pair.a.transport->ready(pair.now)) ASSERT_TRUE(pair.a.transport->emit(pair.now));
  pair.b.receive(2, 0, 8);
  pair.a.send(2, 0, 8);
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
  pair.now = pair.a.transport->deadline();
  pair.a.transport->handle_timeout(pair.now);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
  EXPECT_TRUE(pair.a.transport->deadline().is_never());
}

TEST(LocalSilence, q022_q023_a_peer_that_neither_reads_nor_answers_is_given_up) {
  Given given;
  given.retry_count = 2;
  Pair pair(given);
  pair.a.send(1, 0, 8);
  pair.a.send(2, 0, 8);
  const Instant begin = pair.now;
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  while (!pair.a.transport->deadline().is_never()) {
    pair.now = pair.a.transport->deadline();
    pair.a.transport->handle_timeout(pair.now);
  }
  EXPECT_EQ((pair.now - begin).ns, 3 * 4096 * 1024);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 3u);
  const auto sent = pair.a.sent();
  EXPECT_EQ(statuses(sent), (Statuses{Status::RetryExceeded, Status::Flushed}));
  EXPECT_EQ(sent[0].vendor_error, 0u);
}

TEST(LocalSilence, q022_a_peer_that_reads_is_waited_for) {
  Given given;
  given.capacity = 512;
  given.retry_count = 0;
  Pair pair(given);
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 20'000, pair.b, 0);
  for (int i = 0; i < 20; ++i) {
    pair.a.transport->emit(pair.now);
    pair.b.transport->handle_records(pair.now);
    pair.now = pair.a.transport->deadline();
    pair.a.transport->handle_timeout(pair.now);
  }
  EXPECT_EQ(pair.a.qp->state(), QueuePairState::Rts);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  pair.now = pair.a.transport->deadline();
  pair.a.transport->handle_timeout(pair.now);
  EXPECT_EQ(pair.a.qp->state(), QueuePairState::Error);
}

TEST(LocalSilence, q024_without_a_timeout_there_is_no_end_of_waiting) {
  Given given;
  given.timeout = 0;
  Pair pair(given);
  pair.a.send(1, 0, 8);
  pair.a.transport->emit(pair.now);
  EXPECT_TRUE(pair.a.transport->deadline().is_never());
}

TEST(LocalSilence, q028_an_answer_begins_the_period_anew) {
  Pair pair;
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  const Instant first = pair.a.transport->deadline();
  pair.b.transport->handle_records(pair.now);
  pair.b.transport->handle_records(pair.now);
  pair.b.transport->emit(pair.now);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  pair.now = pair.now + Duration::microseconds(100);
  pair.a.transport->handle_records(pair.now);
  EXPECT_EQ(pair.a.transport->deadline(), first + Duration::microseconds(100));
  pair.run();
  EXPECT_TRUE(pair.a.transport->deadline().is_never());
}

// ---- No peer

TEST(LocalDeath, q051_what_was_published_counts_then_the_oldest_fails_and_the_rest_is_flushed) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.receive(50, 0, 8);
  pair.a.receive(51, 0, 8);
  pair.a.send(1, 0, 8);
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  pair.b.send(9, 0, 8);
  pair.b.transport->emit(pair.now);
  for (std::uint64_t id = 2; id <= 4; ++id) pair.a.send(id, 0, 8, SendFlags::None);
  pair.a.transport->emit(pair.now);
  pair.end(pair.b);
  const auto sent = pair.a.sent();
  EXPECT_EQ(ids(sent), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(statuses(sent), (Statuses{Status::Success, Status::RetryExceeded, Status::Flushed, Status::Flushed}));
  EXPECT_EQ(sent[1].vendor_error, core::kVendorPeerEnded);
  EXPECT_EQ(statuses(pair.a.received()), (Statuses{Status::Success, Status::Flushed}));
  EXPECT_TRUE(pair.a.transport->finished());
}

TEST(LocalDeath, who_asked_for_nothing_hears_of_it_with_the_next_request) {
  Pair pair;
  pair.a.receive(1, 0, 8);
  pair.end(pair.b);
  EXPECT_EQ(pair.a.qp->state(), QueuePairState::Rts);
  EXPECT_TRUE(pair.a.received().empty());
  pair.a.transport->detach();
  pair.a.send(2, 0, 8);
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
  EXPECT_EQ(statuses(pair.a.received()), Statuses{Status::Flushed});
}

TEST(LocalDeath, q055_in_SQD_only_what_was_started_fails) {
  Pair pair;
  ASSERT_TRUE(pair.a.go(QueuePairState::Sqd));
  pair.a.send(1, 0, 8);
  pair.end(pair.b);
  EXPECT_EQ(pair.a.qp->state(), QueuePairState::Sqd);
  ASSERT_TRUE(pair.a.go(QueuePairState::Rts));
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
}

TEST(LocalDeath, q052_q053_a_peer_put_into_ERR_or_RESET_is_a_peer_that_is_gone_and_a_new_life_begins_afresh) {
  for (const QueuePairState state : {QueuePairState::Error, QueuePairState::Reset}) {
    Pair pair;
    pair.a.send(1, 0, 8);
    pair.a.transport->emit(pair.now);
    ASSERT_TRUE(pair.b.go(state));
    EXPECT_TRUE(state == QueuePairState::Reset || pair.b.transport->finished());
    EXPECT_EQ(pair.b.transport->attached(), state == QueuePairState::Error);
    pair.end(pair.b);
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
    for (auto* side : {&pair.a, &pair.b}) {
      ASSERT_TRUE(side->qp->state() == QueuePairState::Reset || side->go(QueuePairState::Reset));
      side->to(QueuePairState::Rts);
    }
    RingStorage to_b(1024), to_a(1024);
    pair.a.transport->attach(pair.now, {RingProducer(to_b.memory()), RingConsumer(to_a.memory())});
    pair.b.transport->attach(pair.now, {RingProducer(to_a.memory()), RingConsumer(to_b.memory())});
    pair.b.receive(8, 0, 8);
    pair.a.send(7, 0, 8);
    pair.run();
    EXPECT_EQ(ids(pair.a.sent()), Ids{7});
    pair.a.transport->detach();
    pair.b.transport->detach();
  }
}

TEST(LocalDeath, r132_a_device_that_fails_the_queue_pair_silences_it) {
  Pair pair;
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  pair.b.transport->fail(AsyncEventType::QpFatal);
  EXPECT_TRUE(pair.b.transport->finished());
  EXPECT_FALSE(pair.b.transport->emit(pair.now));
  EXPECT_FALSE(pair.b.transport->handle_records(pair.now));
  EXPECT_TRUE(pair.b.transport->deadline().is_never());
}

// ---- No memory

class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        base_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    fault_guard::install();
  }
  ~Pages() { ::munmap(base_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(base_); }
  void take_away() { ASSERT_EQ(::mprotect(base_, bytes_, PROT_NONE), 0); }

 private:
  std::size_t bytes_;
  void* base_;
};

TEST(LocalMemory, f30_registered_memory_that_is_gone_ends_the_request_that_meets_it) {
#ifdef VERBENA_THREAD_SANITIZER
  GTEST_SKIP() << "the sanitizer's own atomics hold a lock where they fault";
#endif
  for (const bool here : {true, false})
    for (const Op op : {Op::Send, Op::RdmaWrite, Op::RdmaRead, Op::FetchAndAdd}) {
      Pair pair;
      Pages pages(4096);
      Side& owner = here ? pair.a : pair.b;
      const auto region = *owner.memory.register_region({}, pages.data(), 4096, 0x900000, Access::All);
      pages.take_away();
      const ScatterGather gone{0x900000, 8, region.lkey};
      const ScatterGather local = here ? gone : pair.a.sge(0, 8);
      const ScatterGather remote = here ? pair.b.sge(0, 8) : gone;
      const ReceiveRequest receive{1, {&remote, 1}};
      ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
      SendRequest request;
      request.opcode = op;
      request.local = {&local, 1};
      request.remote_address = here ? pair.b.va(0) : 0x900000;
      request.rkey = here ? pair.b.region.rkey : region.rkey;
      pair.a.post(request);
      pair.run();
      EXPECT_EQ(statuses(pair.a.sent()),
                Statuses{here ? Status::LocalProtectionError : Status::RemoteOperationError});
      EXPECT_EQ(owner.counters.memory_faults, 1u);
    }
}

TEST(LocalMemory, a_ring_whose_pages_are_taken_away_breaks_the_connection_and_no_more) {
#ifdef VERBENA_THREAD_SANITIZER
  constexpr int kWays = 4;  // its atomic stores hold a lock where they fault
#else
  constexpr int kWays = 5;
#endif
  for (int when = 0; when < kWays; ++when) {
    Given given;
    Side a(given, 1);
    a.to(QueuePairState::Rts);
    Pages pages(2 * ring_bytes(4096));
    Instant now{1};
    const RingMemory out(pages.data(), 4096), in(pages.data() + ring_bytes(4096), 4096);
    a.transport->attach(now, {RingProducer(out), RingConsumer(in)});
    if (when != 4) a.send(1, 0, 8);
    if (when == 2) a.transport->emit(now);
    pages.take_away();
    if (when == 2) now = a.transport->deadline();
    a.transport->handle_timeout(now);
    EXPECT_FALSE(when == 0 && a.transport->handle_records(now));
    EXPECT_FALSE(when == 1 && a.transport->emit(now));
    a.puts_shorts = when == 4;
    if (when == 4) a.send(1, 0, 8);
    EXPECT_FALSE(when == 3 && (a.transport->take_short(now) || a.transport->handle_records(now)));
    EXPECT_EQ(a.happened(), Events{AsyncEventType::QpFatal}) << when;
    EXPECT_TRUE(a.transport->finished());
    EXPECT_FALSE(a.transport->ready(now) || a.transport->emit(now) || a.transport->handle_records(now));
  }
}

TEST(LocalReceive, q026_an_acknowledgement_that_a_request_carries_gives_retries_back) {
  Given given;
  given.rnr_retry = 1;
  Pair pair(given);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    pair.a.send(id, 0, 8);
    pair.a.transport->emit(pair.now);
    pair.b.transport->handle_records(pair.now);
    pair.b.transport->emit(pair.now);
    pair.a.transport->handle_records(pair.now);  // refused, the one time it may be
    pair.b.receive(id, 0, 8);
    pair.a.receive(id, 0, 8);
    pair.now = pair.now + Duration::milliseconds(1);
    pair.a.transport->handle_timeout(pair.now);
    pair.a.transport->emit(pair.now);
    pair.b.transport->handle_records(pair.now);
    pair.b.send(id, 0, 8);
    pair.b.transport->emit(pair.now);
    pair.a.transport->handle_records(pair.now);
    ASSERT_EQ(statuses(pair.a.sent()), Statuses{Status::Success}) << id;
    pair.a.transport->emit(pair.now);
    pair.run();
  }
  EXPECT_EQ(pair.a.counters.rcvd_rnr_err, 3u);
}

}  // namespace
}  // namespace verbena::local
