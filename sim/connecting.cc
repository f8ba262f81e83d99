// SPDX-License-Identifier: Apache-2.0
// The lives of a pair: connected, at work, broken or killed, drained, destroyed, and made anew.
#include <algorithm>

#include "sim/workload.h"

namespace verbena::sim {

namespace {
constexpr Access kTargetAccess =
    Access::LocalWrite | Access::RemoteWrite | Access::RemoteRead | Access::RemoteAtomic;
}

// Regions of side s's memory; with each connection under new keys.
void Workload::register_areas(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  soft::Nic& device = nic(side);
  const core::PdId pd = hosts_[side.node].domain;
  // Regions may be addressed by any number with the memory's alignment, up to the end of the address space.
  const auto place = [&](Area& area, Access access) {
    std::uint64_t iova = random_.next_u64() >> 1 & ~std::uint64_t{7};
    if (random_.chance(0.1)) iova = 0 - ((area.size + 7) & ~std::uint64_t{7});
    auto registered = device.register_memory(pd, area.base, area.size, iova, access);
    if (!registered) return fail("setup", registered.error().to_string());
    area.region = *registered;
  };
  place(side.receive_area, Access::LocalWrite);
  Flow::Places own = pair.flows[s]->places();
  place(own.local, Access::LocalWrite);
  Flow::Places theirs = pair.flows[1 - s]->places();
  place(theirs.target, kTargetAccess);
  place(theirs.stable, Access::RemoteRead);
  pair.flows[s]->set_regions(own.local.region, own.target.region, own.stable.region);
  pair.flows[1 - s]->set_regions(theirs.local.region, theirs.target.region, theirs.stable.region);
  side.receive_buffers.reset(side.receive_area);
  side.withdrawn = false;
}

bool Workload::create_queue_pair(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  const Host& host = hosts_[side.node];
  const QueueOptions& q = options_.queues;
  soft::Nic::QpInit init;
  init.pd = host.domain;
  init.send_cq = host.send_cq;
  init.receive_cq = host.receive_cq;
  init.capabilities = {q.send_depth, q.receive_depth, q.segments, q.segments, q.inline_bytes};
  init.signal_all = q.signal_all;
  auto created = nic(side).create_qp(init);
  if (!created) return fail("setup", created.error().to_string()), false;
  side.qpn = created->qpn;
  side.queues = created->queues;
  side.send_capacity = created->capabilities.max_send_requests;
  side.receive_capacity = created->capabilities.max_receive_requests;
  side.receives.reset(0);
  side.inline_capacity = created->capabilities.max_inline_bytes;
  side.killed = side.abandoned = side.may_send = side.draining = side.drained = false;
  known_[side.node].push_back(
      {side.qpn, static_cast<std::uint16_t>(pair.index), static_cast<std::uint8_t>(s)});
  return true;
}

bool Workload::to_init(const Side& side) {
  QueuePairAttributes a;
  a.state = QueuePairState::Init;
  a.access = Access::All;
  using M = AttributeMask;
  auto done = nic(side).modify_qp(world_.now(), side.qpn, a, M::State | M::PkeyIndex | M::Port | M::Access);
  if (!done) fail("setup", done.error().to_string());
  return done.has_value();
}

bool Workload::to_rtr(const Side& side, const Side& peer, Psn first_psn) {
  QueuePairAttributes a;
  a.state = QueuePairState::Rtr;
  a.address.destination = World::address_of(options_, peer.node);
  a.path_mtu = options_.queues.path_mtu;
  a.destination = peer.qpn;
  a.rq_psn = first_psn;
  a.max_dest_rd_atomic = options_.queues.rd_atomic;
  a.min_rnr_timer = options_.queues.min_rnr_timer;
  using M = AttributeMask;
  auto done = nic(side).modify_qp(world_.now(), side.qpn, a,
                                  M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn |
                                      M::MaxDestRdAtomic | M::MinRnrTimer);
  if (!done) fail("setup", done.error().to_string());
  return done.has_value();
}

bool Workload::to_rts(Side& side, Psn first_psn) {
  QueuePairAttributes a;
  a.state = QueuePairState::Rts;
  a.sq_psn = first_psn;
  a.max_rd_atomic = options_.queues.rd_atomic;
  a.retry_count = options_.queues.retry_count;
  a.rnr_retry = options_.queues.rnr_retry;
  a.timeout = options_.queues.timeout;
  using M = AttributeMask;
  auto done =
      nic(side).modify_qp(world_.now(), side.qpn, a,
                          M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout);
  if (!done) fail("setup", done.error().to_string());
  side.may_send = done.has_value();
  return done.has_value();
}

void Workload::open(Pair& pair) {
  if (pair.state != Pair::State::Down) return;
  if (healed_ && connections_ != 0 && options_.work.script.empty()) {
    pair.settled = true;
    ++settled_;
    return;
  }
  ++pair.incarnation;
  for (std::size_t s = 0; s < 2; ++s) {
    Side& side = pair.sides[s];
    side.first_psn = Psn{random_.next_u32()};
    if (options_.queues.near_wrap) side.first_psn = Psn{0} - static_cast<std::uint32_t>(random_.below(1500));
    register_areas(pair, s);
    pair.flows[s]->open(side.first_psn, options_.queues.path_mtu, world_.now());
  }
  if (options_.queues.through_cm) return ask_for_connection(pair);
  for (std::size_t s = 0; s < 2; ++s)
    if (!create_queue_pair(pair, s) || !to_init(pair.sides[s])) return;
  for (std::size_t s = 0; s < 2; ++s)
    if (!to_rtr(pair.sides[s], pair.sides[1 - s], pair.sides[1 - s].first_psn)) return;
  for (Side& side : pair.sides)
    if (!to_rts(side, side.first_psn)) return;
  begin_work(pair);
}

void Workload::begin_work(Pair& pair) {
  ++connections_;
  pair.state = Pair::State::Up;
  pair.idle_ticks = 0;
  work(pair);
}

// A side is broken or about to be: the programs notice within `patience` and end the connection.
void Workload::begin_closing(Pair& pair, Duration patience) {
  if (pair.state != Pair::State::Up) return;
  pair.state = Pair::State::Closing;
  tick_at(world_.now() + random_up_to(patience), pair, Tick::Finish);
}

// Every receive that was posted must have completed by now.
bool Workload::account_for_receives(const Side& side) {
  if (side.abandoned || side.receives.size() == 0) return true;
  fail("flush", "a receive was not flushed");
  return false;
}

void Workload::close(Pair& pair) {
  // A program may lose its patience while the connection is being made.
  if (pair.state == Pair::State::Connecting) pair.state = Pair::State::Closing;
  if (pair.state != Pair::State::Closing) return;
  for (std::size_t s = 0; s < 2; ++s) {
    Side& side = pair.sides[s];
    if (side.queues == nullptr || side.abandoned) continue;
    // Requests that meet a queue pair in ERR are flushed as well.
    if (pair.is_broken(s) && side.may_send && side.queues->state() == QueuePairState::Error &&
        random_.chance(0.5)) {
      post_sends(pair, s, 1);
      post_receives(pair, s, 1);
    }
    side.killed = true;
    if (!change_state(side, QueuePairState::Error)) return;
    nic(side).handle_doorbells(world_.now());
    poll_completions(side.node);
  }
  for (std::size_t s = 0; s < 2; ++s) {
    if (!account_for_receives(pair.sides[s])) return;
    pair.flows[s]->close(!pair.sides[s].abandoned);
  }
  take_down(pair);
}

void Workload::take_down(Pair& pair) {
  for (std::size_t s = 0; s < 2; ++s) {
    Side& side = pair.sides[s];
    soft::Nic& device = nic(side);
    if (side.queues != nullptr) {
      auto destroyed = device.destroy_qp(side.qpn);
      if (!destroyed) return fail("destroy", destroyed.error().to_string());
    }
    side.queues = nullptr;
    forget_connection(side);
    std::erase_if(known_[side.node], [&](const Known& k) { return k.qpn == side.qpn; });
    const Flow::Places& own = pair.flows[s]->places();
    const Flow::Places& theirs = pair.flows[1 - s]->places();
    pair.stale[1 - s] = theirs.target.region;
    for (const LKey key : {own.local.region.lkey, theirs.target.region.lkey, theirs.stable.region.lkey,
                          side.receive_area.region.lkey}) {
      if (side.withdrawn && key == theirs.target.region.lkey) continue;
      auto gone = device.deregister_memory(key);
      if (!gone) return fail("deregister", gone.error().to_string());
    }
  }
  pair.state = Pair::State::Down;
  tick_at(world_.now() + random_up_to(Duration::microseconds(50)), pair, Tick::Open);
}

}  // namespace verbena::sim
