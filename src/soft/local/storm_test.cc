// SPDX-License-Identifier: Apache-2.0
// Random requests in both directions over small rings, in any order of turns, against a simple model of what must come
// of them; and the same with an end that dies, or one that writes noise.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "soft/local/test_pair.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

using namespace testing;

constexpr std::size_t kSlots = 32, kSlotBytes = 2048;
// Memory of a side: where its requests come from and go to, where its receives are, and what the peer works on.
constexpr std::size_t kSources = 0, kTargets = kSlots * kSlotBytes, kReceives = 2 * kTargets, kShared = 3 * kTargets;
constexpr std::size_t kSharedBytes = 8192;

struct Expected {
  Op op = Op::Send;
  std::uint64_t id = 0;
  Bytes bytes;  // that it carries, or that it must bring
};

// One side's requests, the peer's memory as they must leave it, and what must come back.
class Requests {
 public:
  Requests(Side& own, Side& peer, SeededRandom& random) : own_(own), peer_(peer), random_(random) {
    for (std::size_t i = 0; i < kSharedBytes; ++i) model_.push_back(static_cast<std::byte>(i));
    peer_.put(kShared, model_);
  }

  void post_one() {
    if (open_.size() == kSlots) return;
    Expected made;
    made.op = static_cast<Op>(random_.below(7));
    made.id = next_;
    std::size_t length = random_.chance(0.5) ? random_.below(41) : random_.below(kSlotBytes + 1);
    if (made.op >= Op::CompareAndSwap) length = 8;
    std::size_t at = random_.below(kSharedBytes - length + 1);
    if (made.op >= Op::CompareAndSwap) at &= ~std::size_t{7};
    const std::size_t slot = next_ % kSlots * kSlotBytes;
    auto flags = SendFlags::Signaled;
    // What a READ still has to bring is not to be changed behind it (O-3).
    if (made.op != Op::RdmaRead && any_read()) flags = flags | SendFlags::Fence;
    made.bytes = apply(made.op, at, length);
    if (made.op < Op::RdmaRead) own_.put(kSources + slot, made.bytes);
    own_.fetch_or_write(made.op, next_, made.op < Op::RdmaRead ? kSources + slot : kTargets + slot, length, peer_,
                        kShared + at, flags);
    if (made.op == Op::RdmaWriteWithImmediate || made.op == Op::Send || made.op == Op::SendWithImmediate)
      arriving_.push_back(made);
    open_.push_back(std::move(made));
    ++next_;
  }
  void receive_one() {
    if (receives_ - received_ == kSlots) return;
    own_.receive(receives_, kReceives + receives_ % kSlots * kSlotBytes, kSlotBytes);
    ++receives_;
  }
  // Looks at what is done. `peer`: those whose messages arrive here.
  void check(Requests& peer) {
    check_outcomes();
    for (const Completion& done : own_.received()) {
      ASSERT_EQ(done.id, received_++);
      if (done.status != CompletionStatus::Success) continue;
      ASSERT_FALSE(peer.arriving_.empty());
      const Expected& expected = peer.arriving_.front();
      ASSERT_EQ(done.byte_count, expected.bytes.size());
      ASSERT_EQ(done.with_immediate, expected.op != Op::Send);
      ASSERT_TRUE(expected.op == Op::RdmaWriteWithImmediate ||
                  own_.holds(kReceives + done.id % kSlots * kSlotBytes, expected.bytes));
      peer.arriving_.pop_front();
    }
  }
  void check_outcomes() {
    for (const Completion& done : own_.sent()) {
      ASSERT_FALSE(open_.empty());
      const Expected& expected = open_.front();
      ASSERT_EQ(done.id, expected.id) << "one outcome for each, in order";
      check_status(done);
      const std::size_t slot = expected.id % kSlots * kSlotBytes;
      const bool fetched = done.status == CompletionStatus::Success && expected.op >= Op::RdmaRead;
      ASSERT_TRUE(!fetched || own_.holds(kTargets + slot, expected.bytes)) << expected.id;
      open_.pop_front();
    }
  }
  void take_receives() { received_ += own_.received().size(); }
  bool idle() const { return open_.empty(); }
  std::size_t open() const { return open_.size(); }
  std::uint64_t posted() const { return next_; }
  bool memory_is_right() { return peer_.holds(kShared, model_); }
  void expect_failure() { may_fail_ = true; }
  bool failed() const { return failed_; }
  std::uint64_t receives_left() const { return receives_ - received_; }

