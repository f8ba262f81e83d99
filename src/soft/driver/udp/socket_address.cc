// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/socket_address.h"

#include <arpa/inet.h>

#include <cstring>

namespace verbena::soft::udp {

SocketAddress::SocketAddress(const Gid& gid, std::uint16_t port, std::uint32_t scope) : v6{} {
  if (gid.is_ipv4()) {
    v4 = sockaddr_in{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, gid.bytes.data() + 12, 4);
    size = sizeof v4;
    return;
  }
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&v6.sin6_addr, gid.bytes.data(), 16);
  if (is_link_local(gid)) v6.sin6_scope_id = scope;
  size = sizeof v6;
}

Gid SocketAddress::gid() const { return gid_of(&any); }

std::uint16_t SocketAddress::port() const {
  if (any.sa_family == AF_INET) return ntohs(v4.sin_port);
  return any.sa_family == AF_INET6 ? ntohs(v6.sin6_port) : std::uint16_t{0};
}

Gid gid_of(const sockaddr* address) {
  Gid gid;
  if (address == nullptr) return gid;
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    gid = Gid::from_ipv4(0, 0, 0, 0);
    std::memcpy(gid.bytes.data() + 12, &v4.sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    std::memcpy(gid.bytes.data(), &v6.sin6_addr, 16);
  }
  return gid;
}

bool is_link_local(const Gid& gid) { return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80; }

std::string to_string(const Gid& gid, std::uint16_t port) {
  const std::string address = gid.is_ipv4() ? gid.to_string() : "[" + gid.to_string() + "]";
  return address + ":" + std::to_string(port);
}

}  // namespace verbena::soft::udp
