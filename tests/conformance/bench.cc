// SPDX-License-Identifier: Apache-2.0
#include "bench.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "soft/wire/icrc.h"

namespace verbena::conformance {

namespace {

using M = AttributeMask;
using S = QueuePairState;

constexpr std::byte kGuardByte{0xa5};
constexpr int kTooMany = 200000;

soft::NicConfig config_of(const Given& given) {
  soft::NicConfig config;
  config.address = given.device;
  config.path_mtu = 4096;
  config.source_ports = {0xc000, 0xc001, 0xc002};
  config.max_rd_atomic = 16;
  config.transport = given.transport;
  return config;
}

}  // namespace

Bytes pattern(std::size_t n, unsigned seed) {
  Bytes bytes(n);
  for (std::size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + seed * 29 + 1) & 0xff);
  return bytes;
}

std::span<const std::byte> cut(const Bytes& bytes, std::size_t from, std::size_t size) {
  return std::span<const std::byte>(bytes).subspan(from, size);
}

// ---- Memory

Memory::Memory(soft::Nic& nic, core::PdId pd, std::size_t size, Access access,
               std::optional<std::uint64_t> iova, int file)
    : storage_((size + 2 * kGuard) / 8 + 2), size_(size) {
  auto* const first = reinterpret_cast<std::byte*>(storage_.data());
  std::memset(first, static_cast<int>(kGuardByte), storage_.size() * 8);
  base_ = first + kGuard;
  fill(std::byte{0});
  region_ =
      nic.register_memory(pd, base_, size, iova.value_or(reinterpret_cast<std::uint64_t>(base_)), access, file)
          .value();
}

void Memory::fill(std::byte value) { std::fill(base_, base_ + size_, value); }

void Memory::put(std::size_t at, std::span<const std::byte> from) {
  VERBENA_ASSERT(at + from.size() <= size_);
  std::copy(from.begin(), from.end(), base_ + at);
}

std::uint64_t Memory::word(std::size_t at) const {
  std::uint64_t value;
  std::memcpy(&value, base_ + at, 8);
  return value;
}

void Memory::put_word(std::size_t at, std::uint64_t value) { std::memcpy(base_ + at, &value, 8); }

bool Memory::holds(std::size_t at, std::span<const std::byte> expected) const {
  return std::equal(expected.begin(), expected.end(), base_ + at);
}

bool Memory::all(std::byte value) const {
  return std::all_of(base_, base_ + size_, [value](std::byte b) { return b == value; });
}

bool Memory::guards_hold() const {
  const auto* first = reinterpret_cast<const std::byte*>(storage_.data());
  const auto* end = first + storage_.size() * 8;
  const auto is_guard = [](std::byte b) { return b == kGuardByte; };
  return std::all_of(first, static_cast<const std::byte*>(base_), is_guard) &&
         std::all_of(static_cast<const std::byte*>(base_) + size_, end, is_guard);
}

// ---- Device

Device::Device(const Given& given)
    : random(given.seed),
      nic(config_of(given), random),
      pd(nic.create_pd().value()),
      train_(roce::TrainLimits{}) {}

Device::~Device() {
  nic.check_invariants();
  for (const auto& memory : memories_)
    EXPECT_TRUE(memory->guards_hold()) << "bytes beside a region were written";
}

Memory& Device::memory(std::size_t size, Access access, std::optional<std::uint64_t> iova) {
  return *memories_.emplace_back(std::make_unique<Memory>(nic, pd, size, access, iova));
}

Memory& Device::memory_of(core::PdId domain, std::size_t size, Access access) {
  return *memories_.emplace_back(std::make_unique<Memory>(nic, domain, size, access, std::nullopt));
}

void Device::deliver(const wire::Path& path, std::span<const std::byte> datagram,
                     std::optional<std::uint16_t> identification) {
  // Exactly as long as the datagram, so that a sanitizer sees every read beyond it.
  const Bytes exact(datagram.begin(), datagram.end());
  nic.handle_datagram(now, path, identification, exact);
  nic.check_invariants();
  pump(soft::Nic::Acks::Owed);
}

