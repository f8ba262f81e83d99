// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sockets.h"

#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "soft/driver/udp/crypto_random.h"
#include "soft/driver/udp/sending_socket.h"

namespace verbena::soft::udp {
namespace {

// The socket may have served another process before.
Result<void> configure_receiver(int fd, const Gid& address, const SocketOptions& options) {
  set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(options.receive_buffer_bytes));
  set_option(fd, IPPROTO_UDP, UDP_GRO, options.coalescing ? 1 : 0);
  set_option(fd, SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(options.busy_poll_us));
  // Peers send UDP checksum 0 (the kernel's Soft-RoCE does); the ICRC covers what it would.
  if (!address.is_ipv4() && !set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1))
    return Error::from_errno(errno, "set socket option UDP_NO_CHECK6_RX");
  return {};
}

unsigned granted_receive_buffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0) return 0;
  return static_cast<unsigned>(bytes);
}

}  // namespace

Result<SocketSet> SocketSet::open(const LocalAddress& local, Descriptor receiving, const SocketOptions& options,
                                  int peer_fd) {
  if (options.sending_sockets < 1 || options.sending_sockets > 64)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: sending_sockets must be 1 to 64");
  if (options.receive_slots < 1 || options.receive_slots > 1'024)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: receive_slots must be 1 to 1024");
  if (auto configured = configure_receiver(receiving.get(), local.gid, options); !configured)
    return std::move(configured).error();
  if (peer_fd >= 0) {
    SocketOptions singly = options;  // see Receiver::read_of_peer
    singly.coalescing = false;
    if (auto configured = configure_receiver(peer_fd, local.gid, singly); !configured)
      return std::move(configured).error();
  }
  CryptoRandom random;
  std::vector<Descriptor> senders;
  std::vector<std::uint16_t> ports;
  for (unsigned i = 0; i < options.sending_sockets; ++i) {
    std::uint16_t port = 0;
    auto sender = bind_sending_socket(local, options, random, port);
    if (!sender) return std::move(sender).error();
    senders.push_back(std::move(*sender));
    ports.push_back(port);
  }
  const unsigned max_segments =
      options.segmentation ? probe_max_segments(local.gid, local.interface_index) : 1;
  const unsigned granted = granted_receive_buffer(receiving.get());
  Sender sender(std::move(senders), std::move(ports), local, options, max_segments);
  Receiver receiver(std::move(receiving), local.gid, wire::kRocePort, options.receive_slots, peer_fd);
  SocketSet sockets(local, std::move(receiver), std::move(sender), granted);
  sockets.report_ip_fields(options.report_ip_fields);
  return sockets;
}

void SocketSet::report_ip_fields(bool on) {
  reports_ip_fields_ = on;
  sender_.may_connect(!on);
  const bool ipv4 = local_.gid.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  set_option(receive_fd(), level, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, on ? 1 : 0);
  set_option(receive_fd(), level, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, on ? 1 : 0);
  if (!ipv4) set_option(receive_fd(), level, kIpv6FlowInfo, on ? 1 : 0);
}

}  // namespace verbena::soft::udp
