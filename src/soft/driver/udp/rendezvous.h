// SPDX-License-Identifier: Apache-2.0
// How a process comes to the sockets of an address that others have opened, of its user or of users who name each
// other: it meets them at an abstract Unix socket, whose name is gone with its last holder. Every member holds the
// meeting place, so that any of them can let the next in.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/address_users.h"
#include "soft/driver/udp/interfaces.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp::rendezvous {

// Nobody can attach a descriptor, whose closing may wait, to what he sends here. Older kernels do not offer that: there
// it is the thread that attends to the address that waits.
void take_no_descriptors(int socket);

// Of the address and the user with the lowest number, in the network namespace of the calling thread.
std::string name_of(const LocalAddress& address, const AddressUsers& users);

// That network and the name, for what this process holds; the same for as long as the process lives, wherever its root
// is. Errors: no descriptor is left.
Result<std::string> place_name(const std::string& name);

// The meeting place, ours and open; nullopt when there is one of that name.
Result<std::optional<Descriptor>> found(const std::string& name);
bool exists(const std::string& name);

// What a member passes on; nullopt when it went before it could: ask again. Errors: AddressInUse when a user who is not
// one of them or something else has the name, nobody there answers, or they do not name the same users; NotSupported
// when they are of another version, ResourceExhausted when this process or the one there lacks descriptors. `no_fork`
// is not locked; it is when anything is passed on.
Result<std::optional<std::vector<Descriptor>>> ask(const std::string& name, const AddressUsers& users,
                                                   std::unique_lock<std::mutex>& no_fork);

// Who waits at the meeting place and is of these users; nullopt when there is none, or another member met him. Who is
// of another user is told that, and gets nothing. Errors: this process can meet nobody now.
Result<std::optional<Descriptor>> meet(int meeting_place, const AddressUsers& users);
pid_t process_at(int guest);
void let_in(int guest, const AddressUsers& users, std::span<const int> descriptors);
// `error`: an errno, why this process cannot make the `descriptors` that sharing takes; EDEADLK: the guest is itself.
void refuse(int guest, unsigned descriptors, int error);
bool is_meeting_place(int fd, const std::string& name);

}  // namespace verbena::soft::udp::rendezvous
