// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/bound_socket.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "soft/driver/udp/port_owner.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/socket_options.h"

namespace verbena::soft::udp {

Result<Descriptor> make_udp_socket(const Gid& address) {
  Descriptor socket(::socket(family_of(address), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  constexpr int kOn = 1;
  const bool ready = socket && (address.is_ipv4() || ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kOn,
                                                                  sizeof kOn) == 0);
  if (ready) return socket;
  const int error = errno;
  const std::string what = "make a UDP socket for " + address.to_string();
  if (error == EAFNOSUPPORT)
    return Error(ErrorCode::NotSupported, what + ": this kernel does not speak the address family", error,
                 ErrorDomain::Errno);
  return Error::from_errno(error, what);
}

int bind_to(int fd, const LocalAddress& local, std::uint16_t port) {
  const SocketAddress at(local.gid, port, local.interface_index);
  return ::bind(fd, &at.any, at.size) == 0 ? 0 : errno;
}

// Two sockets may have one port if both say so at the moment of the second bind.
bool bind_beside(int beside, int fd, const LocalAddress& local, std::uint16_t port) {
  const bool may = set_option(beside, SOL_SOCKET, SO_REUSEADDR, 1) && set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  const bool bound = may && bind_to(fd, local, port) == 0;
  const bool closed = set_option(beside, SOL_SOCKET, SO_REUSEADDR, 0) && set_option(fd, SOL_SOCKET, SO_REUSEADDR, 0);
  return bound && closed;
}

void receive_nothing(int fd) {
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool is_bound_to(int fd, const LocalAddress& local, std::uint16_t port) {
  SocketAddress at;
  at.size = sizeof at.v6;
  int type = 0;
  socklen_t type_size = sizeof type;
  return ::getsockname(fd, &at.any, &at.size) == 0 && at.gid() == local.gid && at.port() == port &&
         ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_DGRAM;
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

}  // namespace verbena::soft::udp
