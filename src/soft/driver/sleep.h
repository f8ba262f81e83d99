// SPDX-License-Identifier: Apache-2.0
// What threads sleep on and are woken by: counters, a timer, and sets of those.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>

#include "base/system_call.h"
#include "verbena/base/time.h"

namespace verbena::soft::sleeping {

// Nothing happens by a descriptor of -1: a device in virtual time has none.
inline void signal(int fd) {
  if (fd < 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = system_call(SYS_write, ::write, fd, &one, sizeof one);
}
inline void drain(int fd) {
  if (fd < 0) return;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t n = system_call(SYS_read, ::read, fd, &count, sizeof count);
}

// Of what a sleeper sleeps on.
enum Source : std::uint32_t { kWake, kEvent, kTimer, kHub, kBell, kPort };

// False with errno. An edge is told to one of those that sleep on the set, once; and what is there, to all until it is
// taken.
inline bool try_watch(int set_fd, int fd, Source source, bool edges = false) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (edges) event.events |= EPOLLET;
  event.data.u32 = source;
  return ::epoll_ctl(set_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

inline timespec timespec_of(Duration d) {
  return {static_cast<time_t>(d.ns / 1'000'000'000), static_cast<long>(d.ns % 1'000'000'000)};
}

// Some architectures have no call without a timeout's signal mask.
inline int wait_for_ever(int set_fd, epoll_event* events, int most) {
#ifdef SYS_epoll_wait
  return system_call(SYS_epoll_wait, ::epoll_wait, set_fd, events, most, -1);
#else
  return ::epoll_wait(set_fd, events, most, -1);
#endif
}

// Until something is readable; `wait` says for how long at most. How many are.
inline int wait_on(int set_fd, std::span<epoll_event> events, std::optional<Duration> wait) {
  const int most = static_cast<int>(events.size());
  if (!wait) return wait_for_ever(set_fd, events.data(), most);
  const timespec timeout = timespec_of(*wait);
  const int count = ::epoll_pwait2(set_fd, events.data(), most, &timeout, nullptr);
  if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
  pollfd set{set_fd, POLLIN, 0};  // a kernel before 5.11, or a filter that does not know the call
  return ::ppoll(&set, 1, &timeout, nullptr) <= 0 ? 0 : ::epoll_wait(set_fd, events.data(), most, 0);
}

// On the clock of monotonic_now().
inline void fire_at(int timer_fd, Instant when) {
  const itimerspec spec{{0, 0}, timespec_of(when - Instant{0})};
  ::timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &spec, nullptr);
}
inline void fire_after(int timer_fd, Duration delay) {
  const itimerspec spec{{0, 0}, timespec_of(delay)};
  ::timerfd_settime(timer_fd, 0, &spec, nullptr);
}

}  // namespace verbena::soft::sleeping
