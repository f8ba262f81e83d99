// SPDX-License-Identifier: Apache-2.0
// A peer that writes anything, at any time, into the words by which two processes reach each other's memory: grants,
// claims, what may be pulled. The first byte chooses what stands before it: the two algorithms alone, where each load
// may give what the input says; a queue pair that copies directly, pulls and lends; the kernel's copies by addresses
// and cookies that are not true. No byte changes but those that were granted, nothing is done twice, nothing waits.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "soft/driver/local/process_memory.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t u8() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint64_t u64() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | u8();
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// ---- The algorithms, over words that lie.

struct Words {
  Script& script;
  std::array<std::uint64_t, kMostGrants> grants{};
  std::uint64_t changes = 0, claim = 0, loads = 0;
  std::uint64_t last = 0;  // what a grant was said to be

  // Mostly the truth, or near it.
  std::uint64_t seen(std::uint64_t truth) {
    ++loads;
    const std::uint8_t how = script.u8();
    if (how < 0x80) return truth;
    if (how < 0xa0) return truth ^ kEnding;
    if (how < 0xc0) return truth ^ kHeavy;
    if (how < 0xf0) return how % 48u;
    return script.u64();
  }
};

class LyingMemory {
 public:
  explicit LyingMemory(Words& words) : words_(&words) {}

  std::uint64_t load_changes() const { return words_->seen(words_->changes); }
  void store_changes(std::uint64_t value) { words_->changes = value; }
  bool try_load_grant(std::uint32_t i, std::uint64_t& value) const { return value = see(i), true; }
  void store_grant(std::uint32_t slot, std::uint64_t key) { grant(slot) = key; }
  std::uint64_t load_claim() const { return words_->seen(words_->claim); }
  bool try_store_claim(std::uint64_t value) { return words_->claim = value, true; }
  void fence() {}
  void light_fence() {}
  void heavy_fence() {}
  static bool has_heavy_fences() { return heavy; }

  static inline bool heavy = false;

 private:
  std::uint64_t see(std::uint32_t slot) const { return words_->last = words_->seen(grant(slot)); }
  std::uint64_t& grant(std::uint32_t slot) const {
    VERBENA_ASSERT(slot < kMostGrants);
    return words_->grants[slot];
  }
  Words* words_;
};

class Algorithms {
 public:
  explicit Algorithms(Script& script) : words_{script}, granter_(LyingMemory(words_)), claimer_(LyingMemory(words_)) {}

  void run() {
    while (!words_.script.empty()) {
      const std::uint8_t what = words_.script.u8();
      const RKey key{1 + what / 8u};
      const std::uint64_t before = words_.loads;
      switch (what % 4) {
        case 0:
          grant(key);
          break;
        case 1:
          take_back(key);
          break;
        case 2:
          copy(words_.script.u8() % kMostGrants, key);
          break;
        default:
          claimer_.must_look();
          claimer_.stands(what % kMostGrants, key);
      }
      VERBENA_ASSERT(words_.loads - before <= 4);
      check();
    }
  }

 private:
  void grant(RKey key) {
    const auto known = granter_.slot_of(key);
    const auto slot = granter_.try_grant(key);
    VERBENA_ASSERT(slot.has_value() == (known || granted_.count() != kMostGrants));
    if (!slot) return;
    VERBENA_ASSERT(known ? slot == known : !granted_[*slot]);
    granted_.set(*slot);
  }
  void take_back(RKey key) {
    const auto slot = granter_.slot_of(key);
    if (!slot) return;
    granter_.revoke(*slot);
    VERBENA_ASSERT(words_.grants[*slot] == (kEnding | key.value()));
    for (int looks = 0; looks < 3 && granter_.is_claimed(*slot); ++looks) continue;
    granter_.cut(*slot);
    VERBENA_ASSERT(words_.grants[*slot] == 0);
    granted_.reset(*slot);
  }
  // What it was told is what it does; and it never leaves a claim behind.
  void copy(std::uint32_t slot, RKey key) {
    const bool may = claimer_.claim(slot, key);
    VERBENA_ASSERT(may == ((words_.last & ~kHeavy) == key.value()));
    VERBENA_ASSERT(words_.claim == (may ? 1 + slot : 0));
    if (!may) return;
    const bool counts = claimer_.release(slot, key);
    VERBENA_ASSERT(counts == ((words_.last & ~(kEnding | kHeavy)) == key.value()) && words_.claim == 0);
  }
  // The owner knows what it granted, whatever stands there.
  void check() {
    std::size_t known = 0;
    for (std::uint32_t key = 1; key <= 32; ++key) {
      const auto slot = granter_.slot_of(RKey{key});
      VERBENA_ASSERT(!slot || granted_[*slot]);
      known += slot ? 1 : 0;
    }
    VERBENA_ASSERT(known == granted_.count() && granter_.any_granted().has_value() == granted_.any());
  }

