// SPDX-License-Identifier: Apache-2.0
// Signals, and the bells that take their place between those who sleep often.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utility>

#include "soft/driver/local/hub.h"

namespace verbena::soft::local {

namespace {
constexpr unsigned kSignalsBeforeBell = 16;  // of who is woken now and then a descriptor less is worth more
constexpr double kMostForBells = 0.5;        // of the descriptors that the process may have
}  // namespace

void Hub::hear_signal(Instant now, Id id, bool take) {
  Socket& socket = sockets_.at(id);
  const bool quiet = nic_->is_quiet(socket.qpn);
  if (!take && !quiet) return;
  if (socket.peer.take_signal() && exceeds(socket.peer.bell(), kMostForBells)) socket.peer.drop_bell();
  if (take && !quiet && !socket.bell && ++socket.signals % kSignalsBeforeBell == 0) give_bell(socket);
  nic_->handle_signal(now, socket.qpn, !take);  // last: it may drop the socket
}

// Watched before the peer has it: a ring that nobody heard would be the last.
void Hub::give_bell(Socket& socket) {
  if (sets_.empty() || !socket.peer.may_stop_us()) return;
  Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell || exceeds(bell.get(), kMostForBells)) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u32 = bell_data_;
  bool given = true;
  for (const int set : sets_) given = given && ::epoll_ctl(set, EPOLL_CTL_ADD, bell.get(), &event) == 0;
  given = given && socket.peer.send_bell(bell.get());
  given ? std::swap(socket.bell, bell) : silence(bell);
}

void Hub::silence(const Descriptor& bell) {
  for (const int set : sets_) ::epoll_ctl(set, EPOLL_CTL_DEL, bell.get(), nullptr);
}

}  // namespace verbena::soft::local
