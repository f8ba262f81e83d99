// SPDX-License-Identifier: Apache-2.0
// clang-format off
#include <ctime>  // linux/errqueue.h needs timespec and does not say so
// clang-format on

#include "soft/driver/udp/connected_socket.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/system_call.h"
#include "soft/driver/network.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/sending_socket.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/wire/ip.h"

namespace verbena::soft::udp {
namespace {

bool is_time_stamp(msghdr& header) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != IPPROTO_IP || item->cmsg_type != IP_RECVERR) continue;
    sock_extended_err report;
    std::memcpy(&report, CMSG_DATA(item), sizeof report);
    return report.ee_origin == SO_EE_ORIGIN_TIMESTAMPING;
  }
  return false;
}

bool send_segmented(int fd, std::span<std::byte> train, std::size_t segment_bytes) {
  if (train.size() <= segment_bytes)
    return system_call(SYS_sendto, ::sendto, fd, train.data(), train.size(), MSG_DONTWAIT, nullptr, 0) >= 0;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  iovec piece{train.data(), train.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const note = CMSG_FIRSTHDR(&header);
  note->cmsg_level = IPPROTO_UDP;
  note->cmsg_type = UDP_SEGMENT;
  note->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto size = static_cast<std::uint16_t>(segment_bytes);
  std::memcpy(CMSG_DATA(note), &size, sizeof size);
  return system_call(SYS_sendmsg, ::sendmsg, fd, &header, MSG_DONTWAIT) >= 0;
}

// What a datagram to ourselves was numbered: with the time at which it left the kernel reports it whole, from
// its link header on. Whoever receives it drops it.
std::optional<std::uint16_t> ask_identification(int fd, const SocketAddress& ourselves) {
  constexpr std::byte kWord{0};
  constexpr std::size_t kLinkBytes = 14;  // of loopback, over which every datagram to ourselves goes
  if (!set_option(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE)) return std::nullopt;
  const bool sent = ::sendto(fd, &kWord, sizeof kWord, MSG_DONTWAIT, &ourselves.any, ourselves.size) >= 0;
  set_option(fd, SOL_SOCKET, SO_TIMESTAMPING, 0);
  if (!sent) return std::nullopt;
  std::array<std::byte, 128> bytes;
  alignas(std::max_align_t) std::array<std::byte, 256> control;
  iovec piece{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(kLinkBytes) || !is_time_stamp(header)) return std::nullopt;
  wire::IpDatagram datagram;
  const std::span<const std::byte> ip{bytes.data() + kLinkBytes, static_cast<std::size_t>(got) - kLinkBytes};
  if (wire::parse_ip(ip, datagram) != wire::DropReason::None || !datagram.dont_fragment ||
      datagram.path.source_port != ourselves.port())
    return std::nullopt;
  return datagram.identification;
}

}  // namespace

std::optional<ConnectedSocket> ConnectedSocket::open(int beside, const LocalAddress& local,
                                                     const SocketOptions& options, const wire::Path& path) {
  auto made = make_sending_socket(local.gid, options);
  if (!made) return std::nullopt;
  OwnDescriptor socket(std::move(*made));
  if (are_of_two_networks(beside, socket.get())) return std::nullopt;  // this thread has gone to another
  const SocketAddress peer(path.destination, path.destination_port, local.interface_index);
  if (!bind_beside(beside, socket.get(), local, path.source_port) || ::connect(socket.get(), &peer.any, peer.size) != 0)
    return std::nullopt;
  std::optional<ConnectedSocket> connected{ConnectedSocket(std::move(socket), path)};
  if (path.is_ipv4() && !connected->learn_identification(local)) return std::nullopt;
  return connected;
}

// Twice: it must count by one.
bool ConnectedSocket::learn_identification(const LocalAddress& local) {
  const SocketAddress ourselves(local.gid, path_.source_port, local.interface_index);
  const auto first = ask_identification(fd(), ourselves);
  const auto second = first ? ask_identification(fd(), ourselves) : std::nullopt;
  if (!second || static_cast<std::uint16_t>(*first + 1) != *second) return false;
  identification_ = static_cast<std::uint16_t>(*second + 1);
  return true;
}

void ConnectedSocket::set_icrcs(std::span<std::byte> train, std::size_t segment_bytes,
                                std::uint16_t identification) {
  if (!path_.is_ipv4()) return;
  for (; !train.empty(); ++identification) {
    const std::span<std::byte> datagram = train.first(std::min(segment_bytes, train.size()));
    const std::size_t covered = datagram.size() - wire::kIcrcBytes;
    wire::store_icrc(&datagram[covered], icrc_.over(identification, datagram.size(), datagram.first(covered)));
    train = train.subspan(datagram.size());
  }
}

// However many datagrams leave, the kernel counts one.
ConnectedSocket::Sent ConnectedSocket::send(std::span<std::byte> train, std::size_t segment_bytes) {
  set_icrcs(train, segment_bytes, identification_);
  if (send_segmented(fd(), train, segment_bytes)) {
    ++identification_;
    return Sent::Yes;
  }
  const Sent sent = errno == EAGAIN ? Sent::Full : Sent::No;  // full before it was numbered
  set_icrcs(train, segment_bytes, 0);
  return sent;
}

}  // namespace verbena::soft::udp