  Words words_;
  BasicGranter<LyingMemory> granter_;
  BasicClaimer<LyingMemory> claimer_;
  std::bitset<kMostGrants> granted_;
};

// ---- A queue pair that copies directly, pulls, and lends.

constexpr std::uint32_t kCapacity = 4096;
constexpr std::size_t kRegionBytes = 1024;
constexpr std::uint64_t kIova = 0x1000;
constexpr std::byte kGuard{0xa5};

struct Ring {
  RingMemory memory() { return {bytes, kCapacity}; }
  std::uint64_t& word(std::uint64_t at) { return reinterpret_cast<std::uint64_t*>(bytes)[at % (sizeof bytes / 8)]; }
  alignas(kLineBytes) std::byte bytes[ring_bytes(kCapacity)] = {};
};

// A region in the middle of bytes that nobody may touch.
struct Guarded {
  Guarded() { bytes.fill(kGuard); }
  std::byte* base() { return bytes.data() + kRegionBytes; }
  // Only the first `most` of it may have changed.
  void check(std::size_t most) const {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      VERBENA_ASSERT((i >= kRegionBytes && i < kRegionBytes + most) || bytes[i] == kGuard);
  }
  alignas(8) std::array<std::byte, 3 * kRegionBytes> bytes;
};

class World final : private PeerMemory, private RegionSource {
 public:
  explicit World(Script& script) : script_(script) {
    fault_guard::install();
    core::QueuePairInit init;
    init.send_cq = &send_cq_;
    init.receive_cq = &receive_cq_;
    config_.pull_from_bytes = 64;
    qp_ = std::make_unique<core::QueuePair>(Qpn{1}, init, events_);
    transport_ = std::make_unique<Transport>(*qp_, config_, memory_, counters_, random_);
    region_ = *memory_.register_region({}, own_.base(), kRegionBytes, kIova, Access::All, 0);
    to_rts();
    Channel channel{RingProducer(out_.memory()), RingConsumer(in_.memory())};
    channel.peer_memory = this;
    channel.granter.emplace(GrantMemory(bytes_of(0), bytes_of(kTheirClaim)));
    channel.claimer.emplace(GrantMemory(bytes_of(kTheirTable), bytes_of(kOurClaim)));
    channel.regions = this;
    transport_->attach(now_, channel);
  }

  void run() {
    for (const std::uint32_t key : {1u, 2u}) open(RKey{key});
    while (!script_.empty()) step();
    transport_->handle_hang_up(now_);
    transport_->detach();
    if (qp_->state() != QueuePairState::Error) change(QueuePairState::Error, AttributeMask::State);
    count();
    VERBENA_ASSERT(ended_ == posted_);
    own_.check(kRegionBytes);
    theirs_.check(changeable_);
  }

 private:
  // In words of 8 bytes.
  static constexpr std::size_t kLine = kLineBytes / 8, kTheirTable = kGrantTableBytes / 8,
                               kOurClaim = 2 * kTheirTable, kTheirClaim = kOurClaim + kLine,
                               kOurPull = kTheirClaim + kLine, kTheirPull = kOurPull + kLine,
                               kWords = kTheirPull + kLine;
  std::byte* bytes_of(std::size_t word) { return reinterpret_cast<std::byte*>(&words_[word]); }

