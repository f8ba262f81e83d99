// SPDX-License-Identifier: Apache-2.0
// No sequence of datagrams, posts, polls, commands and clock readings breaks a promise inside the device,
// touches a byte beside what was granted, or makes a request end twice. The first byte picks the state of the
// queue pair, the rest is a script: datagrams with their ICRC made right most of the time and sequence
// numbers near the expected ones.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/nic.h"
#include "soft/nic_qp.h"
#include "soft/wire/icrc.h"

namespace verbena::soft {
namespace {

using Bytes = std::vector<std::byte>;
using S = QueuePairState;
using wire::Opcode;

constexpr std::uint32_t kMtu = 256;
constexpr std::size_t kRegionBytes = 2048;
constexpr std::size_t kGuardBytes = 512;
constexpr std::byte kGuard{0xa5};
constexpr Qpn kPeerQpn{0xabc};
constexpr std::uint32_t kCqEntries = 64;

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
  std::uint32_t u32() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | u8();
    return value;
  }
  std::span<const std::byte> take(std::size_t n) {
    const auto taken = bytes_.first(std::min(n, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Registered memory between guard bytes.
struct Region {
  Region() : bytes(kRegionBytes + 2 * kGuardBytes + 8, kGuard) {
    base = bytes.data() + kGuardBytes;
    base += (8 - reinterpret_cast<std::uintptr_t>(base) % 8) % 8;
    std::fill(base, base + kRegionBytes, std::byte{0});
  }
  void check() const {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    VERBENA_ASSERT(std::all_of(bytes.data(), static_cast<const std::byte*>(base), is_guard));
    VERBENA_ASSERT(std::all_of(static_cast<const std::byte*>(base) + kRegionBytes,
                               bytes.data() + bytes.size(), is_guard));
  }
  Bytes bytes;
  std::byte* base;
  core::MemoryRegion keys;
};

NicConfig make_config() {
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, 1);
  config.path_mtu = 4096;
  config.transport.read_chunk_bytes = 2 * kMtu;
  config.transport.initial_window_packets = 8;
  return config;
}

wire::Path path_in() {
  wire::Path path;
  path.source = Gid::from_ipv4(192, 0, 2, 2);
  path.destination = Gid::from_ipv4(192, 0, 2, 1);
  path.source_port = 0xd000;
  return path;
}

AttributeMask mask_of(S to) {
  using M = AttributeMask;
  if (to == S::Init) return M::State | M::PkeyIndex | M::Port | M::Access;
  if (to == S::Rtr)
    return M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic |
           M::MinRnrTimer;
  if (to == S::Rts) return M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout;
  return M::State;
}

class World {
 public:
  World() : nic_(make_config(), random_), pd_(nic_.create_pd().value()) {
    for (Region& region : regions_) register_region(region);
    send_cq_ = nic_.create_cq(kCqEntries).value();
    receive_cq_ = nic_.create_cq(kCqEntries).value();
    Nic::QpInit init;
    init.pd = pd_;
    init.send_cq = send_cq_;
    init.receive_cq = receive_cq_;
    init.capabilities = {16, 16, 3, 3, 32};
    made_ = nic_.create_qp(init).value();
  }
  void start(std::uint8_t choice);
  void step(Script& script);
  void finish();

 private:
  const roce::Transport& transport() const { return static_cast<const Nic::Qp*>(made_.queues)->transport; }
  S state() const { return made_.queues->state(); }
  void register_region(Region& region) {
    region.keys =
        nic_.register_memory(pd_, region.base, kRegionBytes, reinterpret_cast<std::uint64_t>(region.base),
                             &region == &regions_[1] ? Access::RemoteRead : Access::All)
            .value();
  }
  void modify(S to, std::uint8_t flavour);
  void go_to(S to);
  void deliver(const wire::Packet& packet) { deliver(packet, path_in()); }
  void deliver(const wire::Packet& packet, const wire::Path& path);
  wire::Packet packet(Opcode opcode, Psn psn, std::span<const std::byte> payload = {}) const;
  void datagram(Script& script);
  void raw_datagram(Script& script);
  void fill_headers(Script& script, wire::Packet& packet);
  Psn near_psn(Script& script, bool request) const;
  void post_send(Script& script);
  void post_send(SendOpcode opcode, std::uint32_t length, SendFlags flags);
  void note_sent(const SendRequest& request) {
    open_[request.id] = has_flag(request.flags, SendFlags::Signaled) ? Kind::Send : Kind::SilentSend;
  }
  void post_receive(Script& script);
  void reregister(Script& script);
  void doorbell() {
    nic_.ring_doorbell(*made_.queues);
    nic_.handle_doorbells(now_);
  }
  void transmit(Nic::Acks acks, unsigned trains);
  void advance(std::uint8_t exponent);
  void poll();
  void check();

  SeededRandom random_{1};
  Nic nic_;
  core::PdId pd_;
  std::array<Region, 2> regions_;
  core::CqId send_cq_, receive_cq_;
  Nic::CreatedQp made_;
  Instant now_{1'000'000'000};
  roce::Train train_{roce::TrainLimits{}};
  wire::IcrcVerifier icrc_;
  std::uint64_t next_id_ = 1;
  enum class Kind { Receive, Send, SilentSend };  // the last may succeed without a completion
  std::map<std::uint64_t, Kind> open_;            // requests without outcome
  Bytes payload_ = Bytes(8192);
};

void World::modify(S to, std::uint8_t flavour) {
  QueuePairAttributes values;
  values.state = to;
  values.access = (flavour & 1) != 0 ? static_cast<Access>(flavour >> 4) : Access::All;
  values.address.destination = path_in().source;
  values.path_mtu = kMtu;
  values.destination = kPeerQpn;
  values.rq_psn = Psn{0xfffff0};
  values.sq_psn = Psn{0xfffff8};
  values.max_rd_atomic = 3;
  values.max_dest_rd_atomic = static_cast<std::uint8_t>((flavour & 2) != 0 ? 0 : 2);
  values.min_rnr_timer = 1;
  values.timeout = static_cast<std::uint8_t>((flavour & 4) != 0 ? 0 : 10);
  values.retry_count = 2;
  values.rnr_retry = static_cast<std::uint8_t>((flavour & 8) != 0 ? 7 : 2);
  values.sq_drained_event = true;
  AttributeMask mask = mask_of(to);
  if (to == S::Sqd) mask = mask | AttributeMask::SqDrainedEvent;
  const bool modified = nic_.modify_qp(now_, made_.qpn, values, mask).has_value();
  if (modified && to == S::Reset) open_.clear();  // they end without a word
}

void World::go_to(S to) {
  for (const S step : {S::Init, S::Rtr, S::Rts, S::Sqd, S::Error}) {
    modify(step, 0);
    if (step == to) return;
  }
}

wire::Packet World::packet(Opcode opcode, Psn psn, std::span<const std::byte> payload) const {
  wire::Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.psn = psn;
  packet.bth.destination = made_.qpn;
  packet.bth.ack_request = true;
  packet.bth.pad_count = wire::pad_count_for(payload.size());
  packet.payload = payload;
  packet.reth = {regions_[0].keys.iova, regions_[0].keys.rkey, static_cast<std::uint32_t>(payload.size())};
  return packet;
}

void World::deliver(const wire::Packet& packet, const wire::Path& path) {
  Bytes bytes(wire::datagram_bytes(packet));
  wire::emit(packet, path, 0, bytes);
  nic_.handle_datagram(now_, path, 0, bytes);
}

void World::start(std::uint8_t choice) {
  constexpr S kPlain[] = {S::Reset, S::Init, S::Rtr, S::Rts, S::Sqd, S::Error};
  if (choice < 6) {
    if (choice != 0) go_to(kPlain[choice]);
    return;
  }
  go_to(S::Rts);
  const std::span<const std::byte> full = std::span(payload_).first(kMtu);
  const Psn theirs{0xfffff0}, ours{0xfffff8};
  Script nothing({});
  if (choice != 12) post_receive(nothing);
  switch (choice) {
    case 6:
      deliver(packet(Opcode::RcSendFirst, theirs, full));
      break;
    case 7: {
      wire::Packet first = packet(Opcode::RcWriteFirst, theirs, full);
      first.reth.length = 3 * kMtu;
      deliver(first);
      break;
    }
    case 8:  // in the middle of a READ of ours
      post_send(SendOpcode::RdmaRead, 5 * kMtu, SendFlags::Signaled);
      transmit(Nic::Acks::Owed, 8);
      deliver(packet(Opcode::RcReadResponseFirst, ours, full));
      break;
    case 9:
      post_send(SendOpcode::FetchAndAdd, 8, SendFlags::Signaled);
      transmit(Nic::Acks::Owed, 8);
      break;
    case 10:  // waiting for a receive of the peer
      post_send(SendOpcode::Send, 3 * kMtu, SendFlags::Signaled);
      post_send(SendOpcode::RdmaWrite, 8, SendFlags::None);
      transmit(Nic::Acks::Owed, 8);
      {
        wire::Packet rnr = packet(Opcode::RcAcknowledge, ours);
        rnr.aeth.syndrome = 0x21;
        deliver(rnr);
      }
      break;
    case 11: {  // a READ of the peer, not yet answered
      wire::Packet read = packet(Opcode::RcReadRequest, theirs);
      read.reth.length = 4 * kMtu;
      deliver(read);
      break;
    }
    default:
      deliver(packet(Opcode::RcSendOnly, theirs));
      break;  // refused for lack of a receive
  }
}

Psn World::near_psn(Script& script, bool request) const {
  const std::uint8_t choice = script.u8();
  const auto offset = static_cast<std::uint32_t>(static_cast<std::int32_t>(choice % 16) - 8);
  const Psn expected = transport().responder().expected();
  const roce::SendState& send = transport().send_state();
  switch (choice / 16) {
    case 0:
      return Psn{script.u32()};
    case 1:
      return (request ? expected : send.unacked) + offset;
    case 2:
      return request ? expected : send.highest + offset;
    case 3:
      return send.next + offset;
    case 4:
      return send.highest - 1;
    default:
      return request ? expected : send.unacked;
  }
}

void World::fill_headers(Script& script, wire::Packet& packet) {
  const std::uint8_t choice = script.u8();
  const Region& region = regions_[choice & 1];
  const std::uint64_t offset = std::uint64_t{script.u8()} * ((choice & 2) != 0 ? 8 : 1);
  const std::uint64_t va = (choice & 0xc) == 0xc ? std::uint64_t{script.u32()} << 32 | script.u32()
                           : (choice & 4) != 0   ? region.keys.iova + kRegionBytes - offset
                                                 : region.keys.iova + offset;
  const RKey rkey = (choice & 0x70) == 0x70 ? RKey{script.u32()} : region.keys.rkey;
  std::uint32_t length = static_cast<std::uint32_t>(packet.payload.size());
  if (choice >= 0x80) length = (choice & 1) != 0 ? script.u32() : length + script.u8() * (kMtu / 4);
  packet.reth = {va, rkey, length};
  packet.atomic = {va, rkey, script.u8(), script.u8()};
  packet.aeth = {script.u8(), 1};
  if (choice < 0xc0) packet.aeth.syndrome = wire::kSyndromeAck;
  packet.atomic_original = choice;
}

void World::datagram(Script& script) {
  constexpr std::uint8_t kLast = 0x1d;
  const std::uint8_t choice = script.u8();
  const auto opcode = static_cast<Opcode>(choice > 0xf0 ? script.u8() : choice % (kLast + 1));
  const wire::OpcodeInfo& info = wire::opcode_info(opcode);
  if (!info.known) return;
  const std::uint8_t shape = script.u8();
  std::size_t size = (shape & 0x80) != 0 ? script.u8() : 0;
  if ((shape & 0x40) == 0)
    size = info.payload == wire::PayloadRule::Full    ? kMtu
           : info.payload == wire::PayloadRule::None  ? 0
           : info.payload == wire::PayloadRule::Eight ? 8
                                                      : std::max<std::size_t>(size, 1);
  wire::Packet p = packet(opcode, near_psn(script, info.request), std::span(payload_).first(size));
  p.bth.solicited = (shape & 1) != 0;
  p.bth.ack_request = (shape & 2) == 0;
  if ((shape & 0x3c) == 0x3c) p.bth.pad_count = static_cast<std::uint8_t>(script.u8() & 3);
  fill_headers(script, p);
  wire::Path path = path_in();
  if ((shape & 0x3c) == 0x38) path.source = Gid::from_ipv4(192, 0, 2, 3);
  if ((shape & 0x3c) != 0x34) return deliver(p, path);
  Bytes bytes(wire::datagram_bytes(p));  // damaged on its way
  wire::emit(p, path, 0, bytes);
  bytes[script.u8() % bytes.size()] ^= static_cast<std::byte>(script.u8() | 1u);
  nic_.handle_datagram(now_, path, (shape & 1) != 0 ? std::optional<std::uint16_t>{} : std::uint16_t{0},
                       bytes);
}

void World::raw_datagram(Script& script) {
  const auto taken = script.take(script.u8());
  Bytes bytes(taken.begin(), taken.end());
  if (bytes.size() >= wire::kBthBytes + wire::kIcrcBytes) {
    const std::size_t covered = bytes.size() - wire::kIcrcBytes;
    bytes[5] = static_cast<std::byte>(made_.qpn.value() >> 16);
    bytes[6] = static_cast<std::byte>(made_.qpn.value() >> 8 & 0xff);
    bytes[7] = static_cast<std::byte>(made_.qpn.value() & 0xff);
    wire::store_icrc(bytes.data() + covered, wire::icrc_of(path_in(), 0, std::span(bytes).first(covered)));
  }
  nic_.handle_datagram(now_, path_in(), 0, bytes);
}

void World::post_send(SendOpcode opcode, std::uint32_t length, SendFlags flags) {
  const Region& region = regions_[0];
  const ScatterGather sge{region.keys.iova, length, region.keys.lkey};
  SendRequest request;
  request.id = next_id_++;
  request.opcode = opcode;
  request.flags = flags;
  request.local = {&sge, 1};
  request.remote_address = 0x1000;
  request.rkey = RKey{1};
  if (made_.queues->post_send({&request, 1})) note_sent(request);
  doorbell();
}

void World::post_send(Script& script) {
  const std::uint8_t choice = script.u8();
  std::array<ScatterGather, 4> sges;
  const std::size_t count = choice % 5;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t where = script.u8();
    const Region& region = regions_[where & 1];
    sges[i] = {region.keys.iova + where, static_cast<std::uint32_t>(script.u8()) * 4,
               (where & 0xfe) == 0xfe ? LKey{where} : region.keys.lkey};
  }
  SendRequest request;
  request.id = next_id_++;
  request.opcode = static_cast<SendOpcode>(choice >> 5);
  request.flags = static_cast<SendFlags>(script.u8() & 0xf);
  request.local = {sges.data(), count};
  if (request.opcode >= SendOpcode::CompareAndSwap && count != 0) {
    sges[0].length = 8;
    request.local = {sges.data(), 1};
  }
  request.remote_address = script.u8();
  if (made_.queues->post_send({&request, 1})) note_sent(request);
  doorbell();
}

void World::post_receive(Script& script) {
  const std::uint8_t choice = script.u8();
  const Region& region = regions_[0];
  const std::array<ScatterGather, 3> sges{
      ScatterGather{region.keys.iova, static_cast<std::uint32_t>(choice % 3) * 200, region.keys.lkey},
      ScatterGather{region.keys.iova + 512, 512, choice > 0xf0 ? LKey{choice} : region.keys.lkey},
      ScatterGather{region.keys.iova + 1024, 1024, region.keys.lkey}};
  const ReceiveRequest request{next_id_++, {sges.data(), choice % 4u == 3u ? 3u : (choice + 3u) % 4u}};
  if (made_.queues->post_receive({&request, 1})) open_[request.id] = Kind::Receive;
  doorbell();
}

void World::reregister(Script& script) {
  Region& region = regions_[script.u8() & 1];
  VERBENA_ASSERT(nic_.deregister_memory(region.keys.lkey).has_value());
  register_region(region);
}

// What leaves can be read, and its sum is right.
void World::transmit(Nic::Acks acks, unsigned trains) {
  Bytes flat;
  for (unsigned n = 0; n < trains && nic_.poll_transmit(now_, acks, train_); ++n)
    for (std::uint32_t i = 0; i < train_.datagrams(); ++i) {
      train_.flatten(i, flat);
      wire::Packet sent;
      VERBENA_ASSERT(wire::parse(flat, sent) == wire::DropReason::None);
      VERBENA_ASSERT(sent.bth.destination == kPeerQpn);
      VERBENA_ASSERT(wire::payload_obeys(sent, kMtu));
      const auto identification = static_cast<std::uint16_t>(i);
      VERBENA_ASSERT(icrc_.check(train_.path(), identification, flat, nullptr) == wire::IcrcVerdict::Exact);
    }
}

void World::advance(std::uint8_t exponent) {
  now_ = now_ + Duration::microseconds(std::int64_t{1} << exponent % 22);
  nic_.handle_timeout(now_);
}

void World::poll() {
  std::array<Completion, 8> out;
  for (const core::CqId id : {send_cq_, receive_cq_}) {
    const std::size_t n = nic_.cq(id)->poll(out);
    for (std::size_t i = 0; i < n; ++i) {
      const auto found = open_.find(out[i].id);
      VERBENA_ASSERT(found != open_.end());  // exactly one outcome each
      VERBENA_ASSERT((found->second == Kind::Receive) == (id == receive_cq_));
      open_.erase(found);
    }
    nic_.cq(id)->arm(n % 2 == 0);
  }
  while (nic_.poll_event()) {
  }
}

void World::check() {
  nic_.check_invariants();
  for (const Region& region : regions_) region.check();
}

void World::step(Script& script) {
  const std::uint8_t what = script.u8();
  switch (what % 16) {
    case 0:
      raw_datagram(script);
      break;
    case 1:
      post_send(script);
      break;
    case 2:
      post_receive(script);
      break;
    case 3:
      transmit(Nic::Acks::Flush, 64);
      break;
    case 4:
      transmit(Nic::Acks::Owed, 1 + what / 64u);
      break;
    case 5:
      advance(script.u8());
      break;
    case 6:
      poll();
      break;
    case 7:
      if (what >= 0xe0)
        modify(static_cast<S>(script.u8() % 7), script.u8());
      else
        poll();
      break;
    case 8:
      if (what >= 0xc0)
        reregister(script);
      else
        transmit(Nic::Acks::Flush, 64);
      break;
    default:
      datagram(script);
      break;
  }
  check();
}

// Put into ERR, everything still open ends, but for what an overrun completion queue lost.
void World::finish() {
  poll();
  if (state() == S::Reset) return;
  modify(S::Error, 0);
  for (int i = 0; i < 64; ++i) poll();
  check();
  const bool overrun = next_id_ > kCqEntries;
  for (const auto& [id, kind] : open_) VERBENA_ASSERT(kind == Kind::SilentSend || overrun);
}

}  // namespace
}  // namespace verbena::soft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verbena::soft::World world;
  verbena::soft::Script script({reinterpret_cast<const std::byte*>(data), size});
  world.start(script.u8() % 13);
  while (!script.empty()) world.step(script);
  world.finish();
  return 0;
}
