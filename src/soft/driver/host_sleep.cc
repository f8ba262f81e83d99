// SPDX-License-Identifier: Apache-2.0
// How who waits for a device sleeps, and the thread that serves it while nobody does.
#include <poll.h>

#include <algorithm>
#include <array>

#include "soft/driver/host_device.h"
#include "soft/driver/sleep.h"

namespace verbena::soft {

using namespace sleeping;

namespace {
constexpr Duration kLongestServicePause = Duration::milliseconds(1);
constexpr Duration kBlindSleep = Duration::milliseconds(1);
}

HostDevice::Awakening HostDevice::sleep_on_port(Instant until, Sleeper& sleeper) {
  sleeper.until.store(until.ns);
  // What became due before that store woke nobody: look once more.
  Instant wake_at = look_before_sleep(until, sleeper);
  if (nic_.doorbell_rang()) wake_at = Instant{0};
  sleeper.until.store(wake_at.ns);
  std::optional<Duration> wait;
  const bool by_alarm = &sleeper == &waiter_ && leave_to_alarm(wake_at);
  if (!by_alarm && !wake_at.is_never()) wait = wake_at - now();
  if (wait && wait->ns <= 0) {
    sleeper.until.store(0);
    return {};
  }
  if (inherited_) return sleep_in_child(sleeper, wait);
  std::array<epoll_event, 8> events;
  const int count = wait_on(sleeper.set_fd, events, wait);
  sleeper.until.store(0);
  const auto came_by = [&events, count](Source source) {
    return std::any_of(events.begin(), events.begin() + std::max(count, 0),
                       [source](const epoll_event& event) { return event.data.u32 == source; });
  };
  give_alarm_back(by_alarm, came_by(kTimer));
  if (came_by(kWake) && !stopping_.load()) drain(sleeper.wake_fd);
  const bool may_be_more = count == static_cast<int>(events.size()) || !sleeper.watches_port.load();
  return {true, came_by(kHub), came_by(kPort) || may_be_more};
}

// A sleep that ends at a time costs half a microsecond more than one that does not. So one of those that wait takes the
// alarm, and sets it anew only for an earlier time: it may go off for a time that is not the present one's.
bool HostDevice::leave_to_alarm(Instant wake_at) {
  if (inherited_ || wake_at == Instant{0} || alarm_taken_.exchange(true)) return false;
  if (wake_at.ns < alarm_at_.load()) {
    alarm_at_.store(wake_at.ns);
    fire_at(alarm_fd_, wake_at);
  }
  return true;
}

// One that goes off while nobody has it is left of an earlier wait. Who hears another's lets it go off once more.
void HostDevice::give_alarm_back(bool taken, bool rang) {
  if (!taken && !rang) return;
  if (!taken && alarm_taken_.exchange(true)) return fire_at(alarm_fd_, Instant{1});
  if (rang) alarm_at_.store(Instant::never().ns);
  alarm_taken_.store(false);
}

// Its sets are the parent's: there nothing comes but a wake().
HostDevice::Awakening HostDevice::sleep_in_child(Sleeper& sleeper, std::optional<Duration> wait) const {
  std::array<pollfd, 2> own{pollfd{event_fd_, POLLIN, 0}, pollfd{sleeper.wake_fd, POLLIN, 0}};
  const timespec timeout = timespec_of(wait.value_or(Duration{}));
  ::ppoll(own.data(), own.size(), wait ? &timeout : nullptr, nullptr);
  sleeper.until.store(0);
  if (own[1].revents != 0) drain(sleeper.wake_fd);
  return {};
}

// When to wake up at the latest. From the announcement on peers signal what they write into rings; what they wrote
// before is seen here. What is there already needs none: the peer would signal its next for nothing.
Instant HostDevice::look_before_sleep(Instant until, Sleeper& sleeper) {
  owner_.lock();
  if (!watch_port(sleeper)) until = std::min(until, now() + kBlindSleep);
  begin_turn();
  rest_waits_ = false;  // this is all of it, but for packets
  const auto look = [this] {
    const bool came = nic_.handle_records(turn_);
    return nic_.emit_records(turn_) || came;
  };
  bool any = !nic_.rings_look_empty() && look();
  if (!any) {
    nic_.announce_sleep();
    any = look();
  }
  const bool waits = &sleeper == &waiter_;
  waiter_drives_ = waits;
  collect_events();
  waiter_drives_ = false;
  any = any || (waits && event_pending_.load(std::memory_order_relaxed));
  if (waits && any) next_look_ = Look::Later;
  const bool hung_up = hub_ && hub_->any_hung_up();  // which the other sleeper was told of, and told nobody
  const bool at_once = any || hung_up || nic_.transmit_waits() || nic_.packets_wait();
  if (!at_once && capture_) capture_->flush();
  const Instant wake_at = at_once ? Instant{0} : std::min(until, nic_.settle_deadlines());
  owner_.unlock();
  return wake_at;
}

// False when the system refuses. What came before is found by the sleep.
bool HostDevice::watch_port(Sleeper& sleeper) {
  finds_since_sleep_ = 0;
  if (inherited_ || sleeper.watches_port.load()) return true;
  for (const int fd : port_->fds())
    if (!try_watch(sleeper.set_fd, fd, kPort) && errno != EEXIST) return false;
  sleeper.watches_port.store(true);
  return true;
}

// A packet tells every set that watches for it, which takes its sender half a microsecond and more, though all look
// without being told. Who is between the look before its sleep and the end of it keeps its watch.
void HostDevice::unwatch_port() {
  const auto leave = [this](Sleeper& sleeper) {
    if (!sleeper.watches_port.exchange(false)) return;
    for (const int fd : port_->fds()) ::epoll_ctl(sleeper.set_fd, EPOLL_CTL_DEL, fd, nullptr);
  };
  if (waiting_.load() == 0) leave(waiter_);
  if (service_sleeper_.until.load() == 0) leave(service_sleeper_);
}

// Who woke up by a signal took it, and drives next or sees to it that another does. Where a sleep ended without
// packets, everything has been looked at.
void HostDevice::look_after_sleep(const Awakening& awakening) {
  if (awakening.signalled || hub_->has_chores()) hub_->handle_events(turn_, true);
  if (!awakening.packets) looked_at_ = turn_;
  nic_.withdraw_sleep();
}

// Who sleeps on is announced no more: it looks again.
void HostDevice::wake_others(const Sleeper& mine) {
  for (const Sleeper* other : {&waiter_, &service_sleeper_})
    if (other != &mine && other->until.load() != 0) signal(other->wake_fd);
}

// Drives once, then lets the world go on until somebody has something to do.
void HostDevice::wait_virtually(Instant until) {
  owner_.lock();
  begin_turn();
  const bool any = drive(When::Serving, Look::Everywhere);
  const Instant next = nic_.next_deadline();
  release();
  if (drive_while_rung() || any || has_event() || woken_.exchange(false)) return;
  time_->wait(std::min(until, next));
}

// Behind a sleep, or instead of one. True when anything happened.
bool HostDevice::drive_waiting(const Awakening& awakening) {
  const bool slept = awakening.slept && hub_;
  step_aside();
  owner_.lock();
  begin_turn();
  if (slept) look_after_sleep(awakening);
  waiter_drives_ = true;
  const Look look = rest_waits_ ? Look::Once : Look::ForOne;  // one for one: then there are many
  const bool any = drive(When::Serving, awakening.packets ? Look::Everywhere : look);
  waiter_drives_ = false;
  next_look_ = any ? Look::Later : Look::Once;
  release();
  if (slept) wake_others(waiter_);
  drive_while_rung();
  return any;
}

void HostDevice::wait_event(Instant until) {
  if (time_ != nullptr) return wait_virtually(until);
  waiting_.fetch_add(1);
  // The look before a sleep is the first there is, where there is time for one.
  const auto is_over = [this, until] { return !until.is_never() && now() >= until; };
  bool sleeps = !is_over();
  Awakening awakening{false, false, true};
  while (!has_event() && !(woken_.load() && woken_.exchange(false))) {
    if (sleeps) {
      awakening = sleep_on_port(until, waiter_);
      if (!awakening.slept && has_event()) break;
    }
    sleeps = !drive_waiting(std::exchange(awakening, {})) && !event_pending_.load(std::memory_order_relaxed);
    if (sleeps && is_over()) break;
  }
  drive_while_rung();  // what rang in the look before a sleep that was none
  if (woken_.load() || event_fd_signalled_.load()) {
    const std::lock_guard guard(event_mutex_);
    woken_.store(false);
    if (pending_events_.empty()) quiet_event_fd();
  }
  // The service thread takes over, but not at once: whoever waits once will wait again.
  if (waiting_.fetch_sub(1) > 1)
    signal(waiter_.wake_fd);
  else if (service_parked_.exchange(false))
    fire_after(park_fd_, kLongestServicePause);
  else if (hub_ && service_sleeper_.until.load() != 0)
    signal(service_sleeper_.wake_fd);  // nobody has announced its sleep since we woke up
}

// By the descriptor that only the waiting side empties: whoever drives empties his sleeper's before he looks.
void HostDevice::wake() {
  woken_.store(true);
  signal_event_fd();
}

// Whoever empties it between the two finds nothing there next time. Who comes before both finds it later.
void HostDevice::signal_event_fd() {
  signal(event_fd_);
  event_fd_signalled_.store(true);
}

// A wake() that comes between is not lost: it set its flag first.
void HostDevice::quiet_event_fd() {
  events_signalled_ = false;
  if (!event_fd_signalled_.load() || !event_fd_signalled_.exchange(false)) return;
  drain(event_fd_);
  if (woken_.load()) signal_event_fd();
}

void HostDevice::park_service() {
  service_parked_.store(true);
  pollfd timer{park_fd_, POLLIN, 0};
  if (waiting_.load() != 0) ::ppoll(&timer, 1, nullptr, nullptr);
  service_parked_.store(false);
  if (!stopping_.load()) drain(park_fd_);
}

// Somebody polls. Who does so without a gap puts off the end of the pause, by a timer set anew now and then: a thread
// that woke up to look would take the processor from it each time.
void HostDevice::pause_service() {
  pause_ns_.store(kLease.ns, std::memory_order_relaxed);
  put_off_at_.store(now().ns + kLease.ns / 2, std::memory_order_release);
  fire_after(park_fd_, kLease);
  pollfd timer{park_fd_, POLLIN, 0};
  ::ppoll(&timer, 1, nullptr, nullptr);
  put_off_at_.store(kNotPaused, std::memory_order_relaxed);
  if (!stopping_.load()) drain(park_fd_);
}

// The longer it goes on the less often.
void HostDevice::put_off_service() {
  const std::int64_t pause_ns = std::min(2 * pause_ns_.load(std::memory_order_relaxed), kLongestServicePause.ns);
  pause_ns_.store(pause_ns, std::memory_order_relaxed);
  put_off_at_.store(turn_.ns + pause_ns / 2, std::memory_order_relaxed);
  if (!stopping_.load()) fire_after(park_fd_, Duration{pause_ns});
}

// Runs on the service thread.
void HostDevice::serve() {
  while (!stopping_.load()) {
    if (waiting_.load() != 0) {
      park_service();
      continue;
    }
    if (lease_until_.load(std::memory_order_relaxed) > now().ns) {
      pause_service();
      continue;
    }
    step_aside();
    owner_.lock();
    begin_turn();
    const bool any = drive(When::Serving, Look::Everywhere);
    release();
    drive_while_rung();
    if (any) continue;
    const Awakening awakening = sleep_on_port(Instant::never(), service_sleeper_);
    if (!awakening.slept || !hub_) continue;
    owner_.lock();
    begin_turn();
    look_after_sleep(awakening);
    release();
    wake_others(service_sleeper_);
  }
}

}  // namespace verbena::soft