void Device::advance(Duration time) {
  const Instant end = now + time;
  for (int step = 0; nic.next_deadline() <= end; ++step) {
    if (step > kTooMany) {
      ADD_FAILURE() << "the device's deadline does not move on";
      return;
    }
    now = std::max(now, nic.next_deadline());
    nic.handle_timeout(now);
    pump(soft::Nic::Acks::Owed);
  }
  now = end;
  nic.handle_timeout(now);
  pump(soft::Nic::Acks::Owed);
  nic.check_invariants();
}

bool Device::advance_to_deadline() {
  const Instant deadline = nic.next_deadline();
  if (deadline.is_never()) return false;
  now = std::max(now, deadline);
  nic.handle_timeout(now);
  pump(soft::Nic::Acks::Owed);
  return true;
}

void Device::pump(soft::Nic::Acks acks) {
  for (int turn = 0; nic.poll_transmit(now, acks, train_); ++turn) {
    for (std::uint32_t i = 0; i < train_.datagrams(); ++i) keep(train_, i);
    train_.clear();
    if (turn > kTooMany) {
      ADD_FAILURE() << "the device does not stop sending";
      return;
    }
  }
}

// What holds for every datagram a device sends.
void Device::keep(const roce::Train& train, std::uint32_t index) {
  Sent sent;
  train.flatten(index, sent.bytes);
  sent.path = train.path();
  const auto identification = static_cast<std::uint16_t>(index);
  EXPECT_EQ(icrc_.check(sent.path, identification, sent.bytes, nullptr), wire::IcrcVerdict::Exact);
  EXPECT_EQ(wire::parse(sent.bytes, sent.packet), wire::DropReason::None);
  EXPECT_EQ(sent.path.source, nic.config().address);
  EXPECT_EQ(sent.path.destination_port, wire::kRocePort);
  EXPECT_EQ(sent.path.source_port, nic.config().source_ports.at(train.source_index()));
  const wire::Bth& bth = sent.packet.bth;
  EXPECT_EQ(bth.pkey, 0xffff);
  EXPECT_TRUE(bth.migrated);
  EXPECT_FALSE(bth.fecn || bth.becn);
  EXPECT_EQ(bth.reserved_byte4 | bth.reserved_byte8, 0);
  EXPECT_TRUE(wire::payload_obeys(sent.packet, wire::kMaxPathMtu) ||
              sent.packet.info().payload == wire::PayloadRule::Full);
  for (std::size_t i = 0; i < bth.pad_count; ++i)
    EXPECT_EQ(sent.bytes[sent.bytes.size() - wire::kIcrcBytes - 1 - i], std::byte{0})
        << "pad is zero (Q-005)";
  if (!sent.packet.info().request) {
    EXPECT_FALSE(bth.ack_request || bth.solicited) << "answers ask for nothing";
  }
  out_[bth.destination.value()].push_back(std::move(sent));
}

std::optional<core::Event> Device::event() { return nic.poll_event(); }

std::uint64_t Device::dropped(wire::DropReason reason) const {
  return nic.counters().dropped[static_cast<std::size_t>(reason)];
}

std::uint64_t Device::all_dropped() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t n : nic.counters().dropped) sum += n;
  return sum;
}

// ---- Line: the queue pair

AttributeMask required_mask(S to) {
  switch (to) {
    case S::Init:
      return M::State | M::PkeyIndex | M::Port | M::Access;
    case S::Rtr:
      return M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic |
             M::MinRnrTimer;
    case S::Rts:
      return M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout;
    case S::Reset:
    case S::Sqd:
    case S::Sqe:
    case S::Error:
      break;
  }
  return M::State;
}

Line::Line(Device& device, const Given& given) : device_(device), given_(given) {
  const core::CqId send_cq = device_.nic.create_cq(given_.cq_entries).value();
  make(send_cq, device_.nic.create_cq(given_.cq_entries).value());
}

