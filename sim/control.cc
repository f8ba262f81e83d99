// SPDX-License-Identifier: Apache-2.0
// Control verbs in the middle of traffic: killing, resetting, draining, deregistering, and calls that must be
// refused.
#include <algorithm>

#include "sim/workload.h"

namespace verbena::sim {

// Something drastic happens to side s.
void Workload::kill(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  poll_completions(side.node);
  if (pair.state != Pair::State::Up || side.queues == nullptr) return;
  if (side.connection.established && random_.chance(0.5)) return disconnect(pair, s);
  switch (random_.below(6)) {
    case 0:
      if (!side.withdrawn) return withdraw(pair, s);
      [[fallthrough]];
    case 1: {
      auto destroyed = nic(side).destroy_qp(side.qpn);
      if (!destroyed) return fail("destroy", destroyed.error().to_string());
      side.queues = nullptr;
      side.abandoned = true;
      break;
    }
    case 2:
      ++coverage_.resets;
      change_state(side, QueuePairState::Reset);  // no completion of it will be seen any more
      side.abandoned = true;
      break;
    default:
      change_state(side, QueuePairState::Error);
      break;
  }
  side.killed = true;
  const Duration period = Duration{std::int64_t{4096} << options_.queues.timeout};
  begin_closing(pair, random_.chance(0.2) ? period * 10 : Duration::microseconds(300));
}

bool Workload::change_state(const Side& side, QueuePairState to) {
  QueuePairAttributes a;
  a.state = to;
  a.sq_drained_event = true;
  AttributeMask mask = AttributeMask::State;
  if (to == QueuePairState::Sqd) mask = mask | AttributeMask::SqDrainedEvent;
  auto done = nic(side).modify_qp(world_.now(), side.qpn, a, mask);
  if (!done) fail("modify", done.error().to_string());
  world_.wake(side.node);
  return done.has_value();
}

// from here on no byte of the target is touched, whatever is under way.
void Workload::withdraw(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  Flow& incoming = *pair.flows[1 - s];
  auto gone = nic(side).deregister_memory(incoming.places().target.region.lkey);
  if (!gone) return fail("deregister", gone.error().to_string());
  side.withdrawn = true;
  ++coverage_.withdrawals;
  incoming.withdraw_target();
}

//
void Workload::drain_or_resume(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  if (side.queues == nullptr) return;
  if (side.draining) {
    if (!side.drained || side.queues->state() != QueuePairState::Sqd) return;
    side.draining = false;
    pair.flows[s]->set_draining(false);
    change_state(side, QueuePairState::Rts);
    return;
  }
  if (healed_ || !random_.chance(options_.work.drain) || side.queues->state() != QueuePairState::Rts) return;
  side.draining = true;
  side.drained = false;
  pair.flows[s]->set_draining(true);
  change_state(side, QueuePairState::Sqd);
}

void Workload::on_drained(std::uint8_t node, Qpn qpn) {
  const Known* at = known(node, qpn);
  if (at == nullptr) return;
  Side& side = pairs_[at->pair].sides[at->side];
  if (side.queues == nullptr || side.queues->state() != QueuePairState::Sqd) return;
  if (!side.draining || side.drained) return fail("SQD", "drained twice, or without being asked");
  side.drained = true;
  ++coverage_.drained;
  pairs_[at->pair].flows[at->side]->check_drained();
}

void Workload::expect_refused(const Result<void>& result, ErrorCode code, std::string_view what) {
  if (result)
    fail("misuse", std::string(what) + " is allowed");
  else if (result.error().code() != code)
    fail("misuse", std::string(what) + ": " + result.error().to_string());
}

// Calls that must change nothing.
void Workload::misuse(Pair& pair, std::size_t s) {
  ++coverage_.refusals;
  const Side& side = pair.sides[s];
  const Host& host = hosts_[side.node];
  soft::Nic& device = nic(side);
  QueuePairAttributes a;
  switch (random_.below(6)) {
    case 0:
      return expect_refused(device.destroy_cq(host.send_cq), ErrorCode::Busy,
                            "destroying a completion queue in use");
    case 1:
      return expect_refused(device.destroy_pd(host.domain), ErrorCode::Busy,
                            "destroying a protection domain in use");
    case 2:
      a.state = QueuePairState::Rtr;
      return expect_refused(device.modify_qp(world_.now(), side.qpn, a, AttributeMask::State),
                            ErrorCode::InvalidArgument, "going back to RTR");
    case 3:
      a.min_rnr_timer = 32;
      return expect_refused(device.modify_qp(world_.now(), side.qpn, a, AttributeMask::MinRnrTimer),
                            ErrorCode::InvalidArgument, "an RNR timer code of 32");
    default:
      return post_nonsense(pair, s);
  }
}

// refused at the queue, with the place of the first that is wrong.
void Workload::post_nonsense(Pair& pair, std::size_t s) {
  const Side& side = pair.sides[s];
  if (!side.may_send || pair.flows[s]->unfinished() >= side.send_capacity) return;
  const Area& local = pair.flows[s]->places().local;
  std::array<ScatterGather, core::kMaxSegments + 1> sges;
  sges.fill({local.va(0), 8, local.region.lkey});
  SendRequest request;
  request.id = kNone;
  request.local = {sges.data(), 1};
  PostStatus wanted = PostStatus::InvalidRequest;
  switch (random_.below(4)) {
    case 0:
      request.local = sges;
      wanted = PostStatus::TooManySegments;
      break;
    case 1:
      sges[0] = {reinterpret_cast<std::uint64_t>(local.base), side.inline_capacity + 1, LKey{}};
      request.flags = SendFlags::Inline;
      wanted = PostStatus::InlineTooLong;
      break;
    case 2:
      request.opcode = SendOpcode::RdmaRead;
      request.flags = SendFlags::Inline;
      break;
    default:
      request.opcode = SendOpcode::FetchAndAdd;
      sges[0].length = 7;
      break;
  }
  const PostResult result = side.queues->post_send({&request, 1});
  if (result.status != wanted || result.posted != 0)
    fail("misuse", "a wrong request is not refused as it should be");
}

}  // namespace verbena::sim
