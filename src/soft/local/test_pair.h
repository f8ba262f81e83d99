// SPDX-License-Identifier: Apache-2.0
// Two queue pairs with two rings between them in one process, moved by hand in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "soft/local/transport.h"

namespace verbena::local::testing {

using Bytes = std::vector<std::byte>;
using Statuses = std::vector<CompletionStatus>;
using Ids = std::vector<std::uint64_t>;
using Events = std::vector<AsyncEventType>;
using Op = SendOpcode;
using Status = CompletionStatus;

inline Bytes pattern(std::size_t n, unsigned seed = 1) {
  Bytes bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed * 31 + i / 256);
  return bytes;
}

class RingStorage {
 public:
  explicit RingStorage(std::uint32_t capacity)
      : lines_(new Line[ring_bytes(capacity) / kLineBytes]), capacity_(capacity) {}
  RingMemory memory() const { return {reinterpret_cast<std::byte*>(lines_.get()), capacity_}; }
  std::byte* base() const { return reinterpret_cast<std::byte*>(lines_.get()); }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes] = {};
  };
  std::unique_ptr<Line[]> lines_;
  std::uint32_t capacity_;
};

struct Given {
  std::uint32_t capacity = 4096;
  std::size_t memory_bytes = 64 * 1024;
  Access memory_access = Access::All;
  Access qp_access = Access::RemoteWrite | Access::RemoteRead | Access::RemoteAtomic;
  std::uint8_t max_rd_atomic = 4, max_dest_rd_atomic = 4;
  std::uint8_t min_rnr_timer = 1, rnr_retry = 3;
  std::uint8_t timeout = 10, retry_count = 2;
  std::uint32_t requests = 64, cq_entries = 1024;
  std::uint64_t seed = 1;
  bool pulls = false;   // what the other end names in its memory
  bool direct = false;  // each end reaches regions of the other's by itself
  int file = -1;        // that the memory is said to be in
  std::uint32_t max_inline = 0;
  Config config;
};

// One end: a queue pair with all it stands on, and a registered region.
class Side {
 public:
  Side(const Given& given, std::uint32_t qpn, core::SharedReceiveQueue* shared = nullptr)
      : given_(given), random_(given.seed * 1000 + qpn), memory(random_, 1024), qpn_(qpn) {
    core::QueuePairInit init;
    init.send_cq = &send_cq;
    init.receive_cq = &receive_cq;
    init.srq = shared;
    init.capabilities.max_send_requests = init.capabilities.max_receive_requests = given.requests;
    init.capabilities.max_send_segments = 8;
    if (given.max_inline != 0) init.capabilities.max_inline_bytes = given.max_inline;
    qp = std::make_unique<core::QueuePair>(Qpn{qpn}, init, events);
    transport = std::make_unique<Transport>(*qp, given_.config, memory, counters, random_);
    words_.resize(given.memory_bytes / 8);
    region = *memory.register_region({}, words_.data(), given.memory_bytes, 0x10000, given.memory_access,
                                     given.file);
  }

  bool go(QueuePairState to) {
    using M = AttributeMask;
    using S = QueuePairState;
    QueuePairAttributes v;
    v.state = to;
    v.access = given_.qp_access;
    v.address.destination = Gid::from_ipv4(192, 0, 2, 1);
    v.destination = Qpn{3 - qpn_};
    v.max_rd_atomic = given_.max_rd_atomic;
    v.max_dest_rd_atomic = given_.max_dest_rd_atomic;
    v.min_rnr_timer = given_.min_rnr_timer;
    v.timeout = given_.timeout;
    v.retry_count = given_.retry_count;
    v.rnr_retry = given_.rnr_retry;
    v.sq_drained_event = to == S::Sqd;
    M mask = M::State;
    const S before = qp->state();
    if (to == S::Init) mask = mask | M::PkeyIndex | M::Port | M::Access;
    if (to == S::Rtr)
      mask = mask | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic | M::MinRnrTimer;
    if (to == S::Rts && before == S::Rtr)
      mask = mask | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout;
    if (to == S::Sqd) mask = mask | M::SqDrainedEvent;
    const bool done = qp->modify(v, mask, {4096, 16, 16}).has_value();
    if (done) transport->handle_state(before);
    return done;
  }
  void to(QueuePairState last) {
    for (const QueuePairState state : {QueuePairState::Init, QueuePairState::Rtr, QueuePairState::Rts}) {
      ASSERT_TRUE(go(state));
      if (state == last) return;
    }
  }

  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  std::uint64_t va(std::uint64_t offset) const { return region.iova + offset; }
  ScatterGather sge(std::uint64_t offset, std::size_t length) const {
    return {va(offset), static_cast<std::uint32_t>(length), region.lkey};
  }
  void put(std::size_t at, const Bytes& bytes) { std::copy(bytes.begin(), bytes.end(), data() + at); }
  bool holds(std::size_t at, const Bytes& bytes) { return std::equal(bytes.begin(), bytes.end(), data() + at); }
  std::uint64_t& word(std::size_t at) { return words_[at / 8]; }

