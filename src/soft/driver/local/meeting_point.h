// SPDX-License-Identifier: Apache-2.0
// Where processes of one host that want to share memory find each other: a Unix socket with an abstract name made of a
// GID. Such a name lives in the network namespace, as the address does, and is gone with whoever holds it.
#pragma once

#include <cstdint>
#include <optional>

#include "soft/driver/local/peer_socket.h"
#include "verbena/base/gid.h"
#include "verbena/base/result.h"

namespace verbena::soft::local {

// Several processes may share an address: each has an index of its own there.
struct MeetingPoint {
  Gid gid;
  std::uint32_t index = 0;

  // For people, "@" standing for the zero byte in front.
  std::string name() const;
};

// A listening socket of that name. It accepts without waiting. Errors: AddressInUse, those of the system.
Result<OwnDescriptor> offer(const MeetingPoint& point);
// The next connection; nothing when none waits. Errors: ResourceExhausted (no descriptor left; it goes on waiting).
Result<std::optional<Descriptor>> accept_one(int listener);
// A connection to whoever offers there, made at once. Nothing: nobody does. Errors: ResourceExhausted (too many wait
// there, or no descriptor left), those of the system.
Result<std::optional<PeerSocket>> reach(const MeetingPoint& point);

}  // namespace verbena::soft::local