  // ---- What the driver does.
  Pulled pull(std::span<const Piece> from, std::span<const core::Piece> to) override {
    std::uint64_t named = 0;
    for (const Piece& piece : from) named += piece.bytes;
    scribble();
    for (const core::Piece& piece : to) {
      VERBENA_ASSERT(piece.size <= named);
      named -= piece.size;
      std::memset(const_cast<std::byte*>(piece.data), script_.u8(), piece.size);
    }
    VERBENA_ASSERT(named == 0);
    scribble();
    const std::uint8_t how = script_.u8();
    return how < 0xc0 ? Pulled::Whole : how < 0xf0 ? Pulled::Fault : Pulled::PeerGone;
  }
  bool is_granted() const override { return PullWords(const_cast<World*>(this)->bytes_of(kTheirPull)).can_pull(); }
  void refuse() override { PullWords(bytes_of(kOurPull)).refuse(); }
  void ask(RKey rkey) override {
    VERBENA_ASSERT(std::find(asked_.begin(), asked_.end(), rkey) == asked_.end());
    asked_.push_back(rkey);
  }
  void drop(RKey rkey) override { VERBENA_ASSERT(std::erase(open_, rkey) == 1); }
  void take_back_all() override {
    while (const auto rkey = transport_->any_granted()) take_back(*rkey);
  }
  void take_back(RKey rkey) {
    const auto slot = transport_->revoke(rkey);
    if (!slot) return;
    VERBENA_ASSERT(*slot < kMostGrants);
    for (int looks = 0; looks < 3 && transport_->is_claimed(*slot); ++looks) scribble();
    transport_->cut(*slot);
  }
  // What a peer said of a region, after what the driver checks of it: mapped, the file is long enough.
  void answer() {
    if (asked_.empty()) return;
    PeerRegion region{asked_.front()};
    asked_.erase(asked_.begin());
    const std::uint8_t how = script_.u8();
    constexpr std::array kAccess{Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic,
                                 Access::RemoteRead | Access::RemoteWrite | Access::RemoteAtomic};
    region.access = kAccess[how % 4];
    region.slot = script_.u8() % kMostGrants;
    region.iova = how & 4 ? ~std::uint64_t{0} - kRegionBytes + 1 : kIova;
    region.length = 1 + script_.u8() * 4u;
    if (how & 8) {
      region.access = Access::RemoteRead;
      region.address = script_.u64() >> 1;
      region.length = how & 16 ? std::uint64_t{1} << 40 : region.length;
      region.iova = kIova;
    } else {
      region.base = theirs_.base();
      region.address = kIova;
    }
    if (how & 32) words_[kTheirTable + 1 + region.slot] = region.rkey.value() | (how & 64 ? kHeavy : 0);
    const bool opens = how < 0xe0;
    if (!transport_->handle_region(region, opens)) return;
    open_.push_back(region.rkey);
    if (region.base != nullptr && region.access != Access::RemoteRead)
      changeable_ = std::max<std::size_t>(changeable_, region.length);
  }

