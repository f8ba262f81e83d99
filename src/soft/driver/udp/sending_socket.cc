// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sending_socket.h"

#include <netinet/in.h>

#include <cerrno>
#include <string>
#include <utility>

#include "soft/driver/udp/bound_socket.h"

namespace verbena::soft::udp {
namespace {

constexpr unsigned kPortAttempts = 256;

// The first option a kernel refused, for the error text.
class Setup {
 public:
  explicit Setup(int fd) : fd_(fd) {}
  Setup& need(int level, int name, int value, const char* text) {
    if (refused_ == nullptr && !set_option(fd_, level, name, value)) {
      refused_ = text;
      error_ = errno;
    }
    return *this;
  }
  Setup& want(int level, int name, int value) {
    set_option(fd_, level, name, value);
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

Result<void> configure(int fd, const Gid& address, const SocketOptions& options) {
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
  receive_nothing(fd);
  return setup.result();
}

}  // namespace

Result<Descriptor> make_sending_socket(const Gid& address, const SocketOptions& options) {
  auto socket = make_udp_socket(address);
  if (!socket) return socket;
  if (auto configured = configure(socket->get(), address, options); !configured)
    return std::move(configured).error();
  return socket;
}

Result<Descriptor> bind_sending_socket(const LocalAddress& local, const SocketOptions& options,
                                       RandomSource& random, std::uint16_t& port) {
  auto socket = make_sending_socket(local.gid, options);
  if (!socket) return socket;
  int error = 0;
  for (unsigned attempt = 0; attempt < kPortAttempts; ++attempt) {
    port = static_cast<std::uint16_t>(kFirstSourcePort | (random.next_u64() & 0x3fff));
    error = bind_to(socket->get(), local, port);
    if (error == 0) return socket;
    if (error != EADDRINUSE) break;
  }
  return bind_error(local.gid, port, error);
}

}  // namespace verbena::soft::udp
