// SPDX-License-Identifier: Apache-2.0
// Who sends next, who owes, and when whom to look at. Lists and heap are in a fixed order: (time, number).
#include <algorithm>
#include <functional>

#include "base/assert.h"
#include "soft/nic_qp.h"

namespace verbena::soft {

namespace {
constexpr int kMostHeldPerCall = 8;
}

void Nic::append(ListKind kind, Qp& qp) {
  Qp::Hook& hook = qp.hooks[kind];
  if (hook.linked) return;
  List& list = lists_[kind];
  hook = {list.last, nullptr, true};
  (list.last != nullptr ? list.last->hooks[kind].next : list.first) = &qp;
  list.last = &qp;
  ++list.count;
}

void Nic::prepend(ListKind kind, Qp& qp) {
  remove(kind, qp);
  List& list = lists_[kind];
  qp.hooks[kind] = {nullptr, list.first, true};
  (list.first != nullptr ? list.first->hooks[kind].previous : list.last) = &qp;
  list.first = &qp;
  ++list.count;
}

void Nic::remove(ListKind kind, Qp& qp) {
  Qp::Hook& hook = qp.hooks[kind];
  if (!hook.linked) return;
  List& list = lists_[kind];
  (hook.previous != nullptr ? hook.previous->hooks[kind].next : list.first) = hook.next;
  (hook.next != nullptr ? hook.next->hooks[kind].previous : list.last) = hook.previous;
  hook = {};
  --list.count;
}

void Nic::unlink(Qp& qp) {
  remove(kReady, qp);
  remove(kOwing, qp);
  for (const ListKind kind : {kWatched, kLocalReady, kToWake}) remove(kind, qp);
  qp.timer_at = Instant::never();
}

// After anything that happened to a queue pair: enter it where it must be found.
void Nic::schedule(Instant now, Qp& qp) {
  if (qp.path != verbena::local::Path::Roce) [[unlikely]] return schedule_local(now, qp);
  const roce::Transport::Outlook next = qp.transport.outlook(now);
  if (next.ready) append(kReady, qp);
  if (next.owes) append(kOwing, qp);
  if (next.deadline <= now && qp.hooks[kReady].linked) return;  // what is due leaves with its next packets
  look_again(qp, next.deadline);
}

void Nic::look_again(Qp& qp, Instant at) {
  if (at >= qp.timer_at) return;  // the entry there is early enough; it is looked at again then
  qp.timer_at = at;
  timers_.push_back({at, qp.qpn()});
  std::push_heap(timers_.begin(), timers_.end(), std::greater<>{});
}

// every queue pair on a completion queue that overran goes to ERR.
void Nic::fail_users_of_broken(Instant now) {
  while (const std::optional<core::CqId> cq = events_.poll_broken())
    for (const auto& [number, qp] : qps_) {
      const bool uses = qp->init().send_cq->id() == *cq || qp->init().receive_cq->id() == *cq;
      if (!uses || qp->state() == QueuePairState::Error || qp->state() == QueuePairState::Reset) continue;
      fail(*qp, AsyncEventType::QpFatal);
      schedule(now, *qp);
    }
}

void Nic::ring_doorbell(core::QueuePair& queues) {
  Qp& qp = static_cast<Qp&>(queues);
  if (qp.doorbell.exchange(true, std::memory_order_acq_rel)) return;  // rings already
  Qp* head = doorbells_.load(std::memory_order_relaxed);
  do qp.next_doorbell = head;
  while (!doorbells_.compare_exchange_weak(head, &qp, std::memory_order_seq_cst, std::memory_order_relaxed));
}

void Nic::handle_doorbells(Instant now) {
  Qp* stack = doorbells_.exchange(nullptr, std::memory_order_acquire);
  Qp* in_order = nullptr;  // oldest first
  while (stack != nullptr) {
    Qp* next = stack->next_doorbell;
    stack->next_doorbell = in_order;
    in_order = stack;
    stack = next;
  }
  while (in_order != nullptr) {
    Qp& qp = *in_order;
    in_order = qp.next_doorbell;
    qp.doorbell.exchange(false, std::memory_order_acq_rel);  // from here on a new post rings again
    look_at_queues(now, qp);
  }
  settle_broken_queues(now);
}

void Nic::handle_post(Instant now, core::QueuePair& queues) {
  look_at_queues(now, static_cast<Qp&>(queues));
  settle_broken_queues(now);
}

// Not before what is ready, nor by a queue pair that may go by rings.
bool Nic::put_packet(core::QueuePair& queues, const SendRequest& request, roce::Train& train) {
  Qp& qp = static_cast<Qp&>(queues);
  if (qp.path != verbena::local::Path::Roce || transmit_waits()) return false;
  return qp.transport.put_short(request, train);
}

void Nic::follow_packet(Instant now, core::QueuePair& queues, const roce::Train& train) {
  Qp& qp = static_cast<Qp&>(queues);
  qp.transport.follow_short(now, train);
  note_reply(now, qp);
  schedule(now, qp);
  if (!qp.hooks[kOwing].linked || qp.transport.holds_back(now)) return;
  prepend(kOwing, qp);  // due with this: its turn is now, whoever holds something back before it
}

// Something was posted. Whether it can leave is seen when it is asked for.
void Nic::look_at_queues(Instant now, Qp& qp) {
  qp.path == verbena::local::Path::Local ? qp.local->transport.handle_doorbell() : qp.transport.handle_doorbell();
  if (qp.path == verbena::local::Path::Roce)
    append(kReady, qp);
  else if (qp.local != nullptr && qp.local->link)
    append(kLocalReady, qp);  // what is due is found where it is written
  else
    schedule(now, qp);
}

// Nobody else may point to it when it goes. Other bells ring on.
void Nic::forget_doorbell(Qp& gone) {
  Qp* stack = doorbells_.exchange(nullptr, std::memory_order_acquire);
  while (stack != nullptr) {
    Qp& qp = *stack;
    stack = qp.next_doorbell;
    qp.doorbell.exchange(false, std::memory_order_acq_rel);
    if (&qp != &gone) ring_doorbell(qp);
  }
}

void Nic::handle_timeout(Instant now) {
  while (!timers_.empty() && timers_.front().at <= now) {
    const Timer timer = timers_.front();
    std::pop_heap(timers_.begin(), timers_.end(), std::greater<>{});
    timers_.pop_back();
    Qp* qp = find(timer.qpn);
    if (qp == nullptr || qp->timer_at != timer.at) continue;  // destroyed, or superseded by an earlier entry
    qp->timer_at = Instant::never();
    if (qp->path != verbena::local::Path::Roce) {
      handle_local_timeout(now, *qp);
    } else {
      qp->transport.handle_timeout(now);
      // What was due is done or ready to leave: a deadline that stayed in the past would be met for ever.
      VERBENA_ASSERT(qp->transport.deadline() > now || qp->transport.outlook(now).ready);
    }
    schedule(now, *qp);
  }
  if (cm_->next_deadline() <= now) cm_->handle_timeout(now);
  settle_broken_queues(now);
}

Instant Nic::next_deadline() const {
  const Instant own = timers_.empty() ? Instant::never() : timers_.front().at;
  return std::min(own, cm_->next_deadline());
}

Instant Nic::settle_deadlines() {
  while (!timers_.empty()) {
    const Timer timer = timers_.front();
    Qp* const qp = find(timer.qpn);
    const bool live = qp != nullptr && qp->timer_at == timer.at;
    const Instant at = live ? deadline_of(*qp) : Instant::never();
    if (at <= timer.at) break;
    std::pop_heap(timers_.begin(), timers_.end(), std::greater<>{});
    timers_.pop_back();
    if (!live) continue;
    qp->timer_at = Instant::never();
    look_again(*qp, at);
  }
  return next_deadline();
}

// Of a queue pair of which nothing waits to leave.
Instant Nic::deadline_of(const Qp& qp) const {
  if (qp.path == verbena::local::Path::Roce) return qp.transport.deadline();
  if (qp.path == verbena::local::Path::Undecided) return qp.local->waits_until;
  return std::min(qp.local->transport.deadline(), qp.local->link ? qp.local->ends_at : Instant::never());
}

bool Nic::emit_management(Instant now, roce::Train& train) {
  cm::OutgoingMad mad;
  if (!cm_->poll_transmit(now, mad)) return false;
  wire::Packet packet;
  packet.bth.opcode = wire::Opcode::UdSendOnly;
  packet.bth.pkey = config_.pkey;
  packet.bth.destination = kGsiQpn;
  packet.bth.psn = management_psn_;
  packet.deth = {0x80010000, 0, kGsiQpn};
  ++management_psn_;
  wire::Path path;
  path.source = config_.address;
  path.destination = mad.destination;
  path.source_port = config_.source_ports[0];
  path.traffic_class = mad.traffic_class;
  train.clear();
  train.set_path(path, wire::IcrcStart(path), 0);
  const roce::Piece piece{mad.bytes.data(), mad.bytes.size()};
  const bool added = train.add(packet, {&piece, 1}, mad.bytes.size(), roce::Train::Payload::Copy);
  VERBENA_ASSERT(added);  // the memory is ours
  train.finish();
  ++counters_.sent_cm_pkts;
  ++counters_.sent_pkts;
  counters_.sent_bytes += train.total_bytes();
  return true;
}

// What was owed to the same peer by other queue pairs before these requests left.
void Nic::note_reply(Instant now, const Qp& by) {
  int left = kMostHeldPerCall;
  for (Qp* other = lists_[kOwing].first; other != nullptr && left != 0; other = other->hooks[kOwing].next, --left)
    if (other != &by && other->transport.peer() == by.transport.peer()) other->transport.note_reply(now);
}

bool Nic::poll_transmit(Instant now, Acks acks, roce::Train& train) {
  if (cm_->transmit_waits() && emit_management(now, train)) return true;
  while (Qp* qp = lists_[kReady].first) {
    remove(kReady, *qp);
    const bool sent = qp->transport.emit(now, false, train);
    if (qp->transport.sent_requests()) note_reply(now, *qp);
    schedule(now, *qp);
    settle_broken_queues(now);
    if (sent) return true;
  }
  if (acks == Acks::Owed) return false;
  // Held ones go to the back. However many there are, a call looks at a few: every call looks at others.
  int held = 0;
  while (Qp* qp = lists_[kOwing].first) {
    remove(kOwing, *qp);
    if (acks == Acks::Idle && qp->transport.holds_back(now)) {
      append(kOwing, *qp);
      if (++held == kMostHeldPerCall) break;
      continue;
    }
    const bool sent = qp->transport.emit(now, true, train);
    schedule(now, *qp);
    settle_broken_queues(now);
    if (sent) return true;
  }
  return false;
}

}  // namespace verbena::soft