 private:
  void check_status(const Completion& done) {
    if (!failed_ && done.status == CompletionStatus::Success) return;
    ASSERT_TRUE(may_fail_);
    ASSERT_EQ(done.status, failed_ ? CompletionStatus::Flushed : CompletionStatus::RetryExceeded);
    ASSERT_EQ(done.vendor_error, failed_ ? 0 : core::kVendorPeerEnded);
    failed_ = true;
  }
  bool any_read() const {
    for (const Expected& one : open_)
      if (one.op == Op::RdmaRead) return true;
    return false;
  }
  Bytes apply(Op op, std::size_t at, std::size_t length) {
    const auto from = model_.begin() + static_cast<std::ptrdiff_t>(at);
    Bytes bytes = pattern(length, static_cast<unsigned>(next_));
    if (op == Op::RdmaWrite || op == Op::RdmaWriteWithImmediate) std::copy(bytes.begin(), bytes.end(), from);
    if (op < Op::RdmaRead) return bytes;
    bytes.assign(from, from + static_cast<std::ptrdiff_t>(length));
    std::uint64_t word = 0;
    if (op == Op::RdmaRead) return bytes;
    std::memcpy(&word, &*from, 8);
    word = op == Op::FetchAndAdd ? word + 9 : word == 5 ? 9 : word;
    std::memcpy(&*from, &word, 8);
    return bytes;
  }

  Side& own_;
  Side& peer_;
  SeededRandom& random_;
  Bytes model_;
  std::deque<Expected> open_, arriving_;
  std::uint64_t next_ = 0, receives_ = 0, received_ = 0;
  bool may_fail_ = false, failed_ = false;
};

class Storm {
 public:
  explicit Storm(std::uint64_t seed)
      : random(seed), pair(given(random, seed)), a(pair.a, pair.b, random), b(pair.b, pair.a, random) {
    pair.a.puts_shorts = random.chance(0.5);
    pair.b.puts_shorts = random.chance(0.5);
  }

  static Given given(SeededRandom& random, std::uint64_t seed) {
    constexpr std::uint32_t kCapacities[] = {512, 512, 1024, 8192};
    Given given;
    given.seed = seed;
    given.capacity = kCapacities[random.below(4)];
    given.memory_bytes = kShared + kSharedBytes;
    given.requests = kSlots;
    given.max_rd_atomic = static_cast<std::uint8_t>(1 + random.below(4));
    given.max_dest_rd_atomic = 4;
    given.rnr_retry = 7;
    given.timeout = 14;
    constexpr std::uint32_t kFrom[] = {1, 64, 500, 1500};
    given.pulls = random.chance(0.5);
    given.config.pull_from_bytes = kFrom[random.below(4)];
    given.config.max_turn_records = static_cast<std::uint32_t>(1 + random.below(64));
    return given;
  }

  void step() {
    const bool first = random.chance(0.5);
    Requests& requests = first ? a : b;
    Side& side = first ? pair.a : pair.b;
    switch (random.below(8)) {
      case 0:
      case 1:
        requests.post_one();
        break;
      case 2:
        if (random.chance(generosity)) requests.receive_one();
        break;
      case 3:
      case 4:
        if (random.chance(0.5) && side.transport->take_short(pair.now)) break;
        side.transport->handle_records(pair.now);
        break;
      case 5:
      case 6:
        if (random.chance(0.5) && side.transport->emit_short()) {
          side.transport->follow_short(pair.now);
          break;
        }
        if (side.transport->ready(pair.now)) side.transport->emit(pair.now);
        break;
      default:
        pair.now = pair.now + Duration::microseconds(static_cast<std::int64_t>(random.below(10)));
        if (side.transport->deadline() <= pair.now) side.transport->handle_timeout(pair.now);
    }
    side.transport->check_invariants();
    requests.check(first ? b : a);
  }
  // Until all is done.
  void finish() {
    for (int i = 0; i < 10'000 && !(a.idle() && b.idle()); ++i) {
      a.receive_one();
      b.receive_one();
      pair.run();
      a.check(b);
      b.check(a);
      pair.wait();
      a.check(b);
      b.check(a);
    }
  }

  SeededRandom random;
  const double generosity = random.chance(0.5) ? 1 : 0.2;
  Pair pair;
  Requests a, b;
};

TEST(LocalStorm, o1_r073_r074_r083_q014_every_request_ends_once_in_order_and_memory_is_as_the_model_says) {
  std::uint64_t requests = 0, refused = 0, pulled = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed);
    for (int i = 0; i < 8000 && !::testing::Test::HasFatalFailure(); ++i) storm.step();
    storm.finish();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    ASSERT_TRUE(storm.a.idle() && storm.b.idle());
    ASSERT_TRUE(storm.a.memory_is_right() && storm.b.memory_is_right());
    EXPECT_EQ(storm.pair.a.counters.local_ack_timeout_err + storm.pair.b.counters.local_ack_timeout_err, 0u);
    requests += storm.a.posted() + storm.b.posted();
    pulled += storm.pair.of_a.calls + storm.pair.of_b.calls;
    refused += storm.pair.a.counters.rcvd_rnr_err + storm.pair.b.counters.rcvd_rnr_err;
  }
  EXPECT_GT(requests, 20'000u);
  EXPECT_GT(refused, 100u);
  EXPECT_GT(pulled, 1000u);
}

