// SPDX-License-Identifier: Apache-2.0
// How a process comes to the sockets of an address that others of its user have opened: it meets them at an abstract
// Unix socket, whose name is gone with its last holder. Every member holds the meeting place, so that any of them can
// let the next in.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp::rendezvous {

// Of this user and the address, in the network namespace of the calling thread.
std::string name_of(const LocalAddress& address);

// The meeting place, ours and open; nullopt when there is one of that name.
Result<std::optional<Descriptor>> found(const std::string& name);
bool exists(const std::string& name);

// What a member passes on; nullopt when it went before it could: ask again. Errors: AddressInUse when another user or
// something else has the name or nobody there answers, NotSupported when they are of another version.
Result<std::optional<std::vector<Descriptor>>> ask(const std::string& name);

// Lets in who waits at the meeting place, if he is of our user.
void admit(int meeting_place, std::span<const int> descriptors);
bool is_meeting_place(int fd, const std::string& name);

}  // namespace verbena::soft::udp::rendezvous