  // ---- What the peer does.
  // Any word, also those that are not its to write; mostly what could be believed.
  void scribble() {
    const std::uint8_t what = script_.u8();
    if (what >= 0x40) return;
    const std::size_t at = script_.u8() % kWords;
    switch (what % 4) {
      case 0:
        words_[at] = script_.u8();
        break;
      case 1:
        words_[at] = script_.u64();
        break;
      default:
        // It grants one of the keys, or takes it back.
        words_[kTheirTable + 1 + at % kMostGrants] =
            1 + what / 16u + (what & 4 ? kHeavy : 0) + (what & 8 ? kEnding : 0);
        words_[kTheirTable] += what & 8 ? 1 : 0;
    }
  }
  std::byte* reserve(RecordKind kind, std::uint32_t bytes) {
    const auto at = peer_out_.try_reserve(static_cast<std::uint16_t>(kind), bytes);
    return at ? in_.memory().data() + *at : nullptr;
  }
  // Reads everything, and answers as an honest peer does.
  void serve() {
    while (const Record* const record = peer_in_.peek()) {
      Request request;
      if (class_of(record->kind) == RecordClass::Request &&
          parse(record->kind, {out_.memory().data() + record->offset, record->payload_bytes}, request))
        answer(request);
      peer_in_.pop();
    }
    peer_in_.release();
    peer_out_.publish();
  }
  void answer(const Request& request) {
    Response response;
    response.number = request.number;
    if (request.opcode == SendOpcode::RdmaRead) response.kind = RecordKind::ReadData;
    if (request.opcode >= SendOpcode::CompareAndSwap) response.kind = RecordKind::AtomicResult;
    const std::uint32_t data = response.kind == RecordKind::ReadData ? request.length : 0;
    if (std::byte* const to = reserve(response.kind, head_bytes(response) + data)) emit(response, to);
  }
  void lie_in_rings() {
    const std::uint8_t what = script_.u8();
    (what & 1 ? in_ : out_).word(script_.u8()) = what & 2 ? script_.u64() : script_.u8();
  }
  // Payload in the peer's memory, wherever that is.
  void ask_to_pull() {
    Request request;
    request.opcode = script_.u8() % 2 == 0 ? SendOpcode::Send : SendOpcode::RdmaWrite;
    request.number = script_.u8();
    request.placement = Placement::InMemory;
    request.pieces.count = 1 + script_.u8() % 3u;
    for (std::uint32_t i = 0; i < request.pieces.count; ++i)
      request.pieces.pieces[i] = {script_.u8() % 8u, 1 + script_.u8() * 2u, kIova - 64 + script_.u8() * 4u};
    request.length = static_cast<std::uint32_t>(request.pieces.bytes()) + (script_.u8() < 0x40 ? 64 : 0);
    request.remote_address = kIova + script_.u8() * 4u;
    request.rkey = region_.rkey;
    if (std::byte* const to = reserve(kind_of(request), head_bytes(request))) emit(request, to);
    peer_out_.publish();
  }

