// SPDX-License-Identifier: Apache-2.0
// Where processes of one host that want to share memory find each other: a Unix socket with an abstract name made of a
// GID. Such a name lives in the network namespace, as the address does, and is gone with whoever holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
// The next connection, perhaps a stranger's; nothing when none waits. Errors: ResourceExhausted (no descriptor left;
// it goes on waiting).
Result<std::optional<Descriptor>> accept_one(int listener);
// A connection to whoever offers there, made at once. Nothing: nobody does. Errors: ResourceExhausted (too many wait
// there, or no descriptor left), WrongState (this thread is in another network than `beside`, a socket), those of the
// system.
Result<std::optional<PeerSocket>> reach(const MeetingPoint& point, int beside = -1);

// The same at the address of a Unix socket, "@" in front of an abstract one, otherwise a path of at most 107 bytes:
// a file that this user alone may connect to. `shown` names it in errors. Nobody is reached where nobody listens; that
// there is no file is an error (ENOENT). Both under holdings::no_fork().
Result<OwnDescriptor> offer_at(const std::string& address, const std::string& shown);
Result<std::optional<PeerSocket>> reach_at(const std::string& address, const std::string& shown, int beside = -1);

}  // namespace verbena::soft::local
