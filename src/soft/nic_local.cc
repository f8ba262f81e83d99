// SPDX-License-Identifier: Apache-2.0
// Queue pairs whose peer may be on this host: from RTR on undecided, then by packets as all others, or by rings.
//
// The wake words are memory of another process too, as the rings are: what touches them runs under the fault guard.
#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "soft/core/retries.h"
#include "soft/nic_qp.h"

namespace verbena::soft {

using verbena::local::Path;

namespace {

constexpr Duration kLongestWaitForRoom = Duration::milliseconds(1);
constexpr Duration kLongestFarewell = Duration::milliseconds(100);

Error no_path(const Error& error) {
  return {error.code(), "modify queue pair to RTR: " + error.context() + "; it is in ERR now", EHOSTUNREACH,
          ErrorDomain::Errno};
}

}  // namespace

// After its attributes changed, with somebody there to choose.
Result<void> Nic::follow_state(Instant now, Qp& qp, QueuePairState before) {
  const QueuePairState state = qp.state();
  if (state == QueuePairState::Reset) {
    leave_path(qp, false);
    return {};
  }
  if (qp.local != nullptr) qp.local->transport.handle_state(before);
  if (state == QueuePairState::Error) leave_undecided(qp);
  if (state != QueuePairState::Rtr || before == QueuePairState::Rtr) return {};
  qp.local = std::make_unique<Qp::Local>(qp, config_.local, memory_, counters_, random_);
  qp.local->transport.handle_state(before);
  qp.path = Path::Undecided;
  const QueuePairAttributes& a = qp.attributes();
  const auto entered = paths_->enter(now, {config_.address, qp.qpn()}, {a.address.destination, a.destination});
  if (entered) return {};
  qp.enter_error(std::nullopt);
  leave_undecided(qp);
  return no_path(entered.error());
}

void Nic::use_roce(Instant now, Qpn qpn) {
  Qp* const qp = find(qpn);
  VERBENA_ASSERT(qp != nullptr && qp->path == Path::Undecided);
  qp->path = Path::Roce;
  qp->local.reset();
  schedule(now, *qp);
}

void Nic::use_local(Instant now, Qpn qpn, const LocalLink& link) {
  Qp* const qp = find(qpn);
  VERBENA_ASSERT(qp != nullptr && qp->path == Path::Undecided);
  qp->path = Path::Local;
  qp->local->link.emplace(link);
  qp->local->hung_up = false;
  qp->on_rings.store(true, std::memory_order_relaxed);
  ++attached_;
  watch(now, *qp);
  qp->local->transport.attach(now, link.channel);
  // Somebody may be asleep already.
  touch_words(*qp, [&] { qp->local->link->sleeper.announce(); });
  schedule(now, *qp);
}

void Nic::refuse_path(Qpn qpn) {
  Qp* const qp = find(qpn);
  VERBENA_ASSERT(qp != nullptr && qp->path == Path::Undecided);
  fail(*qp, AsyncEventType::PathRefused);
}

void Nic::handle_hang_up(Instant now, Qpn qpn, Instant at) {
  Qp* const qp = find(qpn);
  if (qp == nullptr || qp->local == nullptr || !qp->local->link) return;
  qp->local->hung_up = true;
  if (at > now) {
    qp->local->ends_at = at;
    qp->local->transport.stop_copying();
    return look_again(*qp, at);
  }
  qp->local->transport.handle_hang_up(now, paths_->is_peer_gone(qpn));
  schedule(now, *qp);
  settle_broken_queues(now);
}

// The device puts it into ERR.
void Nic::fail(Qp& qp, AsyncEventType event) {
  if (qp.path == Path::Local) return qp.local->transport.fail(event);
  qp.transport.fail(event);
  leave_undecided(qp);
}

void Nic::leave_undecided(Qp& qp) {
  if (qp.path != Path::Undecided) return;
  qp.path = Path::Roce;
  qp.local.reset();
  paths_->leave(qp.qpn(), false);
}

// Before it stops: what came is acknowledged, as it was when it came by packets.
void Nic::say_owed(Instant now, Qp& qp) {
  if (qp.local == nullptr || !qp.local->link) return;
  constexpr int kMostTurns = 5;
  for (int i = 0; i < kMostTurns && qp.local->transport.handle_records(now); ++i) continue;
  qp.local->transport.make_owed_due();
  if (!qp.local->transport.emit(now)) return;
  append(kToWake, qp);
  wake_peers();
}

// Lets go of the shared memory. The transport stays, for what is posted in ERR.
void Nic::let_go(Qp& qp) {
  if (qp.local == nullptr || !qp.local->link) return;
  take_back_all(qp);
  qp.reaches_peer.store(false, std::memory_order_relaxed);
  qp.on_rings.store(false, std::memory_order_relaxed);
  qp.local->transport.detach();
  qp.local->link.reset();
  --attached_;
  for (const ListKind kind : {kWatched, kLocalReady, kToWake}) remove(kind, qp);
  if (put_off_ == &qp) put_off_ = nullptr;
}

void Nic::leave_path(Qp& qp, bool destroyed) {
  let_go(qp);
  qp.path = Path::Roce;
  qp.local.reset();
  if (paths_ != nullptr) paths_->leave(qp.qpn(), destroyed);
}

// Without them it would sleep, or its peer would.
template <class F>
void Nic::touch_words(Qp& qp, F&& touch) {
  if (fault_guard::run(touch)) return;
  ++counters_.memory_faults;
  qp.local->transport.fail(AsyncEventType::QpFatal);
  let_go(qp);
  paths_->leave(qp.qpn(), false);
}

// schedule() of a queue pair that does not go by packets.
void Nic::schedule_local(Instant now, Qp& qp) {
  Qp::Local& local = *qp.local;
  if (qp.path == Path::Local && local.link && local.transport.rests()) {  // mostly
    if (const Instant at = deadline_of(qp); at > now) return look_again(qp, at);
  }
  if (qp.path == Path::Undecided) {
    const QueuePairAttributes& a = qp.attributes();
    // What waits for the peer's word counts as sent.
    if (local.waits_until.is_never() && a.timeout != 0 && qp.state() == QueuePairState::Rts &&
        qp.send_queue().posted() != qp.send_queue().retired())
      local.waits_until = now + core::ack_timeout(a.timeout) * (a.retry_count + 1);
    return look_again(qp, local.waits_until);
  }
  if (!local.link) return;
  if (qp.state() == QueuePairState::Error) take_back_all(qp);
  if (local.transport.finished()) {
    let_go(qp);
    paths_->leave(qp.qpn(), false);
    return;
  }
  if (local.transport.ready(now)) append(kLocalReady, qp);
  if (local.transport.lost_peer() && local.ends_at.is_never()) local.ends_at = now + kLongestFarewell;
  const Instant at = deadline_of(qp);
  if (at > now) return look_again(qp, at);
  // What is due leaves with what is ready; or it waits for room, of which the peer tells.
  if (!qp.hooks[kLocalReady].linked) look_again(qp, now + kLongestWaitForRoom);
}

void Nic::handle_local_timeout(Instant now, Qp& qp) {
  if (qp.path == Path::Local) {
    // One that has let go of its peer before has nobody to ask about.
    if (qp.local->link && now >= qp.local->ends_at) {
      qp.local->ends_at = Instant::never();
      qp.local->transport.handle_hang_up(now, paths_->is_peer_gone(qp.qpn()));
    }
    return qp.local->transport.handle_timeout(now);
  }
  if (qp.local->waits_until > now) return;
  if (qp.state() != QueuePairState::Rts) {  // from there on it waits anew
    qp.local->waits_until = Instant::never();
    return;
  }
  ++counters_.retry_exceeded_err;
  qp.complete_oldest_send(CompletionStatus::RetryExceeded, 0);
  qp.enter_error(std::nullopt);
  leave_undecided(qp);
}

// ---- Memory that peers reach by themselves.

std::optional<verbena::local::Grant> Nic::grant(Qpn qpn, RKey rkey) {
  Qp* const qp = find(qpn);
  core::MemoryRegion* const region = memory_.remote_region(rkey);
  if (qp == nullptr || qp->local == nullptr || region == nullptr) return std::nullopt;
  auto granted = qp->local->transport.grant(*region, region->file >= 0);
  if (granted) region->lent = true;
  return granted;
}

void Nic::take_back(Qpn qpn, RKey rkey) {
  if (Qp* const qp = find(qpn)) take_back(*qp, rkey);
}

bool Nic::handle_region(Qpn qpn, const verbena::local::PeerRegion& region, bool open) {
  Qp* const qp = find(qpn);
  if (qp == nullptr || qp->local == nullptr || !qp->local->transport.handle_region(region, open)) return false;
  qp->reaches_peer.store(true, std::memory_order_relaxed);
  return true;
}

bool Nic::is_on_rings(const core::QueuePair& queues) {
  return static_cast<const Qp&>(queues).on_rings.load(std::memory_order_relaxed);
}

bool Nic::reaches_peer(const core::QueuePair& queues) {
  return static_cast<const Qp&>(queues).reaches_peer.load(std::memory_order_relaxed);
}

template <class Short>
bool Nic::do_now(core::QueuePair& queues, const Short& request) {
  Qp& qp = static_cast<Qp&>(queues);
  if (qp.local == nullptr || !qp.local->link) return false;
  const bool done = qp.local->transport.do_now(request);
  if (qp.state() == QueuePairState::Error) ring_doorbell(qp);
  return done;
}
template bool Nic::do_now(core::QueuePair& queues, const ShortWrite& request);
template bool Nic::do_now(core::QueuePair& queues, const ShortRead& request);

// From here on no copy begins there, once end_copies() has fenced.
void Nic::revoke(Qp& qp, RKey rkey, std::vector<Ending>& endings) {
  std::optional<std::uint32_t> slot;
  if (qp.local == nullptr || !fault_guard::run([&] { slot = qp.local->transport.revoke(rkey); }) || !slot) return;
  append(kToWake, qp);  // it lets go of the mapping
  endings.push_back({&qp, rkey, *slot});
}

// Leaves those of which a copy goes on that may never end. One fence is for all: it takes its time. Who hung up has
// left the memory, and what it stored there is there.
void Nic::end_copies(std::vector<Ending>& endings) {
  const auto there =
      std::ranges::find_if(endings, [](const Ending& ending) { return !ending.qp->local->hung_up; });
  if (there != endings.end()) there->qp->local->transport.fence_grants();
  std::erase_if(endings, [this](const Ending& ending) { return ends(ending); });
}

bool Nic::ends(const Ending& ending) {
  const auto& [qp, rkey, slot] = ending;
  const core::MemoryRegion* const region = memory_.remote_region(rkey);
  const auto copies = [this, &ending] { return still_copies(ending); };
  // What is read by a call may be read for ever: it does not count.
  const bool by_call = region == nullptr || region->file < 0;
  const bool copied = copies() && (by_call || !paths_->wait_for_copy(qp->qpn(), copies));
  static_cast<void>(fault_guard::run([&transport = qp->local->transport, slot = slot, copied] {
    copied ? transport.cut(slot) : transport.clear(slot);
  }));
  return !copied || by_call || !copies();
}

bool Nic::still_copies(const Ending& ending) {
  bool claimed = false;
  return fault_guard::run([&] { claimed = ending.qp->local->transport.is_claimed(ending.slot); }) && claimed;
}

// A peer that stands still in the middle of a copy, and goes on later, finds pages that nobody else has any more; or is
// waited for, where there are no others.
void Nic::take_back(std::vector<Ending> endings) {
  end_copies(endings);
  while (!endings.empty()) {
    const Ending one = endings.back();
    endings.pop_back();
    core::MemoryRegion* const region = memory_.remote_region(one.rkey);
    if (region == nullptr || !core::lets_change(region->access)) continue;
    std::vector<Ending> copying;
    for (const auto& [number, other] : qps_) revoke(*other, one.rkey, copying);
    end_copies(copying);
    copying.push_back(one);
    std::erase_if(endings, [&copying, &one](const Ending& ending) {
      if (ending.rkey == one.rkey) copying.push_back(ending);
      return ending.rkey == one.rkey;
    });
    const int file = std::exchange(region->file, -1);  // nobody gets it any more
    ++counters_.regions_renewed;
    if (paths_->renew_pages(*region, file)) continue;
    for (const Ending& ending : copying)
      while (!paths_->wait_for_copy(ending.qp->qpn(), [this, &ending] { return still_copies(ending); })) continue;
  }
}

void Nic::take_back(Qp& qp, RKey rkey) {
  std::vector<Ending> endings;
  revoke(qp, rkey, endings);
  take_back(std::move(endings));
}

void Nic::take_back_all(Qp& qp) {
  std::vector<Ending> endings;
  while (const auto rkey = qp.local == nullptr ? std::nullopt : qp.local->transport.any_granted())
    revoke(qp, *rkey, endings);
  take_back(std::move(endings));
}

void Nic::take_back_all(Qpn qpn) {
  if (Qp* const qp = find(qpn)) take_back_all(*qp);
}

void Nic::take_back_of_all(RKey rkey) {
  const core::MemoryRegion* const region = memory_.remote_region(rkey);
  if (region == nullptr || !region->lent) return;
  std::vector<Ending> endings;
  for (const auto& [number, qp] : qps_) revoke(*qp, rkey, endings);
  take_back(std::move(endings));
}

// What a peer has already said it has is done, though nobody has looked.
void Nic::take_back_named(Instant now, LKey lkey) {
  constexpr int kMostTurns = 16;
  for (const auto& [number, qp] : qps_) {
    if (qp->local == nullptr) continue;
    verbena::local::Transport& transport = qp->local->transport;
    for (int turn = 0; turn < kMostTurns && transport.names(lkey) && read_ring(now, *qp); ++turn) {
    }
    if (!transport.names(lkey)) continue;
    transport.take_back_named();
    schedule(now, *qp);
  }
  settle_broken_queues(now);
}

bool Nic::take_short(Instant now) {
  if (put_off_ != nullptr) return false;
  for (Qp* qp = lists_[kWatched].first; qp != nullptr; qp = qp->hooks[kWatched].next) {
    if (!qp->local->transport.take_short(now)) continue;
    put_off_ = qp;
    return true;
  }
  return false;
}

void Nic::catch_up(Instant now) {
  if (put_off_ == nullptr) return;
  Qp& qp = *std::exchange(put_off_, nullptr);
  qp.local->transport.catch_up(now);
  follow_ring(now, qp, true);
  settle_broken_queues(now);
}

bool Nic::handle_records(Instant now) {
  catch_up(now);
  bool any = false;
  for (Qp* qp = lists_[kWatched].first; qp != nullptr;) {
    Qp* const next = qp->hooks[kWatched].next;
    if (read_ring(now, *qp))
      any = true;
    else if (lists_[kWatched].count > kMostWatched && now - qp->local->used_at > kUsedLately)
      any = quieten(now, *qp) || any;
    qp = next;
  }
  if (any) settle_broken_queues(now);
  return any;
}

bool Nic::rings_look_empty() const {
  for (const Qp* qp = lists_[kWatched].first; qp != nullptr; qp = qp->hooks[kWatched].next)
    if (!qp->local->transport.looks_empty()) return false;
  return true;
}

bool Nic::read_ring(Instant now, Qp& qp) {
  const bool anything = qp.local->transport.handle_records(now);
  follow_ring(now, qp, anything);
  return anything;
}

void Nic::follow_ring(Instant now, Qp& qp, bool anything) {
  if (qp.local->transport.gave_room()) append(kToWake, qp);  // also by padding, in a turn that found nothing
  if (anything) watch(now, qp);
  if (anything || !qp.local->transport.idle()) schedule_local(now, qp);
}

void Nic::watch(Instant now, Qp& qp) {
  append(kWatched, qp);
  qp.local->used_at = now;
}

// What nobody looks at has nothing to wait for: no request of ours, no answer. Whether there was something after all.
bool Nic::quieten(Instant now, Qp& qp) {
  const verbena::local::Transport& transport = qp.local->transport;
  const bool waits = qp.send_queue().posted() != qp.send_queue().retired() || !transport.deadline().is_never();
  if (!qp.local->link || waits || !transport.idle()) return false;
  touch_words(qp, [&] { qp.local->link->sleeper.renew_unwatched(); });
  if (!qp.local->link) return false;
  if (read_ring(now, qp)) return true;
  if (qp.local->link && transport.idle()) remove(kWatched, qp);
  return false;
}

bool Nic::is_quiet(Qpn qpn) const {
  const Qp* const qp = find(qpn);
  return qp != nullptr && qp->local != nullptr && qp->local->link && !qp->hooks[kWatched].linked;
}

void Nic::handle_signal(Instant now, Qpn qpn, bool others_sleep) {
  Qp* const qp = find(qpn);
  if (qp == nullptr || qp->local == nullptr || !qp->local->link) return;
  touch_words(*qp, [&] { others_sleep ? qp->local->link->sleeper.renew() : qp->local->link->sleeper.withdraw(); });
  if (qp->local->link) watch(now, *qp);
}

bool Nic::emit_records(Instant now) {
  bool any = false;
  const Qp* const last = lists_[kLocalReady].last;
  for (bool more = last != nullptr; more;) {
    Qp* const qp = lists_[kLocalReady].first;
    remove(kLocalReady, *qp);
    more = qp != last;
    if (qp->local->transport.emit(now)) {
      any = true;
      append(kToWake, *qp);
    }
    if (qp->local->link) watch(now, *qp);
    schedule_local(now, *qp);
  }
  if (lists_[kToWake].first != nullptr) wake_peers();
  settle_broken_queues(now);  // also of what was copied directly
  return any;
}

bool Nic::may_leave_at_once(const Qp& qp) {
  return is_on_rings(qp) && !qp.hooks[kLocalReady].linked && !qp.hooks[kToWake].linked;
}

bool Nic::emit_post(core::QueuePair& queues) {
  Qp& qp = static_cast<Qp&>(queues);
  return may_leave_at_once(qp) && qp.local->transport.emit_short();
}

bool Nic::put_post(core::QueuePair& queues, const SendRequest& request) {
  Qp& qp = static_cast<Qp&>(queues);
  return may_leave_at_once(qp) && qp.local->transport.put_short(request);
}

void Nic::follow_post(Instant now, core::QueuePair& queues) {
  Qp& qp = static_cast<Qp&>(queues);
  qp.local->transport.follow_short(now);
  wake_peer(qp);
  if (qp.local->link) watch(now, qp);
  schedule_local(now, qp);
}

void Nic::wake_peers() {
  while (Qp* const qp = lists_[kToWake].first) {
    remove(kToWake, *qp);
    wake_peer(*qp);
  }
}

void Nic::wake_peer(Qp& qp) {
  bool asleep = false;
  touch_words(qp, [&] { asleep = qp.local->link->waker.must_wake(); });
  if (asleep) paths_->wake_peer(qp.qpn(), qp.local->link->waker.is_unwatched());
}

void Nic::announce_sleep() {
  for (Qp* qp = lists_[kWatched].first; qp != nullptr;) {
    Qp* const next = qp->hooks[kWatched].next;
    touch_words(*qp, [&] { qp->local->link->sleeper.announce(); });
    qp = next;
  }
}

void Nic::withdraw_sleep() {
  for (Qp* qp = lists_[kWatched].first; qp != nullptr;) {
    Qp* const next = qp->hooks[kWatched].next;
    touch_words(*qp, [&] { qp->local->link->sleeper.withdraw(); });
    qp = next;
  }
}

}  // namespace verbena::soft