  // ---- What the program does.
  // A key that is named twice is asked for, and answered.
  void open(RKey rkey) {
    for (int twice = 0; twice < 2; ++twice) {
      const ScatterGather local{kIova, 8, region_.lkey};
      SendRequest made;
      made.id = posted_;
      made.opcode = SendOpcode::RdmaWrite;
      made.local = {&local, 1};
      made.remote_address = kIova;
      made.rkey = rkey;
      if (qp_->post_send({&made, 1})) ++posted_;
      transport_->handle_doorbell();
      turn();
      serve();
      turn();
    }
    answer();
  }
  void step() {
    const std::uint8_t what = script_.u8();
    switch (what % 10) {
      case 0:
      case 1:
        post();
        break;
      case 2:
        answer();
        break;
      case 3:
        scribble();
        break;
      case 4:
        if (const auto grant = transport_->grant(region_, (what & 16) != 0)) VERBENA_ASSERT(grant->slot < kMostGrants);
        break;
      case 5:
        take_back(region_.rkey);
        break;
      case 6:
        do_now();
        break;
      case 7:
        ask_to_pull();
        break;
      case 8:
        what & 16 ? lie_in_rings() : receive();
        break;
      default:
        serve();
        now_ = now_ + Duration::microseconds(what);
        if (transport_->deadline() <= now_) transport_->handle_timeout(now_);
    }
    turn();
  }
  void turn() {
    transport_->handle_records(now_);
    if (transport_->ready(now_)) transport_->emit(now_);
    transport_->check_invariants();
    count();
  }
  SendRequest request(const ScatterGather& local) {
    SendRequest made;
    made.id = posted_;
    made.local = {&local, 1};
    made.rkey = RKey{1 + script_.u8() % 4u};
    made.remote_address = kIova + script_.u8() * 4u;
    if (script_.u8() < 0x20) made.remote_address = ~std::uint64_t{0} - kRegionBytes + 1 + script_.u8();
    return made;
  }
  void post() {
    if (posted_ - ended_ == 16) return;
    const auto opcode = static_cast<SendOpcode>(script_.u8() % 7);
    const std::uint32_t bytes = opcode >= SendOpcode::CompareAndSwap ? 8 : script_.u8() * 2u;
    const ScatterGather local{kIova, bytes, region_.lkey};
    SendRequest made = request(local);
    made.opcode = opcode;
    if (qp_->post_send({&made, 1})) ++posted_;
    transport_->handle_doorbell();
  }
  void do_now() {
    const ScatterGather local{reinterpret_cast<std::uintptr_t>(own_.base()), script_.u8() * 2u, LKey{}};
    const SendRequest made = request(local);
    script_.u8() % 2 == 0 ? transport_->do_now(ShortWrite{{own_.base(), local.length}, made.remote_address, made.rkey})
                          : transport_->do_now(ShortRead{{own_.base(), local.length}, made.remote_address, made.rkey});
  }
  void receive() {
    const ScatterGather local{kIova + 512, 256, region_.lkey};
    const ReceiveRequest made{0, {&local, 1}};
    static_cast<void>(qp_->post_receive({&made, 1}));
  }
  void count() {
    std::array<Completion, 64> done;
    const std::size_t n = send_cq_.poll(done);
    for (std::size_t i = 0; i < n; ++i) VERBENA_ASSERT(done[i].id == ended_++);
    VERBENA_ASSERT(ended_ <= posted_);
    receive_cq_.poll(done);
    while (events_.poll()) {
    }
  }

  void change(QueuePairState to, AttributeMask mask) {
    QueuePairAttributes v;
    v.state = to;
    v.access = Access::RemoteWrite | Access::RemoteRead | Access::RemoteAtomic;
    v.address.destination = Gid::from_ipv4(192, 0, 2, 1);
    v.max_rd_atomic = v.max_dest_rd_atomic = 3;
    v.timeout = 8;
    v.retry_count = v.rnr_retry = 2;
    const QueuePairState before = qp_->state();
    VERBENA_ASSERT(qp_->modify(v, mask, {4096, 16, 16}));
    transport_->handle_state(before);
  }
  void to_rts() {
    using M = AttributeMask;
    change(QueuePairState::Init, M::State | M::PkeyIndex | M::Port | M::Access);
    change(QueuePairState::Rtr, M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn |
                                    M::MaxDestRdAtomic | M::MinRnrTimer);
    change(QueuePairState::Rts, M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout);
  }

  Script& script_;
  SeededRandom random_{1};
  core::EventQueue events_;
  core::CompletionQueue send_cq_{core::CqId{1}, 256}, receive_cq_{core::CqId{2}, 256};
  core::MemoryTable memory_{random_, 4};
  core::Counters counters_;
  Config config_;
  Ring out_, in_;
  RingProducer peer_out_{in_.memory()};
  RingConsumer peer_in_{out_.memory()};
  alignas(kLineBytes) std::array<std::uint64_t, kWords> words_{};
  Guarded own_, theirs_;
  std::size_t changeable_ = 0;  // of the peer's bytes
  std::vector<RKey> asked_, open_;
  core::MemoryRegion region_;
  std::unique_ptr<core::QueuePair> qp_;
  std::unique_ptr<Transport> transport_;
  Instant now_{1};
  std::uint64_t posted_ = 0, ended_ = 0;
};

}  // namespace
}  // namespace verbena::local

namespace verbena::soft::local {
namespace {

using verbena::local::CookieAt;
using verbena::local::Guarded;
using verbena::local::kRegionBytes;
using verbena::local::Piece;
using verbena::local::Pulled;
using verbena::local::PullWords;
using verbena::local::Script;

// ---- The kernel's copies. The peer is this process: each address is one of somebody's.
class Kernel {
 public:
  explicit Kernel(Script& script) : script_(script) {
    fault_guard::install();
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + 1);
  }

