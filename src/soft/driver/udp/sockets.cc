// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sockets.h"

#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "soft/driver/udp/crypto_random.h"
#include "soft/driver/udp/port_owner.h"

namespace verbena::soft::udp {
namespace {

constexpr unsigned kPortAttempts = 256;  // per sending socket, random ports of 16,384

bool set(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// The first option a kernel refused, for the error text.
class Setup {
 public:
  explicit Setup(int fd) : fd_(fd) {}
  Setup& need(int level, int name, int value, const char* text) {
    if (refused_ == nullptr && !set(fd_, level, name, value)) {
      refused_ = text;
      error_ = errno;
    }
    return *this;
  }
  Setup& want(int level, int name, int value) {
    set(fd_, level, name, value);
    return *this;
  }
  Result<void> result() const {
    if (refused_ == nullptr) return {};
    return Error::from_errno(error_, std::string("set socket option ") + refused_);
  }

 private:
  int fd_;
  const char* refused_ = nullptr;
  int error_ = 0;
};

Result<Descriptor> make_socket(const Gid& address) {
  Descriptor socket(::socket(family_of(address), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (socket) return socket;
  const int error = errno;
  const std::string what = "make a UDP socket for " + address.to_string();
  if (error == EAFNOSUPPORT)
    return Error(ErrorCode::NotSupported, what + ": this kernel does not speak the address family", error,
                 ErrorDomain::Errno);
  return Error::from_errno(error, what);
}

Result<void> configure_receiver(int fd, const Gid& address, const SocketOptions& options) {
  Setup setup(fd);
  setup.want(SOL_SOCKET, SO_RCVBUF, static_cast<int>(options.receive_buffer_bytes));
  if (options.coalescing) setup.want(IPPROTO_UDP, UDP_GRO, 1);
  if (options.busy_poll_us != 0) setup.want(SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(options.busy_poll_us));
  if (!address.is_ipv4()) {
    setup.need(IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
    // Peers send UDP checksum 0 (the kernel's Soft-RoCE does); the ICRC covers what it would.
    setup.need(IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX");
  }
  return setup.result();
}

Result<void> configure_sender(int fd, const Gid& address, const SocketOptions& options) {
  Setup setup(fd);
  setup.want(SOL_SOCKET, SO_SNDBUF, static_cast<int>(options.send_buffer_bytes));
  if (address.is_ipv4()) {
    // Unconnected and PROBE: don't-fragment set and identification 0, counting up inside a UDP_SEGMENT train.
    setup.need(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER");
    setup.need(IPPROTO_IP, IP_RECVERR, 1, "IP_RECVERR");
    setup.need(IPPROTO_IP, IP_TTL, options.hop_limit, "IP_TTL");
  } else {
    setup.need(IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
    setup.need(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE, "IPV6_MTU_DISCOVER");
    setup.need(IPPROTO_IPV6, IPV6_RECVERR, 1, "IPV6_RECVERR");
    setup.need(IPPROTO_IPV6, IPV6_UNICAST_HOPS, options.hop_limit, "IPV6_UNICAST_HOPS");
    constexpr int kAutoFlowLabel = 70;  // IPV6_AUTOFLOWLABEL of linux/in6.h, which netinet/in.h excludes
    setup.want(IPPROTO_IPV6, kAutoFlowLabel, 0);  // the label is the path's, as captures say
  }
  // Nobody reads what arrives at a sending port: let the kernel drop it, or it would fill a buffer.
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  return setup.result();
}

Error bind_error(const Gid& address, std::uint16_t port, int error) {
  const std::string what = "bind " + to_string(address, port) + ": ";
  if (error == EADDRINUSE) return Error::from_errno(error, what + describe_port_owner(address, port));
  // The address is in the list; a foreign one has been refused before.
  if (error == EADDRNOTAVAIL)
    return Error::from_errno(error,
                             what +
                                 "the address may not be used yet (IPv6 still looks for duplicates of it, "
                                 "or its interface is down); this machine has " +
                                 describe_local_addresses());
  return Error::from_errno(error, what + "refused");
}

int bind_to(int fd, const Gid& address, std::uint16_t port, std::uint32_t scope) {
  const SocketAddress at(address, port, scope);
  return ::bind(fd, &at.any, at.size) == 0 ? 0 : errno;
}

// 127.0.0.1, .2 … .254, 127.0.1.1 …: no address that looks like a network or a broadcast address.
Gid loopback_candidate(unsigned index) {
  const unsigned host = index % 254 + 1;
  const unsigned net = index / 254;
  return Gid::from_ipv4(127, static_cast<std::uint8_t>(net >> 8), static_cast<std::uint8_t>(net),
                        static_cast<std::uint8_t>(host));
}

struct Bound {
  Descriptor socket;
  LocalAddress local;
};

Result<Bound> bind_receiver(const SocketOptions& options) {
  const Gid address = options.address;
  auto local = find_local_address(address);
  if (!local) return std::move(local).error();
  auto socket = make_socket(address);
  if (!socket) return std::move(socket).error();
  if (auto configured = configure_receiver(socket->get(), address, options); !configured)
    return std::move(configured).error();
  if (const int error = bind_to(socket->get(), address, wire::kRocePort, local->interface_index))
    return bind_error(address, wire::kRocePort, error);
  return Bound{std::move(*socket), std::move(*local)};
}

Result<Bound> bind_free_loopback(const SocketOptions& options) {
  auto socket = make_socket(loopback_candidate(0));
  if (!socket) return std::move(socket).error();
  if (auto configured = configure_receiver(socket->get(), loopback_candidate(0), options); !configured)
    return std::move(configured).error();
  for (unsigned i = 0; i < options.loopback_candidates; ++i) {
    const Gid address = loopback_candidate(i);
    const int error = bind_to(socket->get(), address, wire::kRocePort, 0);
    if (error == EADDRINUSE) continue;
    if (error != 0) return bind_error(address, wire::kRocePort, error);
    auto local = find_local_address(address);
    if (!local) return std::move(local).error();
    return Bound{std::move(*socket), std::move(*local)};
  }
  return Error(ErrorCode::AddressInUse,
               "take a free loopback address: all of " + std::to_string(options.loopback_candidates) +
                   " from 127.0.0.1 on are taken; " +
                   describe_port_owner(loopback_candidate(0), wire::kRocePort),
               EADDRINUSE, ErrorDomain::Errno);
}

Result<Descriptor> bind_sender(const LocalAddress& local, const SocketOptions& options, RandomSource& random,
                               std::uint16_t& port) {
  auto socket = make_socket(local.gid);
  if (!socket) return std::move(socket).error();
  if (auto configured = configure_sender(socket->get(), local.gid, options); !configured)
    return std::move(configured).error();
  int error = 0;
  for (unsigned attempt = 0; attempt < kPortAttempts; ++attempt) {
    port = static_cast<std::uint16_t>(kFirstSourcePort | (random.next_u64() & 0x3fff));
    error = bind_to(socket->get(), local.gid, port, local.interface_index);
    if (error == 0) return std::move(*socket);
    if (error != EADDRINUSE) break;
  }
  return bind_error(local.gid, port, error);
}

unsigned granted_receive_buffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0) return 0;
  return static_cast<unsigned>(bytes);
}

}  // namespace

Result<SocketSet> SocketSet::open(const SocketOptions& options) {
  if (options.sending_sockets < 1 || options.sending_sockets > 64)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: sending_sockets must be 1 to 64");
  if (options.receive_slots < 1 || options.receive_slots > 1'024)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: receive_slots must be 1 to 1024");
  const bool wildcard = options.address.is_zero() || options.address == Gid::from_ipv4(0, 0, 0, 0);
  if (!options.automatic_loopback && wildcard)
    return Error(ErrorCode::InvalidArgument,
                 "open UDP sockets: a device needs one address, not the wildcard");

  auto bound = options.automatic_loopback ? bind_free_loopback(options) : bind_receiver(options);
  if (!bound) return std::move(bound).error();
  const LocalAddress& local = bound->local;
  CryptoRandom random;
  std::vector<Descriptor> senders;
  std::vector<std::uint16_t> ports;
  for (unsigned i = 0; i < options.sending_sockets; ++i) {
    std::uint16_t port = 0;
    auto sender = bind_sender(local, options, random, port);
    if (!sender) return std::move(sender).error();
    senders.push_back(std::move(*sender));
    ports.push_back(port);
  }
  const unsigned max_segments =
      options.segmentation ? probe_max_segments(local.gid, local.interface_index) : 1;
  const unsigned granted = granted_receive_buffer(bound->socket.get());
  Sender sender(std::move(senders), std::move(ports), local.gid, local.interface_index, max_segments,
                options.hop_limit);
  Receiver receiver(std::move(bound->socket), local.gid, wire::kRocePort, options.receive_slots);
  SocketSet sockets(std::move(bound->local), std::move(receiver), std::move(sender), granted);
  if (options.report_ip_fields) sockets.report_ip_fields(true);
  return sockets;
}

void SocketSet::report_ip_fields(bool on) {
  const bool ipv4 = local_.gid.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  set(receive_fd(), level, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, on ? 1 : 0);
  set(receive_fd(), level, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, on ? 1 : 0);
}

}  // namespace verbena::soft::udp
