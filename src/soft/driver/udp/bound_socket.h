// SPDX-License-Identifier: Apache-2.0
// UDP sockets and the addresses they are bound to, with errors that name who is in the way.
#pragma once

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

// Non-blocking, of the address's family alone.
Result<Descriptor> make_udp_socket(const Gid& address);
// 0 or an errno.
int bind_to(int fd, const LocalAddress& local, std::uint16_t port);
// To the port of `beside`, which nobody else shares: the kernel prefers the second one where both are as good.
bool bind_beside(int beside, int fd, const LocalAddress& local, std::uint16_t port);
// The kernel drops what arrives there from now on.
void receive_nothing(int fd);
// Whether that is a UDP socket, and bound so.
bool is_bound_to(int fd, const LocalAddress& local, std::uint16_t port);
// AddressInUse names the owner of the port, AddressNotAvailable the addresses that are ours.
Error bind_error(const Gid& address, std::uint16_t port, int error);

}  // namespace verbena::soft::udp
