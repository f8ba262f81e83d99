// SPDX-License-Identifier: Apache-2.0
// The error queue of the sending sockets: ICMP errors with the address they are about.
// clang-format off
#include <ctime>  // linux/errqueue.h needs timespec and does not say so
// clang-format on

#include <linux/errqueue.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "soft/driver/udp/sender.h"

namespace verbena::soft::udp {
namespace {

constexpr unsigned kReadAtOnce = 64;

bool find_report(msghdr& header, sock_extended_err& report) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    const bool ours = (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_RECVERR) ||
                      (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_RECVERR);
    if (!ours) continue;
    std::memcpy(&report, CMSG_DATA(item), sizeof report);
    return true;
  }
  return false;
}

}  // namespace

unsigned Sender::read_errors(SocketCounters& counters) {
  unsigned count = 0;
  for (std::size_t source = 0; source < sockets_.size(); ++source) count += read_errors_of(source, counters);
  return count;
}

unsigned Sender::read_errors_of(std::size_t source, SocketCounters& counters) {
  const std::optional<ConnectedSocket>& connected = habits_[source].socket;
  return read_queue(fd(source), counters) + (connected ? read_queue(connected->fd(), counters) : 0);
}

// Counts what the network reported; the kernel's own remarks only leave their MTU.
unsigned Sender::read_queue(int fd, SocketCounters& counters) {
  unsigned count = 0;
  for (unsigned i = 0; i < kReadAtOnce; ++i) {
    SocketAddress peer;
    alignas(std::max_align_t) std::array<std::byte, 256> control;
    msghdr header{};
    header.msg_name = &peer.any;
    header.msg_namelen = peer.size;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    if (::recvmsg(fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    sock_extended_err report{};
    if (!find_report(header, report)) continue;
    const int error = static_cast<int>(report.ee_errno);
    if (report.ee_origin == SO_EE_ORIGIN_LOCAL && error == EMSGSIZE) local_mtu_hint_ = report.ee_info;
    if (report.ee_origin != SO_EE_ORIGIN_ICMP && report.ee_origin != SO_EE_ORIGIN_ICMP6) continue;
    SendError found;
    found.peer = peer.gid();
    found.error = error;
    if (error == EMSGSIZE) found.mtu = report.ee_info;
    found.from_network = true;
    record(found, counters);
    ++count;
  }
  return count;
}

// Equal errors of one peer are kept once, so that one dead peer does not crowd out the others.
void Sender::record(const SendError& error, SocketCounters& counters) {
  ++counters.send_errors;
  for (std::size_t i = 0; i < errors_count_; ++i) {
    SendError& kept = errors_[(errors_first_ + i) % kErrorsKept];
    if (kept.peer != error.peer || kept.error != error.error) continue;
    kept = error;
    return;
  }
  if (errors_count_ == kErrorsKept) {
    ++counters.errors_lost;
    return;
  }
  errors_[(errors_first_ + errors_count_++) % kErrorsKept] = error;
}

std::optional<SendError> Sender::poll_error() {
  if (errors_count_ == 0) return std::nullopt;
  const SendError oldest = errors_[errors_first_];
  errors_first_ = (errors_first_ + 1) % kErrorsKept;
  --errors_count_;
  return oldest;
}

}  // namespace verbena::soft::udp
