// SPDX-License-Identifier: Apache-2.0
// A peer that writes whatever bytes say into the rings of one connection, records that look honest and words that do
// not. Whatever it writes: no byte outside the region it may reach changes, each request has at most one outcome, in
// order, and in the end exactly one.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

constexpr std::uint32_t kCapacity = 512;
constexpr std::size_t kRegionBytes = 1024;
constexpr std::byte kGuard{0xa5};

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

struct Ring {
  RingMemory memory() { return {bytes, kCapacity}; }
  std::uint64_t& word(std::uint64_t at) { return reinterpret_cast<std::uint64_t*>(bytes)[at % (sizeof bytes / 8)]; }
  alignas(kLineBytes) std::byte bytes[ring_bytes(kCapacity)] = {};
};

class World {
 public:
  World() {
    core::QueuePairInit init;
    init.send_cq = &send_cq_;
    init.receive_cq = &receive_cq_;
    qp_ = std::make_unique<core::QueuePair>(Qpn{1}, init, events_);
    transport_ = std::make_unique<Transport>(*qp_, config_, memory_, counters_, random_);
    memory_bytes_.fill(kGuard);
    region_ = *memory_.register_region({}, base(), kRegionBytes, 0x1000, Access::All);
    to_rts();
    transport_->attach(now_, {RingProducer(out_.memory()), RingConsumer(in_.memory())});
  }

  void run(Script& script) {
    while (!script.empty()) step(script);
    transport_->handle_hang_up(now_);
    transport_->detach();
    if (qp_->state() != QueuePairState::Error) change(QueuePairState::Error, AttributeMask::State);
    count();
    VERBENA_ASSERT(ended_ == posted_);
    for (std::size_t i = 0; i < memory_bytes_.size(); ++i)
      VERBENA_ASSERT((i >= kRegionBytes && i < 2 * kRegionBytes) || memory_bytes_[i] == kGuard);
  }

 private:
  std::byte* base() { return memory_bytes_.data() + kRegionBytes; }

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

  void step(Script& script) {
    const std::uint8_t what = script.u8();
    switch (what % 8) {
      case 0:
        post(script);
        break;
      case 1:
        receive();
        break;
      case 2:
      case 3:
        say(script);
        break;
      case 4:
        ask(script);
        break;
      case 5:
        (what & 8 ? in_ : out_).word(script.u8()) = what & 16 ? script.u64() : script.u8();
        break;
      case 6:
        // The peer reads everything.
        while (read_.peek() != nullptr) read_.pop();
        read_.release();
        break;
      default:
        now_ = now_ + Duration::microseconds(what);
        if (transport_->deadline() <= now_) transport_->handle_timeout(now_);
    }
    turn((what & 32) != 0);
  }

  void turn(bool shorts) {
    if (!shorts || !transport_->take_short(now_)) transport_->handle_records(now_);
    if (shorts && transport_->emit_short()) transport_->follow_short(now_);
    if (transport_->ready(now_)) transport_->emit(now_);
    transport_->check_invariants();
    count();
  }

  void post(Script& script) {
    if (posted_ - ended_ == 16) return;
    const ScatterGather local{region_.iova, script.u8(), region_.lkey};
    SendRequest request;
    request.id = posted_;
    request.opcode = static_cast<SendOpcode>(script.u8() % 7);
    const ScatterGather word{region_.iova, 8, region_.lkey};
    request.local = {request.opcode >= SendOpcode::CompareAndSwap ? &word : &local, 1};
    if (posted_ % 2 != 0 && transport_->put_short(request)) {
      ++posted_;
      return transport_->follow_short(now_);
    }
    if (qp_->post_send({&request, 1})) ++posted_;
    transport_->handle_doorbell();
  }
  void receive() {
    const ScatterGather local{region_.iova + 512, 64, region_.lkey};
    const ReceiveRequest request{0, {&local, 1}};
    static_cast<void>(qp_->post_receive({&request, 1}));
  }

  // Records as an honest peer lays them out, with fields from the script.
  std::byte* reserve(RecordKind kind, std::uint32_t bytes) {
    const auto at = peer_out_.try_reserve(static_cast<std::uint16_t>(kind), bytes);
    return at ? in_.memory().data() + *at : nullptr;
  }
  void say(Script& script) {
    Response response;
    response.kind = static_cast<RecordKind>(16 + script.u8() % 5);
    response.number = script.u8();
    if (response.kind == RecordKind::Refuse || response.kind == RecordKind::NotReady) response.code = script.u8() % 4;
    const std::uint32_t more = response.kind == RecordKind::ReadData ? script.u8() % 64 : 0;
    if (std::byte* to = reserve(response.kind, head_bytes(response) + more)) emit(response, to);
    peer_out_.publish();
  }
  void ask(Script& script) {
    Request request;
    const std::uint8_t kind = script.u8() % 8;
    request.number = script.u8();
    const std::uint32_t payload = script.u8() % 32;
    if (kind == 7) {
      if (std::byte* to = reserve(RecordKind::Continuation, kContinuationHeadBytes + payload))
        emit(Continuation{request.number, payload, kContinuationHeadBytes}, to);
      return peer_out_.publish();
    }
    request.opcode = static_cast<SendOpcode>(kind);
    request.length = request.opcode >= SendOpcode::CompareAndSwap ? 8 : script.u8();
    request.remote_address = region_.iova + script.u8() * 8u - 16;
    request.rkey = script.u8() < 240 ? region_.rkey : RKey{script.u8()};
    const std::uint32_t bytes = head_bytes(request) + (request.opcode < SendOpcode::RdmaRead ? payload : 0);
    if (std::byte* to = reserve(kind_of(request), std::min(bytes, max_payload_bytes(kCapacity)))) emit(request, to);
    peer_out_.publish();
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

  SeededRandom random_{1};
  core::EventQueue events_;
  core::CompletionQueue send_cq_{core::CqId{1}, 256}, receive_cq_{core::CqId{2}, 256};
  core::MemoryTable memory_{random_, 4};
  core::Counters counters_;
  Config config_;
  Ring out_, in_;
  RingProducer peer_out_{in_.memory()};
  RingConsumer read_{out_.memory()};  // where the peer has read to
  alignas(8) std::array<std::byte, 3 * kRegionBytes> memory_bytes_;
  core::MemoryRegion region_;
  std::unique_ptr<core::QueuePair> qp_;
  std::unique_ptr<Transport> transport_;
  Instant now_{1};
  std::uint64_t posted_ = 0, ended_ = 0;
};

}  // namespace
}  // namespace verbena::local

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verbena::local::Script script({data, size});
  std::make_unique<verbena::local::World>()->run(script);
  return 0;
}
