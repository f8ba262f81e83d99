// SPDX-License-Identifier: Apache-2.0
// How an engine waits.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "async/engine_state.h"
#include "base/holdings.h"

namespace verbena {

namespace {

constexpr std::uint32_t kRunsPerGlance = 16;
constexpr Duration kBlindSleep = Duration::milliseconds(1);  // of several devices, one of which tells nobody anything

void drain_counter(int fd) {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(fd, &count, sizeof count);
}

Result<void> watch(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) return Error::from_errno(errno, "epoll_ctl");
  return {};
}

}  // namespace

Result<void> EngineState::open_descriptors() {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (epoll_fd_ < 0 || wake_fd_ < 0 || timer_fd_ < 0)
    return Error::from_errno(errno, "descriptors of an engine");
  for (const int fd : {epoll_fd_, wake_fd_, timer_fd_}) holdings::keep_from_children(fd);
  generation_ = holdings::generation();
  return watch(epoll_fd_, wake_fd_).and_then([this] { return watch(epoll_fd_, timer_fd_); });
}

Result<void> EngineState::add(Device& device) {
  const int device_fd = device.event_fd();
  if (!devices_.empty() && (device_fd < 0 || is_virtual()))
    return Error(ErrorCode::NotSupported,
                 "attach " + device.info().name + ": a device in virtual time stands alone");
  if (device.state().has_engine.exchange(true))
    return Error(ErrorCode::Busy, "attach " + device.info().name + " at " + device.address().to_string() +
                                      ": it has an engine already");
  devices_.push_back(std::make_unique<AttachedDevice>(device));
  Result<void> ok;
  if (device_fd >= 0 && epoll_fd_ < 0) ok = open_descriptors();
  if (ok && device_fd >= 0) ok = watch(epoll_fd_, device_fd);
  if (!ok) {
    devices_.pop_back();
    return ok;
  }
  if (devices_.size() == 1) first_context_ = &devices_.front()->context();
  if (!devices_.back()->context().serves_itself()) has_unserved_ = true;
  return {};
}

// The flag before the counter: who empties that and then takes the flag leaves neither, and misses nothing.
void EngineState::wake() {
  woken_.store(true);
  const std::uint64_t one = 1;
  if (wake_fd_ >= 0) {
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
  }
  if (sleeps_in_device_.load()) first_context_->wake();
}

// Asks every queue for an event at its next completion, then looks whether one came before.
bool EngineState::look_ahead() {
  if (!failing_.empty() || !tend_soon_.empty() || has_ready() || batch_next_ < batch_end_) return true;
  for (const auto& device : devices_) {
    for (const auto& shard : device->shards()) {
      shard->ops->arm(false);
      batch_next_ = 0;
      batch_end_ = shard->ops->poll(batch_);
      if (batch_end_ != 0) return true;
    }
  }
  return false;
}

// The deadline holds also where every run finds something: the clock is read after some of those only.
bool EngineState::run_or_wait(Instant deadline, std::optional<Duration> looks) {
  const bool found = run_once();
  if (found && (deadline.is_never() || ++runs_ % kRunsPerGlance != 0)) return true;
  if (deadline.is_never() && !looks) {
    wait(deadline);
    return true;
  }
  const Instant current = now();
  if (current >= deadline) return false;
  if (!found) wait(looks ? std::min(deadline, current + *looks) : deadline);
  return true;
}

void EngineState::wait(Instant until) {
  if (woken_.load() && woken_.exchange(false)) {
    if (wake_fd_ >= 0) drain_counter(wake_fd_);
    return;
  }
  if (options_.wait == WaitMode::Busy && !is_virtual()) return;
  const Instant current = now();
  if (active_) {
    active_ = false;
    last_activity_ = current;
  }
  if (options_.wait == WaitMode::Adaptive && !is_virtual() && current < last_activity_ + options_.spin)
    return;
  if (look_ahead()) return;
  sleep(std::min(until, next_due()));
}

void EngineState::sleep(Instant until) {
  if (devices_.size() == 1) {
    sleeps_in_device_.store(true);  // either wake() sees this, or we see that it was called
    if (!woken_.load()) first().context().wait_event(until);
    waited_in_device_ = true;
    return sleeps_in_device_.store(false);
  }
  if (waited_in_device_) return;
  if (has_unserved_) until = std::min(until, now() + kBlindSleep);
  if (generation_ != holdings::generation()) return sleep_in_child(until);
  arm_timer(until);
  epoll_event event;
  ::epoll_wait(epoll_fd_, &event, 1, -1);
  drain_counter(timer_fd_);
  drain_counter(wake_fd_);
}

// What it would sleep on is the parent's: there nothing comes but a wake().
void EngineState::sleep_in_child(Instant until) {
  pollfd woken{wake_fd_, POLLIN, 0};
  const std::int64_t ns = std::max<std::int64_t>((until - now()).ns, 0);
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(&woken, 1, until.is_never() ? nullptr : &timeout, nullptr);
  drain_counter(wake_fd_);
}

void EngineState::arm_timer(Instant until) {
  itimerspec when{};
  if (!until.is_never()) {
    const Instant begun = now();
    const std::int64_t ns = until <= begun ? 1 : (until - begun).ns;
    when.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    when.it_value.tv_nsec = ns % 1'000'000'000;
  }
  ::timerfd_settime(timer_fd_, 0, &when, nullptr);
}

bool EngineState::prepare_wait() {
  outside_ = Outside::Elsewhere;
  if (fd() < 0) return false;
  drain_counter(wake_fd_);
  if (woken_.exchange(false)) return false;
  if (waited_in_device_ || look_ahead()) return false;
  drain_counter(timer_fd_);
  arm_timer(next_due());
  outside_ = Outside::Waits;
  return true;
}

}  // namespace verbena
