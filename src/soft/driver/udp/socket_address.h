// SPDX-License-Identifier: Apache-2.0
// A Gid and a port as the kernel wants them. A mapped Gid is AF_INET, every other is AF_INET6.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "verbena/base/gid.h"

namespace verbena::soft::udp {

struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t size = sizeof(sockaddr_in6);

  SocketAddress() : v6{} {}
  // `scope` is an interface index, used for link-local addresses only.
  SocketAddress(const Gid& gid, std::uint16_t port, std::uint32_t scope);

  // Zero for an address of a family other than IPv4 and IPv6.
  Gid gid() const;
  std::uint16_t port() const;
};

// nullptr and foreign families give a zero Gid.
Gid gid_of(const sockaddr* address);
bool is_link_local(const Gid& gid);
inline int family_of(const Gid& gid) { return gid.is_ipv4() ? AF_INET : AF_INET6; }

// "192.0.2.1:4791" or "[2001:db8::1]:4791".
std::string to_string(const Gid& gid, std::uint16_t port);

}  // namespace verbena::soft::udp
