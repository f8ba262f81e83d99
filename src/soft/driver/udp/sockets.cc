// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sockets.h"

#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/crypto_random.h"

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

// The socket may have served another process before.
Result<void> configure_receiver(int fd, const Gid& address, const SocketOptions& options) {
  Setup setup(fd);
  setup.want(SOL_SOCKET, SO_RCVBUF, static_cast<int>(options.receive_buffer_bytes));
  setup.want(IPPROTO_UDP, UDP_GRO, options.coalescing ? 1 : 0);
  setup.want(SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(options.busy_poll_us));
  if (!address.is_ipv4()) {
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

Result<Descriptor> bind_sender(const LocalAddress& local, const SocketOptions& options, RandomSource& random,
                               std::uint16_t& port) {
  auto socket = make_udp_socket(local.gid);
  if (!socket) return std::move(socket).error();
  if (auto configured = configure_sender(socket->get(), local.gid, options); !configured)
    return std::move(configured).error();
  int error = 0;
  for (unsigned attempt = 0; attempt < kPortAttempts; ++attempt) {
    port = static_cast<std::uint16_t>(kFirstSourcePort | (random.next_u64() & 0x3fff));
    error = bind_to(socket->get(), local, port);
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

Result<SocketSet> SocketSet::open(const LocalAddress& local, Descriptor receiving, const SocketOptions& options) {
  if (options.sending_sockets < 1 || options.sending_sockets > 64)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: sending_sockets must be 1 to 64");
  if (options.receive_slots < 1 || options.receive_slots > 1'024)
    return Error(ErrorCode::InvalidArgument, "open UDP sockets: receive_slots must be 1 to 1024");
  if (auto configured = configure_receiver(receiving.get(), local.gid, options); !configured)
    return std::move(configured).error();
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
  const unsigned granted = granted_receive_buffer(receiving.get());
  Sender sender(std::move(senders), std::move(ports), local.gid, local.interface_index, max_segments,
                options.hop_limit);
  Receiver receiver(std::move(receiving), local.gid, wire::kRocePort, options.receive_slots);
  SocketSet sockets(local, std::move(receiver), std::move(sender), granted);
  sockets.report_ip_fields(options.report_ip_fields);
  return sockets;
}

void SocketSet::report_ip_fields(bool on) {
  const bool ipv4 = local_.gid.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  set(receive_fd(), level, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, on ? 1 : 0);
  set(receive_fd(), level, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, on ? 1 : 0);
}

}  // namespace verbena::soft::udp
