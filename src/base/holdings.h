// SPDX-License-Identifier: Apache-2.0
// What this process holds and a forked child must not: of each shared address one device, and descriptors by whose end
// others learn that this process ended. In the child each of these becomes a descriptor of nothing, and no address is
// held.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace verbena::holdings {

// Any thread. A number for leave(); 0: this process is there already.
std::uint64_t enter(const std::string& place);
bool has(const std::string& place);
void leave(std::uint64_t stay);

// Before the descriptor is used, and before it is closed; or closed with that, and no child has it between.
void keep_from_children(int fd);
void forget(int fd);
void close(int fd);
// No child is forked while it lives: a descriptor that is made meanwhile is in none.
std::unique_lock<std::mutex> no_fork();

}  // namespace verbena::holdings