  void run() {
    write_words();
    ProcessMemory memory(socket(), PullWords(bytes_of(ours_)), PullWords(bytes_of(theirs_)));
    const bool works = memory.works();
    VERBENA_ASSERT(ours_[2] == (works ? 1 : 0));
    constexpr int kMostCopies = 16;  // each is a system call
    for (int copies = 0; !script_.empty() && copies < kMostCopies; ++copies) {
      if (script_.u8() < 0x60) write_words();
      memory.is_granted();
      memory.explain();
      // As the transport does: who cannot, and never said so, is named nothing.
      if (works) copy(memory);
    }
    memory.refuse();
    VERBENA_ASSERT(PullWords(bytes_of(ours_)).refuses());
    target_.check(kRegionBytes);
  }

 private:
  using Line = std::array<std::uint64_t, 8>;
  static std::byte* bytes_of(Line& line) { return reinterpret_cast<std::byte*>(line.data()); }
  static const PeerSocket& socket() {
    static std::array<int, 2> ends{-1, -1};
    static const PeerSocket made = [] {
      VERBENA_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
      auto adopted = PeerSocket::adopt(Descriptor(ends[0]));
      VERBENA_ASSERT(adopted);
      return std::move(*adopted);
    }();
    return made;
  }

  // The cookie is mostly true, so that copies come to pass.
  void write_words() {
    const std::uint8_t how = script_.u8();
    if (how & 1) cookie_ = script_.u64();
    theirs_[0] = how & 6 ? reinterpret_cast<std::uintptr_t>(&cookie_) : script_.u64();
    theirs_[1] = how & 24 ? cookie_ : script_.u64();
    theirs_[2] = how & 32 ? 1 : script_.u64();
    theirs_[3] = (how & 192) == 192 ? script_.u64() : 0;
  }
  Piece piece(std::uint32_t bytes) {
    const bool honest = script_.u8() < 0xd0;
    return {0, bytes, honest ? reinterpret_cast<std::uintptr_t>(source_.data()) : script_.u64()};
  }
  void copy(ProcessMemory& memory) {
    const std::uint32_t first = 1 + script_.u8(), second = 1 + script_.u8(), split = script_.u8() % (first + second);
    const std::array<Piece, 2> from{piece(first), piece(second)};
    const std::array<core::Piece, 2> to{core::Piece{target_.base(), split},
                                        core::Piece{target_.base() + split, first + second - split}};
    std::fill_n(target_.base(), kRegionBytes, std::byte{});
    const Pulled pulled = memory.pull(from, to);
    VERBENA_ASSERT(pulled != Pulled::Whole || theirs_[3] == 0);
    for (std::size_t i = first + second; i < kRegionBytes; ++i) VERBENA_ASSERT(target_.base()[i] == std::byte{});
    const auto honest = reinterpret_cast<std::uintptr_t>(source_.data());
    if (pulled != Pulled::Whole || from[0].address != honest || from[1].address != honest) return;
    VERBENA_ASSERT(std::memcmp(target_.base(), source_.data(), first) == 0);
    VERBENA_ASSERT(std::memcmp(target_.base() + first, source_.data(), second) == 0);
  }

  Script& script_;
  alignas(64) Line ours_{}, theirs_{};
  std::uint64_t cookie_ = 1;
  std::array<std::byte, 256> source_;
  Guarded target_;
};

}  // namespace
}  // namespace verbena::soft::local

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verbena::local::Script script({data, size});
  const std::uint8_t which = script.u8();
  verbena::local::LyingMemory::heavy = which & 8;
  if (which % 8 == 0)
    verbena::soft::local::Kernel(script).run();
  else if (which % 8 == 1)
    verbena::local::Algorithms(script).run();
  else
    std::make_unique<verbena::local::World>(script)->run();
  return 0;
}
