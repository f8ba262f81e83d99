// SPDX-License-Identifier: Apache-2.0
// Two devices and a wire on which bytes decide what becomes of each datagram: delivered, dropped, repeated,
// held back or damaged. Whatever they decide, every request ends exactly once and in order, what succeeded
// has happened exactly once, and when the wire is good again everything comes to an end.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/nic.h"

namespace verbena::soft {
namespace {

using Bytes = std::vector<std::byte>;
using S = QueuePairState;
using M = AttributeMask;

constexpr std::uint32_t kMtu = 256;
constexpr std::uint32_t kSlotBytes = 1024;
constexpr std::uint32_t kMostRequests = 24;
constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};
constexpr int kMostSteps = 200000;

class Script {
 public:
  explicit Script(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t u8() {
    if (bytes_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

std::byte content(std::uint64_t owner, std::uint64_t at) {
  return static_cast<std::byte>((owner * 37 + at * 11 + at / 256 + 1) & 0xff);
}

// Memory of one side, a slot per request in each part.
enum Part : std::uint32_t { kSource, kWritten, kFetched, kReceived, kCounter, kParts };

struct Memory {
  Memory() : bytes(kPartBytes * kParts + 2 * kGuardBytes + 8, kGuard) {
    base = bytes.data() + kGuardBytes;
    base += (8 - reinterpret_cast<std::uintptr_t>(base) % 8) % 8;
    std::fill(base, base + kPartBytes * kParts, std::byte{0});
  }
  static constexpr std::size_t kPartBytes = std::size_t{kSlotBytes} * kMostRequests;
  std::byte* at(Part part, std::uint64_t slot) const { return base + part * kPartBytes + slot * kSlotBytes; }
  std::uint64_t va(Part part, std::uint64_t slot) const {
    return reinterpret_cast<std::uint64_t>(at(part, slot));
  }
  void check() const {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    const std::byte* const first = base;
    VERBENA_ASSERT(std::all_of(bytes.data(), first, is_guard));
    VERBENA_ASSERT(std::all_of(first + kPartBytes * kParts, bytes.data() + bytes.size(), is_guard));
  }
  Bytes bytes;
  std::byte* base;
  core::MemoryRegion keys;
};

struct Request {
  SendOpcode opcode = SendOpcode::Send;
  std::uint32_t length = 0;
  bool takes_receive() const {
    return opcode == SendOpcode::Send || opcode == SendOpcode::SendWithImmediate ||
           opcode == SendOpcode::RdmaWriteWithImmediate;
  }
};

struct Side {
  Side(Gid address, std::uint64_t seed) : random(seed), nic(config(address), random) {
    pd = nic.create_pd().value();
    memory.keys =
        nic.register_memory(pd, memory.base, Memory::kPartBytes * kParts, memory.va(kSource, 0), Access::All)
            .value();
    cq = nic.create_cq(256).value();
    Nic::QpInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.capabilities = {32, 32, 2, 2, 0};
    made = nic.create_qp(init).value();
  }
  static NicConfig config(Gid address) {
    NicConfig config;
    config.address = address;
    config.transport.initial_window_packets = 6;
    config.transport.read_chunk_bytes = 2 * kMtu;
    return config;
  }

  SeededRandom random;
  Nic nic;
  core::PdId pd;
  Memory memory;
  core::CqId cq;
  Nic::CreatedQp made;
  std::vector<Request> requests;  // posted, by id
  std::vector<Completion> sends;  // polled
  std::vector<Completion> receives;
  std::uint64_t posted_receives = 0;
};

struct Flying {
  std::size_t from = 0;
  wire::Path path;
  std::uint16_t identification = 0;
  Bytes bytes;
};

class World {
 public:
  explicit World(Script& script);
  void run();

 private:
  Side& side(std::size_t i) { return *sides_[i]; }
  void connect(Side& a, const Side& b, Psn ours, Psn theirs);
  void post(std::size_t from);
  void post_receive(Side& s);
  void send(Flying flying);
  bool move();
  void poll();
  void judge(std::size_t from);
  void judge_effect(Side& a, Side& b, std::uint64_t id, std::uint64_t receive, std::uint64_t atomic);

  Script& script_;
  Instant now_{1'000'000'000};
  std::array<std::unique_ptr<Side>, 2> sides_;
  std::deque<Flying> wire_, held_;
  roce::Train train_{roce::TrainLimits{3, 65000, 2048}};
};

World::World(Script& script) : script_(script) {
  sides_[0] = std::make_unique<Side>(Gid::from_ipv4(192, 0, 2, 1), 1);
  sides_[1] = std::make_unique<Side>(Gid::from_ipv4(192, 0, 2, 2), 2);
  const Psn first{0xffffffu - script_.u8()};
  const Psn second{0xffffffu - script_.u8()};
  connect(side(0), side(1), first, second);
  connect(side(1), side(0), second, first);
}

void World::connect(Side& a, const Side& b, Psn ours, Psn theirs) {
  QueuePairAttributes values;
  values.access = Access::All;
  values.address.destination = b.nic.config().address;
  values.path_mtu = kMtu;
  values.destination = b.made.qpn;
  values.rq_psn = theirs;
  values.sq_psn = ours;
  values.max_rd_atomic = 2;
  values.max_dest_rd_atomic = 2;
  values.min_rnr_timer = 1;
  values.timeout = 12;
  values.retry_count = 7;
  values.rnr_retry = 7;
  const auto go = [&](S to, M mask) {
    values.state = to;
    VERBENA_ASSERT(a.nic.modify_qp(now_, a.made.qpn, values, M::State | mask).has_value());
  };
  go(S::Init, M::PkeyIndex | M::Port | M::Access);
  go(S::Rtr, M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic | M::MinRnrTimer);
  go(S::Rts, M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout);
  for (std::uint64_t slot = 0; slot < kMostRequests; ++slot)
    for (std::uint64_t i = 0; i < kSlotBytes; ++i)
      a.memory.at(kSource, slot)[i] = content(slot + (ours.value() & 1) * 100, i);
}

void World::post(std::size_t from) {
  Side& a = side(from);
  Side& b = side(1 - from);
  if (a.requests.size() == kMostRequests || a.made.queues->state() != S::Rts) return;
  const std::uint64_t id = a.requests.size();
  const std::uint8_t choice = script_.u8();
  Request made;
  made.opcode = static_cast<SendOpcode>(choice % 7);
  const bool atomic = made.opcode >= SendOpcode::CompareAndSwap;
  made.length = atomic ? 8 : static_cast<std::uint32_t>(script_.u8()) * (kSlotBytes / 256);
  const bool fetches = made.opcode >= SendOpcode::RdmaRead;
  const ScatterGather sge{a.memory.va(fetches ? kFetched : kSource, id), made.length, a.memory.keys.lkey};
  SendRequest request;
  request.id = id;
  request.opcode = made.opcode;
  request.flags = (choice & 0x80) != 0 ? SendFlags::Signaled | SendFlags::Fence : SendFlags::Signaled;
  request.local = {&sge, 1};
  request.rkey = b.memory.keys.rkey;
  request.remote_address = b.memory.va(made.opcode == SendOpcode::RdmaRead ? kSource : kWritten, id);
  if (atomic) {  // both kinds add one to the counter, one after the other
    std::uint64_t before = 0;
    for (const Request& r : a.requests) before += r.opcode >= SendOpcode::CompareAndSwap ? 1u : 0u;
    request.remote_address = b.memory.va(kCounter, 0);
    request.compare = before;
    request.swap_or_add = made.opcode == SendOpcode::CompareAndSwap ? before + 1 : 1;
  }
  request.immediate = {static_cast<std::byte>(id), std::byte{1}, std::byte{2}, std::byte{3}};
  if (!a.made.queues->post_send({&request, 1})) return;
  a.requests.push_back(made);
  a.nic.ring_doorbell(*a.made.queues);
}

void World::post_receive(Side& s) {
  if (s.posted_receives == kMostRequests) return;
  const std::uint64_t slot = s.posted_receives;
  const std::array<ScatterGather, 2> sges{
      ScatterGather{s.memory.va(kReceived, slot), 100, s.memory.keys.lkey},
      ScatterGather{s.memory.va(kReceived, slot) + 100, kSlotBytes - 100, s.memory.keys.lkey}};
  const ReceiveRequest request{slot, sges};
  VERBENA_ASSERT(static_cast<bool>(s.made.queues->post_receive({&request, 1})));
  ++s.posted_receives;
  s.nic.ring_doorbell(*s.made.queues);
}

// The bytes decide; when there are none left the wire is good.
void World::send(Flying flying) {
  const std::uint8_t fate = script_.u8();
  switch (fate % 16) {
    case 1:
    case 2:
      return;
    case 3:
      wire_.push_back(flying);
      break;
    case 4:
      held_.push_back(std::move(flying));
      return;
    case 5: {
      const std::size_t bit = (fate / 16u * 256u + script_.u8()) % (flying.bytes.size() * 8);
      flying.bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      break;
    }
    case 6:
      wire_.push_front(std::move(flying));
      return;
    default:
      break;
  }
  wire_.push_back(std::move(flying));
}

bool World::move() {
  bool moved = false;
  for (const auto acks : {Nic::Acks::Owed, Nic::Acks::Flush})
    for (std::size_t i = 0; i < 2; ++i) {
      Side& s = side(i);
      s.nic.handle_doorbells(now_);
      while ((acks == Nic::Acks::Owed || !moved) && s.nic.poll_transmit(now_, acks, train_)) {
        for (std::uint32_t n = 0; n < train_.datagrams(); ++n) {
          Flying flying{i, train_.path(), static_cast<std::uint16_t>(n), {}};
          train_.flatten(n, flying.bytes);
          send(std::move(flying));
        }
        moved = true;
        if (script_.u8() % 4 == 1) break;  // the socket takes no more for now
      }
    }
  if (!moved && wire_.empty()) wire_.swap(held_);
  while (!wire_.empty()) {
    const Flying flying = std::move(wire_.front());
    wire_.pop_front();
    Nic& to = side(1 - flying.from).nic;
    to.handle_datagram(now_, flying.path, flying.identification, flying.bytes);
    to.check_invariants();
    moved = true;
    if (script_.u8() % 4 == 1) break;  // the receiver answers before it takes the rest
  }
  poll();
  return moved;
}

void World::poll() {
  for (const auto& s : sides_) {
    Completion completion;
    while (s->nic.cq(s->cq)->poll({&completion, 1}) != 0)
      (completion.opcode >= CompletionOpcode::Receive ? s->receives : s->sends).push_back(completion);
    while (s->nic.poll_event()) {
    }
  }
}

void World::run() {
  for (int step = 0;; ++step) {
    VERBENA_ASSERT(step < kMostSteps);  // it comes to an end
    if (!script_.empty()) {
      const std::uint8_t what = script_.u8();
      if (what % 4 == 1) post(what / 4 % 2);
      if (what % 4 == 2) post_receive(side(what / 4 % 2));
    } else {
      for (const auto& s : sides_) post_receive(*s);
    }
    const bool moved = move();
    if (moved || !script_.empty()) {
      if (script_.u8() % 8 == 1) now_ = now_ + Duration::microseconds(script_.u8());
      continue;
    }
    const Instant next = std::min(side(0).nic.next_deadline(), side(1).nic.next_deadline());
    if (next.is_never()) break;
    now_ = std::max(now_, next);
    for (const auto& s : sides_) s->nic.handle_timeout(now_);
  }
  for (const auto& s : sides_) s->memory.check();
  judge(0);
  judge(1);
}

// What a request that succeeded must have done. `receive` and `atomic`: how many of its kind came before it.
void World::judge_effect(Side& a, Side& b, std::uint64_t id, std::uint64_t receive, std::uint64_t atomic) {
  const Request& r = a.requests[id];
  const auto same = [&](const std::byte* x, const std::byte* y) { return std::equal(x, x + r.length, y); };
  switch (r.opcode) {
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaWriteWithImmediate:
      VERBENA_ASSERT(same(a.memory.at(kSource, id), b.memory.at(kWritten, id)));
      break;
    case SendOpcode::RdmaRead:
      VERBENA_ASSERT(same(b.memory.at(kSource, id), a.memory.at(kFetched, id)));
      break;
    case SendOpcode::CompareAndSwap:
    case SendOpcode::FetchAndAdd: {
      std::uint64_t original = 0;
      std::copy_n(a.memory.at(kFetched, id), 8, reinterpret_cast<std::byte*>(&original));
      VERBENA_ASSERT(original == atomic);
      break;
    }
    case SendOpcode::Send:
    case SendOpcode::SendWithImmediate:
      VERBENA_ASSERT(same(a.memory.at(kSource, id), b.memory.at(kReceived, receive)));
      break;
  }
  if (!r.takes_receive()) return;
  VERBENA_ASSERT(receive < b.receives.size());
  const Completion& got = b.receives[receive];
  VERBENA_ASSERT(got.status == CompletionStatus::Success && got.byte_count == r.length);
  VERBENA_ASSERT(got.with_immediate == (r.opcode != SendOpcode::Send));
  VERBENA_ASSERT(!got.with_immediate || got.immediate[0] == static_cast<std::byte>(id));
}

void World::judge(std::size_t from) {
  Side& a = side(from);
  Side& b = side(1 - from);
  VERBENA_ASSERT(a.sends.size() == a.requests.size());
  std::uint64_t receive = 0, atomic = 0, done_atomics = 0;
  bool failed = false;
  for (std::uint64_t id = 0; id < a.sends.size(); ++id) {
    const Completion& c = a.sends[id];
    VERBENA_ASSERT(c.id == id);
    if (c.status == CompletionStatus::Success) {
      VERBENA_ASSERT(!failed);
      judge_effect(a, b, id, receive, atomic);
      done_atomics = atomic + (a.requests[id].opcode >= SendOpcode::CompareAndSwap ? 1 : 0);
    } else {
      // Nothing on the wire may make a device fail in any other way than by giving up.
      VERBENA_ASSERT(c.status == (failed ? CompletionStatus::Flushed : CompletionStatus::RetryExceeded));
      failed = true;
    }
    receive += a.requests[id].takes_receive() ? 1u : 0u;
    atomic += a.requests[id].opcode >= SendOpcode::CompareAndSwap ? 1u : 0u;
  }
  std::uint64_t counter = 0;
  std::copy_n(b.memory.at(kCounter, 0), 8, reinterpret_cast<std::byte*>(&counter));
  VERBENA_ASSERT(counter >= done_atomics && counter <= atomic);
  std::uint64_t received = 0;
  for (std::uint64_t i = 0; i < b.receives.size(); ++i) {
    VERBENA_ASSERT(b.receives[i].id == i);
    received += b.receives[i].status == CompletionStatus::Success ? 1u : 0u;
  }
  VERBENA_ASSERT(received <= receive);
}

}  // namespace
}  // namespace verbena::soft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verbena::soft::Script script({reinterpret_cast<const std::byte*>(data), size});
  verbena::soft::World world(script);
  world.run();
  return 0;
}