TEST(LocalStorm, q051_whenever_one_end_dies_the_other_has_one_outcome_for_each_request_and_receive) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed);
    const std::uint64_t steps = storm.random.below(1500);
    for (std::uint64_t i = 0; i < steps; ++i) storm.step();
    storm.a.expect_failure();
    storm.pair.of_b.gone = storm.random.chance(0.7);
    storm.pair.end(storm.pair.b);
    storm.pair.a.transport->detach();
    storm.a.check(storm.b);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    ASSERT_TRUE(storm.a.idle());
    if (!storm.a.failed()) {
      EXPECT_EQ(storm.pair.a.qp->state(), QueuePairState::Rts) << "it had nothing out";
      storm.a.post_one();
      storm.a.check(storm.b);
    }
    EXPECT_TRUE(storm.a.failed());
    EXPECT_EQ(storm.a.receives_left(), 0u) << "flushed";
    EXPECT_TRUE(storm.pair.a.transport->finished());
  }
}

void let_two_threads_agree(bool pulls) {
  Given given;
  given.pulls = pulls;
  given.config.pull_from_bytes = 500;
  given.capacity = 1024;
  given.memory_bytes = kShared + kSharedBytes;
  given.requests = kSlots;
  given.rnr_retry = 7;
  given.timeout = 0;
  Pair pair(given);
  constexpr std::uint64_t kRequests = 1000;
  std::atomic<int> busy{2};
  SeededRandom random_a(1), random_b(2);
  Requests of_a(pair.a, pair.b, random_a), of_b(pair.b, pair.a, random_b);
  pair.b.puts_shorts = true;
  const auto drive = [&busy](Side& side, Requests& requests) {
    bool done = false;
    for (std::int64_t time = 0; busy != 0 && !::testing::Test::HasFatalFailure(); ++time) {
      const Instant now{time * 1000};
      if (requests.posted() < kRequests) requests.post_one();
      requests.receive_one();
      if (time % 2 != 0 || !side.transport->take_short(now)) side.transport->handle_records(now);
      if (side.transport->deadline() <= now) side.transport->handle_timeout(now);
      if (side.transport->emit_short()) side.transport->follow_short(now);
      if (side.transport->ready(now)) side.transport->emit(now);
      requests.check_outcomes();
      requests.take_receives();
      if (!done && requests.posted() == kRequests && requests.idle()) {
        done = true;
        --busy;
      }
      if (requests.open() == kSlots || done) std::this_thread::yield();
    }
  };
  std::thread other([&] { drive(pair.b, of_b); });
  drive(pair.a, of_a);
  other.join();
  EXPECT_TRUE(of_a.memory_is_right() && of_b.memory_is_right());
  EXPECT_EQ(pair.of_a.calls != 0, pulls);
}

TEST(LocalStorm, two_threads_agree) { let_two_threads_agree(false); }
TEST(LocalStorm, two_threads_agree_where_each_pulls_from_the_other) { let_two_threads_agree(true); }

TEST(LocalStorm, F21_noise_in_a_ring_ends_its_own_connection_alone) {
  std::uint64_t broken = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed);
    for (int i = 0; i < 300; ++i) storm.step();
    RingStorage& ring = storm.random.chance(0.5) ? storm.pair.ring_to_a() : storm.pair.ring_to_b();
    const std::uint32_t words = static_cast<std::uint32_t>(ring_bytes(ring.memory().capacity()) / 8);
    for (int i = 0; i < 2000 && storm.pair.a.qp->state() == QueuePairState::Rts; ++i) {
      auto* const at = reinterpret_cast<std::uint64_t*>(ring.base()) + storm.random.below(words);
      *at = storm.random.chance(0.5) ? storm.random.next_u64() : *at ^ (std::uint64_t{1} << storm.random.below(64));
      Side& side = storm.random.chance(0.5) ? storm.pair.a : storm.pair.b;
      if (i % 2 != 0 || !side.transport->take_short(storm.pair.now)) side.transport->handle_records(storm.pair.now);
      if (side.transport->ready(storm.pair.now)) side.transport->emit(storm.pair.now);
      side.transport->check_invariants();
      const ScatterGather local = side.sge(kSources, 8);
      SendRequest request;
      request.local = {&local, 1};
      static_cast<void>(side.qp->post_send({&request, 1}));
      side.transport->handle_doorbell();
    }
    if (storm.pair.a.qp->state() == QueuePairState::Error) ++broken;
  }
  EXPECT_GT(broken, 200u);
}

}  // namespace
}  // namespace verbena::local