  void post(const SendRequest& request) {
    if (puts_shorts && transport->put_short(request)) return transport->follow_short(*clock);
    EXPECT_EQ(qp->post_send({&request, 1}).status, PostStatus::Ok);
    transport->handle_doorbell();
  }
  void receive(std::uint64_t id, std::uint64_t offset, std::size_t length) {
    const ScatterGather local = sge(offset, length);
    const ReceiveRequest request{id, {&local, 1}};
    EXPECT_EQ(qp->post_receive({&request, 1}).status, PostStatus::Ok);
  }
  void send(std::uint64_t id, std::uint64_t offset, std::size_t length,
                  SendFlags flags = SendFlags::Signaled) {
    const ScatterGather local = sge(offset, length);
    SendRequest request;
    request.id = id;
    request.flags = flags;
    request.local = {&local, 1};
    post(request);
  }
  // WRITE, READ or an atomic: `offset` here, `remote` at the peer.
  void fetch_or_write(SendOpcode opcode, std::uint64_t id, std::uint64_t offset, std::size_t length,
                            const Side& peer, std::uint64_t remote, SendFlags flags = SendFlags::Signaled) {
    const ScatterGather local = sge(offset, length);
    SendRequest request;
    request.id = id;
    request.opcode = opcode;
    request.flags = flags;
    request.local = {&local, 1};
    request.remote_address = peer.va(remote);
    request.rkey = peer.region.rkey;
    request.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    request.compare = 5;
    request.swap_or_add = 9;
    post(request);
  }

  std::vector<Completion> sent() { return poll(send_cq); }
  std::vector<Completion> received() { return poll(receive_cq); }
  std::vector<AsyncEventType> happened() {
    std::vector<AsyncEventType> all;
    while (const auto event = events.poll())
      if (event->kind == core::Event::Kind::Async) all.push_back(event->type);
    return all;
  }

 private:
  static std::vector<Completion> poll(core::CompletionQueue& cq) {
    std::vector<Completion> all;
    std::array<Completion, 64> some;
    while (const std::size_t n = cq.poll(some)) all.insert(all.end(), some.begin(), some.begin() + n);
    return all;
  }

  Given given_;
  SeededRandom random_;

 public:
  core::EventQueue events;
  core::CompletionQueue send_cq{core::CqId{1}, given_.cq_entries}, receive_cq{core::CqId{2}, given_.cq_entries};
  core::Counters counters;
  core::MemoryTable memory;
  core::MemoryRegion region;
  std::unique_ptr<core::QueuePair> qp;
  std::unique_ptr<Transport> transport;
  bool puts_shorts = false;  // what can leave with its post does
  const Instant* clock = nullptr;

 private:
  std::uint32_t qpn_;
  std::vector<std::uint64_t> words_;
};

// The region of one side, as the other side's kernel shows it.
class FakeMemory final : public PeerMemory {
 public:
  FakeMemory(Side& peer, const Given& given) : peer_(peer), bytes_(given.memory_bytes) {}

  Pulled pull(std::span<const Piece> from, std::span<const core::Piece> to) override {
    if (before) before();
    Bytes all;
    for (const Piece& piece : from) {
      const std::uint64_t at = piece.address - reinterpret_cast<std::uintptr_t>(peer_.data());
      if (at > bytes_ || piece.bytes > bytes_ - at) return gone ? Pulled::PeerGone : Pulled::Fault;
      all.insert(all.end(), peer_.data() + at, peer_.data() + at + piece.bytes);
    }
    std::size_t used = 0;
    for (const core::Piece& piece : to) {
      if (piece.data == unmapped && piece.size != 0) return Pulled::Fault;
      std::memcpy(const_cast<std::byte*>(piece.data), all.data() + used, piece.size);
      used += piece.size;
    }
    EXPECT_EQ(used, all.size()) << "no more and no less than was named";
    bytes += used;
    ++calls;
    return gone || refused ? Pulled::PeerGone : Pulled::Whole;
  }
  bool is_granted() const override { return granted; }
  void refuse() override { mirror->refused = true; }

  bool granted = true;  // the other pulls, too
  bool gone = false;
  std::atomic<bool> refused = false;  // by the side whose memory it is
  FakeMemory* mirror = nullptr;       // what that side sees
  std::function<void()> before;       // each copy
  const std::byte* unmapped = nullptr;
  std::uint64_t bytes = 0, calls = 0;

 private:
  Side& peer_;
  std::uint64_t bytes_;
};

