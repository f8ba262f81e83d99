// SPDX-License-Identifier: Apache-2.0
// Which network a socket is of: a thread may go to another one (setns), its sockets stay.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

namespace verbena::soft {

// The number of the network namespace, which no other gets. Nothing before Linux 5.14, and for what is no socket.
inline std::optional<std::uint64_t> network_of(int socket) {
  constexpr int kNetworkCookie = 71;  // SO_NETNS_COOKIE of asm-generic/socket.h
  std::uint64_t number = 0;
  socklen_t size = sizeof number;
  if (::getsockopt(socket, SOL_SOCKET, kNetworkCookie, &number, &size) != 0) return std::nullopt;
  return number;
}

// Whether they are known to be of two networks.
inline bool are_of_two_networks(int socket, int other) {
  const auto one = network_of(socket), two = network_of(other);
  return one && two && *one != *two;
}

}  // namespace verbena::soft
