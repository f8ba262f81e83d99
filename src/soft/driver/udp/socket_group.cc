// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/socket_group.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/socket_options.h"
#include "soft/driver/udp/steering.h"

namespace verbena::soft::udp {
namespace {

// Not bound yet.
Result<std::vector<Descriptor>> make_others(const LocalAddress& local) {
  std::vector<Descriptor> all;
  for (unsigned place = 1; place <= kLobby; ++place) {
    auto socket = make_udp_socket(local.gid);
    if (!socket) return std::move(socket).error();
    set_option(socket->get(), SOL_SOCKET, SO_REUSEPORT, 1);
    // The kernel asks any of the group whether datagrams may be joined.
    set_option(socket->get(), IPPROTO_UDP, UDP_GRO, 1);
    // Peers may send UDP checksum 0; see configure_receiver.
    if (!local.gid.is_ipv4()) set_option(socket->get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
    all.push_back(std::move(*socket));
  }
  return all;
}

// A socket of ours that was there until just now may be held for a moment more, by a child that begins another program.
int bind_patiently(int fd, const LocalAddress& local) {
  constexpr int kBindTries = 50;
  int error = bind_to(fd, local, wire::kRocePort);
  for (int i = 0; i < kBindTries && error == EADDRINUSE; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    error = bind_to(fd, local, wire::kRocePort);
  }
  return error;
}

}  // namespace

void wait_for_decided_datagrams() { ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0); }

Result<Descriptor> bind_alone(const LocalAddress& local) {
  auto socket = make_udp_socket(local.gid);
  if (!socket) return socket;
  const int error = bind_to(socket->get(), local, wire::kRocePort);
  if (error == EADDRINUSE) return Error::from_errno(error, "bind " + to_string(local.gid, wire::kRocePort));
  if (error != 0) return bind_error(local.gid, wire::kRocePort, error);
  return socket;
}

int attach_filter(int fd, std::span<const sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0 ? 0 : errno;
}

// A socket is in the group from its bind on, at the next index, and the kernel takes a filter only for what is a group:
// between the second bind and the filter it deals datagrams out to both. What can be refused is asked for before.
Result<std::vector<Descriptor>> join_others(int first, const LocalAddress& local,
                                            const std::function<void(const ReceivedTrain&)>& stray) {
  constexpr std::array<sock_filter, 1> kAllToFirst{{BPF_STMT(BPF_RET | BPF_K, 0)}};
  auto others = make_others(local);
  if (!others) return others;
  Descriptor second(::fcntl(others->front().get(), F_DUPFD_CLOEXEC, 0));
  if (!second) return Error::from_errno(errno, "duplicate a socket that shares the address");
  Receiver strays(std::move(second), local.gid, wire::kRocePort, 1);
  set_option(first, SOL_SOCKET, SO_REUSEPORT, 1);
  int error = 0;
  for (std::size_t i = 0; i < others->size() && error == 0; ++i) {
    error = bind_patiently((*others)[i].get(), local);
    if (i != 0 || error != 0) continue;
    error = attach_filter(first, kAllToFirst);
    strays.hand_on_all(stray);
  }
  wait_for_decided_datagrams();
  strays.hand_on_all(stray);
  if (error != 0) {
    set_option(first, SOL_SOCKET, SO_REUSEPORT, 0);
    return Error::from_errno(error, "share " + to_string(local.gid, wire::kRocePort));
  }
  // Nobody reads those of the slots yet.
  for (std::size_t i = 0; i + 1 < others->size(); ++i) set_option((*others)[i].get(), SOL_SOCKET, SO_RCVBUF, 0);
  return others;
}

}  // namespace verbena::soft::udp