// What the driver does to reach regions of `owner`'s: they are in this process already.
class FakeRegions final : public RegionSource {
 public:
  void ask(RKey rkey) override { asked.push_back(rkey); }
  void drop(RKey rkey) override { dropped.push_back(rkey); }
  void take_back_all() override { ++taken_back; }
  // The owner's answer to the oldest wish arrives. False: it is a refusal, or nobody uses it.
  bool answer(Side& asker, Side& owner) {
    core::MemoryRegion* const region = owner.memory.remote_region(asked.front());
    const auto grant = region == nullptr ? std::nullopt : owner.transport->grant(*region, mapped);
    PeerRegion open;
    open.rkey = asked.front();
    if (grant)
      open = {open.rkey,     grant->iova, grant->length,
              grant->access, grant->slot, mapped ? region->base : nullptr,
              grant->address};
    return asker.transport->handle_region(open, grant.has_value());
  }

  std::vector<RKey> asked, dropped;
  int taken_back = 0;
  bool mapped = true;
};

// Both ends connected.
class Pair {
 public:
  explicit Pair(const Given& given = {}) : Pair(given, given) {}
  Pair(const Given& given_a, const Given& given_b)
      : to_b_(given_a.capacity),
        to_a_(given_a.capacity),
        pulls_(given_a.pulls),
        direct_(given_a.direct),
        a(given_a, 1),
        b(given_b, 2),
        of_a(a, given_a),
        of_b(b, given_b) {
    a.clock = b.clock = &now;
    of_a.mirror = &of_b;
    of_b.mirror = &of_a;
    a.to(QueuePairState::Rts);
    b.to(QueuePairState::Rts);
    attach();
  }

  void attach() {
    a.transport->attach(now, channel(to_b_, to_a_, of_b, regions_of_b, grants_[0], grants_[1]));
    b.transport->attach(now, channel(to_a_, to_b_, of_a, regions_of_a, grants_[1], grants_[0]));
  }
  // One turn of a driver; true when something moved. Of each side's, the short ways are tried first in every other.
  bool turn(Side& side) {
    const bool took = turns_ / 2 % 2 == 0 && side.transport->take_short(now);
    const bool moved = took || side.transport->handle_records(now);
    const bool ready = side.transport->ready(now);
    const bool at_once = turns_++ % 2 == 0 && side.transport->emit_short();
    if (at_once) side.transport->follow_short(now);
    EXPECT_FALSE(at_once && side.transport->ready(now)) << "there was more";
    const bool wrote = side.transport->emit(now) || at_once;
    EXPECT_TRUE(!wrote || ready) << "wrote what it did not announce";
    side.transport->check_invariants();
    return moved || wrote;
  }
  // Until nothing moves; time stands still.
  void run() {
    for (int quiet = 0, turns = 0; quiet < 4; ++turns) {
      ASSERT_LT(turns, 1'000'000);
      quiet = turn(a) || turn(b) ? 0 : quiet + 1;
    }
  }
  // On to the next thing that is due; false when there is none.
  bool wait() {
    const Instant next = std::min(a.transport->deadline(), b.transport->deadline());
    if (next.is_never()) return false;
    now = std::max(now, next);
    a.transport->handle_timeout(now);
    b.transport->handle_timeout(now);
    run();
    return true;
  }
  // The process of `side` is gone.
  void end(Side& side) {
    side.transport->detach();
    Side& other = &side == &a ? b : a;
    other.transport->handle_hang_up(now);
  }

 private:
  RingStorage to_b_, to_a_;
  const bool pulls_, direct_;
  unsigned turns_ = 0;
  // Of one side: its table of grants, its claim.
  struct alignas(kLineBytes) Grants {
    std::byte table[kGrantTableBytes] = {};
    std::byte claim[kLineBytes] = {};
  };
  std::array<Grants, 2> grants_;

  Channel channel(RingStorage& out, RingStorage& in, PeerMemory& memory, RegionSource& regions, Grants& ours,
                  Grants& theirs) {
    Channel made{RingProducer(out.memory()), RingConsumer(in.memory())};
    if (pulls_) made.peer_memory = &memory;
    if (!direct_) return made;
    made.granter.emplace(GrantMemory(ours.table, theirs.claim));
    made.claimer.emplace(GrantMemory(theirs.table, ours.claim));
    made.regions = &regions;
    return made;
  }

 public:
  // As `a` claims what `b` grants.
  Claimer claimer_of_a() { return Claimer(GrantMemory(grants_[1].table, grants_[0].claim)); }
  Instant now{1'000'000};
  Side a, b;
  FakeMemory of_a, of_b;  // as the other end sees them
  FakeRegions regions_of_a, regions_of_b;
  RingStorage& ring_to_a() { return to_a_; }
  RingStorage& ring_to_b() { return to_b_; }
};

inline std::vector<std::uint64_t> ids(const std::vector<Completion>& completions) {
  std::vector<std::uint64_t> all;
  for (const Completion& completion : completions) all.push_back(completion.id);
  return all;
}
inline std::vector<CompletionStatus> statuses(const std::vector<Completion>& completions) {
  std::vector<CompletionStatus> all;
  for (const Completion& completion : completions) all.push_back(completion.status);
  return all;
}

}  // namespace verbena::local::testing
