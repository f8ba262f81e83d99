// SPDX-License-Identifier: Apache-2.0
#include "pair.h"

#include <algorithm>

namespace verbena::conformance {

namespace {

using S = QueuePairState;
using Acks = soft::Nic::Acks;

// So small that most messages need several records.
constexpr std::uint32_t kRingBytes = 1024;
constexpr std::uint32_t kShortestPull = 64;

soft::NicConfig config_of_side(const Given& given) {
  soft::NicConfig config;
  config.address = given.device;
  config.path_mtu = 4096;
  config.transport = given.transport;
  if (given.way == Way::PulledRings || given.way == Way::GrantedRings) config.local.pull_from_bytes = kShortestPull;
  return config;
}

Given other_end(const Given& given, const Given& second) {
  Given other = second;
  other.device = given.peer;
  other.peer = given.device;
  other.ours = given.theirs;
  other.theirs = given.ours;
  return other;
}

void connect(Instant now, Pair::Side& side, Qpn own, const Given& given, Qpn peer) {
  QueuePairAttributes values;
  values.access = given.access;
  values.address.destination = given.peer;
  values.path_mtu = given.path_mtu;
  values.destination = peer;
  values.rq_psn = given.theirs;
  values.sq_psn = given.ours;
  values.max_rd_atomic = given.max_rd_atomic;
  values.max_dest_rd_atomic = given.max_dest_rd_atomic;
  values.min_rnr_timer = given.min_rnr_timer;
  values.timeout = given.timeout;
  values.retry_count = given.retry_count;
  values.rnr_retry = given.rnr_retry;
  for (const S state : {S::Init, S::Rtr, S::Rts}) {
    values.state = state;
    EXPECT_TRUE(side.nic.modify_qp(now, own, values, required_mask(state)));
    if (state == given.state) return;
  }
}

}  // namespace

Pair::Side::Side(const Given& given, std::uint64_t seed)
    : random(seed), nic(config_of_side(given), random), pd(nic.create_pd().value()) {
  send_cq = nic.create_cq(given.cq_entries).value();
  receive_cq = nic.create_cq(given.cq_entries).value();
  soft::Nic::QpInit init;
  init.pd = pd;
  init.send_cq = send_cq;
  init.receive_cq = receive_cq;
  init.capabilities = given.capabilities;
  init.signal_all = given.signal_all;
  made = nic.create_qp(init).value();
  memory = std::make_unique<Memory>(nic, pd, kMemoryBytes, Access::All, std::nullopt,
                                    given.way == Way::GrantedRings ? 0 : -1);
}

Pair::Pair(const Given& given, const Given& second) : given_{given, other_end(given, second)} {
  sides_[0] = std::make_unique<Side>(given_[0], given.seed);
  sides_[1] = std::make_unique<Side>(given_[1], given.seed + 1);
  if (given.way != Way::Packets) {
    rings_ = std::make_unique<Rings>(
        Rings::Copies{given.way != Way::Rings, given.way == Way::GrantedRings}, kRingBytes);
    for (const int i : {0, 1}) side(i).nic.set_paths(&rings_->of(i));
  }
  join(side(0).made.qpn, side(1).made.qpn);
}

void Pair::join(Qpn first, Qpn second) {
  connect(now_, side(0), first, given_[0], second);
  connect(now_, side(1), second, given_[1], first);
  settle_rings();
}

Pair::~Pair() {
  for (const auto& s : sides_) {
    s->nic.check_invariants();
    EXPECT_TRUE(s->memory->guards_hold());
  }
}

bool Pair::step(int at, QueuePairState to) {
  QueuePairAttributes values;
  values.state = to;
  return side(at).nic.modify_qp(now_, side(at).made.qpn, values, AttributeMask::State).has_value();
}

void Pair::stop(int at) { side(at).stopped = true; }

void Pair::resume(int at) {
  side(at).stopped = false;
  wire_.insert(wire_.end(), held_.begin(), held_.end());
  held_.clear();
}

bool Pair::settle_rings() { return rings_ != nullptr && rings_->settle(now_, {&side(0).nic, &side(1).nic}); }

void Pair::post(int from, const SendRequest& request) {
  Side& s = side(from);
  EXPECT_EQ(s.made.queues->post_send({&request, 1}).status, PostStatus::Ok);
  s.nic.ring_doorbell(*s.made.queues);
}

void Pair::post(int from, std::uint64_t id, SendOpcode opcode, std::vector<ScatterGather> local,
                std::uint64_t remote, RKey rkey, SendFlags flags) {
  SendRequest request;
  request.id = id;
  request.opcode = opcode;
  request.flags = flags;
  request.local = local;
  request.remote_address = remote;
  request.rkey = rkey;
  post(from, request);
}

void Pair::post_receive(int at, std::uint64_t id, std::vector<ScatterGather> local) {
  Side& s = side(at);
  const ReceiveRequest request{id, local};
  EXPECT_EQ(s.made.queues->post_receive({&request, 1}).status, PostStatus::Ok);
  s.nic.ring_doorbell(*s.made.queues);
}

// One turn of the driver of a side.
bool Pair::turn(int at, Acks acks) {
  soft::Nic& nic = side(at).nic;
  if (side(at).stopped) return false;
  bool any = settle_rings();
  if (rings_ != nullptr) any |= nic.handle_records(now_);
  nic.handle_doorbells(now_);
  any |= collect(at, acks);
  if (rings_ != nullptr) any |= nic.emit_records(now_);
  nic.check_invariants();
  poll();
  if (watch) watch();
  return any;
}

bool Pair::collect(int from, Acks acks) {
  Side& s = side(from);
  bool any = false;
  while (s.nic.poll_transmit(now_, acks, s.train)) {
    for (std::uint32_t i = 0; i < s.train.datagrams(); ++i) {
      Flying flying{from, s.train.path(), static_cast<std::uint16_t>(i), {}};
      s.train.flatten(i, flying.bytes);
      const Fate fate = hook ? hook(from, flying.bytes) : Fate::Deliver;
      if (fate == Fate::Twice) wire_.push_back(flying);
      if (fate == Fate::Later)
        later_.push_back(std::move(flying));
      else if (fate != Fate::Drop)
        wire_.push_back(std::move(flying));
    }
    any = true;
  }
  return any;
}

bool Pair::deliver_all() {
  const bool any = !wire_.empty();
  while (!wire_.empty()) {
    const Flying flying = std::move(wire_.front());
    wire_.pop_front();
    if (side(1 - flying.from).stopped) {
      held_.push_back(flying);
      continue;
    }
    soft::Nic& to = side(1 - flying.from).nic;
    to.handle_datagram(now_, flying.path, flying.identification, flying.bytes);
    to.check_invariants();
    ++carried_;
    poll();
    if (watch) watch();
  }
  return any;
}

void Pair::poll() {
  Completion completion;
  for (const auto& s : sides_) {
    if (!s->polls) continue;
    while (s->nic.cq(s->send_cq)->poll({&completion, 1}) != 0) s->sends.push_back(completion);
    while (s->nic.cq(s->receive_cq)->poll({&completion, 1}) != 0) s->receives.push_back(completion);
  }
}

void Pair::run(Duration limit) {
  const Instant end = now_ + limit;
  for (;;) {
    bool busy = false;
    for (const int i : {0, 1}) busy |= turn(i, Acks::Owed);
    if (!busy)
      for (const int i : {0, 1}) busy |= turn(i, Acks::Flush);
    busy |= deliver_all();
    if (!busy && !later_.empty()) {
      wire_.swap(later_);
      busy = true;
    }
    poll();
    if (busy) continue;
    Instant next = Instant::never();
    for (const auto& s : sides_)
      if (!s->stopped) next = std::min(next, s->nic.next_deadline());
    if (next > end) return;
    now_ = std::max(now_, next);
    for (const auto& s : sides_)
      if (!s->stopped) s->nic.handle_timeout(now_);
  }
}

void Pair::pass(Duration time) {
  const Instant end = now_ + time;
  run(time);
  now_ = end;
  run(Duration{});
}

std::vector<AsyncEventType> Pair::events(int at) {
  std::vector<AsyncEventType> all;
  while (const auto event = side(at).nic.poll_event())
    if (event->kind == core::Event::Kind::Async) all.push_back(event->type);
  return all;
}

}  // namespace verbena::conformance
