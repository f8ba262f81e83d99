// SPDX-License-Identifier: Apache-2.0
// The sockets of an address that processes share: one for each slot, and the lobby. A process that is alone has only
// its own, bound for itself, which the kernel finds without a question. The first that joins it makes them a group.
#pragma once

#include <linux/filter.h>

#include <functional>
#include <span>
#include <vector>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/receiver.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

// On port 4791. Fails when anybody else has the port, of whatever user and with whatever options; AddressInUse does not
// say who, which takes long to find out: bind_error() does.
Result<Descriptor> bind_alone(const LocalAddress& local);

// Joins the others to `first`, which is alone and becomes slot 0: those of slots 1 … 63, then the lobby's. Until a
// filter is attached, `first` goes on getting all that comes; `stray` gets what reached another meanwhile, later than
// its turn. Nothing has changed after an error.
Result<std::vector<Descriptor>> join_others(int first, const LocalAddress& local,
                                            const std::function<void(const ReceivedTrain&)>& stray);

// Returns when no datagram is under way any more to where the kernel had decided before.
void wait_for_decided_datagrams();

// To the group of that socket. 0 or an errno.
int attach_filter(int fd, std::span<const sock_filter> filter);

}  // namespace verbena::soft::udp
