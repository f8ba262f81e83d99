// SPDX-License-Identifier: Apache-2.0
// How the sockets of a device are set up.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace verbena::soft::udp {

struct SocketOptions {
  unsigned sending_sockets = 4;  // 1 … 64
  unsigned receive_slots = 16;   // trains one receive call can bring, 64 KiB of address space each
  // Asked of SO_RCVBUF, which grants up to net.core.rmem_max and books double.
  unsigned receive_buffer_bytes = 8u << 20;
  unsigned send_buffer_bytes = 8u << 20;
  bool segmentation = true;  // UDP_SEGMENT
  bool coalescing = true;    // UDP_GRO
  std::uint8_t hop_limit = 64;
  // Whether arrivals tell their traffic class, hop limit and flow label, at some 50 ns each; otherwise their paths say
  // 0, 64 and 0. What is sent then carries the identifications that its trains say.
  bool report_ip_fields = false;
  unsigned busy_poll_us = 0;  // SO_BUSY_POLL; ignored where the kernel refuses
};

constexpr int kIpv6FlowInfo = 11;  // IPV6_FLOWINFO of linux/in6.h, which netinet/in.h excludes

inline bool set_option(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

}  // namespace verbena::soft::udp