Line::Line(Device& device, const Given& given, core::CqId send_cq, core::CqId receive_cq)
    : device_(device), given_(given) {
  make(send_cq, receive_cq);
}

void Line::make(core::CqId send_cq, core::CqId receive_cq) {
  send_cq_ = send_cq;
  receive_cq_ = receive_cq;
  soft::Nic::QpInit init;
  init.pd = device_.pd;
  init.send_cq = send_cq_;
  init.receive_cq = receive_cq_;
  init.capabilities = given_.capabilities;
  init.signal_all = given_.signal_all;
  init.srq = given_.srq;
  made_ = device_.nic.create_qp(init).value();
  move_to(given_.state);
}

QueuePairAttributes Line::attributes(S to) const {
  QueuePairAttributes values;
  values.state = to;
  values.access = given_.access;
  values.address.destination = given_.peer;
  values.path_mtu = given_.path_mtu;
  values.destination = given_.peer_qpn;
  values.rq_psn = given_.theirs;
  values.sq_psn = given_.ours;
  values.max_rd_atomic = given_.max_rd_atomic;
  values.max_dest_rd_atomic = given_.max_dest_rd_atomic;
  values.min_rnr_timer = given_.min_rnr_timer;
  values.timeout = given_.timeout;
  values.retry_count = given_.retry_count;
  values.rnr_retry = given_.rnr_retry;
  return values;
}

Result<void> Line::modify(const QueuePairAttributes& values, AttributeMask mask) {
  auto result = device_.nic.modify_qp(device_.now, qpn(), values, mask);
  device_.pump(soft::Nic::Acks::Owed);
  return result;
}

void Line::move_to(S target) {
  std::vector<S> steps;
  switch (target) {
    case S::Reset:
      break;
    case S::Init:
      steps = {S::Init};
      break;
    case S::Rtr:
      steps = {S::Init, S::Rtr};
      break;
    case S::Rts:
      steps = {S::Init, S::Rtr, S::Rts};
      break;
    case S::Sqd:
      steps = {S::Init, S::Rtr, S::Rts, S::Sqd};
      break;
    case S::Sqe:
    case S::Error:
      steps = {S::Init, S::Rtr, S::Rts, S::Error};
      break;
  }
  for (auto at = std::find(steps.begin(), steps.end(), state()); const S step : steps) {
    if (at != steps.end() && std::find(steps.begin(), steps.end(), step) <= at) continue;
    const auto moved = modify(attributes(step), required_mask(step));
    EXPECT_TRUE(moved) << (moved ? "" : moved.error().to_string());
  }
}

PostResult Line::try_post(const SendRequest& request) {
  const PostResult result = made_.queues->post_send({&request, 1});
  device_.nic.ring_doorbell(*made_.queues);
  device_.nic.handle_doorbells(device_.now);
  device_.pump(soft::Nic::Acks::Owed);
  return result;
}

void Line::post(const SendRequest& request) { EXPECT_EQ(try_post(request).status, PostStatus::Ok); }

void Line::post(std::uint64_t id, SendOpcode opcode, std::vector<ScatterGather> local, std::uint64_t remote,
                RKey rkey, SendFlags flags) {
  SendRequest request;
  request.id = id;
  request.opcode = opcode;
  request.flags = flags;
  request.local = local;
  request.remote_address = remote;
  request.rkey = rkey;
  request.immediate = {std::byte{0xca}, std::byte{0xfe}, std::byte{0xf0}, std::byte{0x0d}};
  post(request);
}

void Line::post_receive(std::uint64_t id, std::vector<ScatterGather> local) {
  const ReceiveRequest request{id, local};
  EXPECT_EQ(made_.queues->post_receive({&request, 1}).status, PostStatus::Ok);
  device_.nic.ring_doorbell(*made_.queues);
  device_.nic.handle_doorbells(device_.now);
  device_.pump(soft::Nic::Acks::Owed);
}

}  // namespace verbena::conformance
