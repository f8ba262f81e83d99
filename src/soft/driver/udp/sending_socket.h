// SPDX-License-Identifier: Apache-2.0
// A socket that datagrams leave from. It receives nothing.
#pragma once

#include "base/random.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/socket_options.h"

namespace verbena::soft::udp {

inline constexpr std::uint16_t kFirstSourcePort = 0xc000;

// Not bound yet.
Result<Descriptor> make_sending_socket(const Gid& address, const SocketOptions& options);
// Bound to a random port of 16,384, which *port receives.
Result<Descriptor> bind_sending_socket(const LocalAddress& local, const SocketOptions& options,
                                       RandomSource& random, std::uint16_t& port);

}  // namespace verbena::soft::udp
