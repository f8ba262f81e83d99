// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/companions.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace verbena::soft::udp {

void Companions::watch(pid_t process) {
  if (process <= 0 || process == ::getpid() || watched_.contains(process) || watched_.size() >= kMost) return;
  // Close-on-exec by itself.
  Descriptor end(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!end) return;
  epoll_event event{EPOLLIN, {}};
  event.data.fd = end.get();
  if (::epoll_ctl(events_, EPOLL_CTL_ADD, end.get(), &event) == 0) watched_.emplace(process, std::move(end));
}

// A child forked here keeps the descriptor, and with it its place in the epoll descriptor.
bool Companions::take_end(int descriptor) {
  ::epoll_ctl(events_, EPOLL_CTL_DEL, descriptor, nullptr);
  return std::erase_if(watched_, [descriptor](const auto& one) { return one.second.get() == descriptor; }) != 0;
}

}  // namespace verbena::soft::udp
