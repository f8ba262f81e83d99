// SPDX-License-Identifier: Apache-2.0
// What this process holds and a forked child must not: of each shared address one device, and descriptors by whose end
// others learn that this process ended. In the child each of these becomes a descriptor of nothing, and no address is
// held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
// What a forked child does first, before the fork returns there. A number for forget_in_child().
std::uint64_t do_in_child(std::function<void()> f);
void forget_in_child(std::uint64_t number);
// How often this process was forked off: who remembers another number was inherited.
std::uint64_t generation();
// Of what was inherited and must not be ended here: a thread that is not in this process, a file that is not its own.
void abandon(std::shared_ptr<void> what);
// No child is forked while it lives: a descriptor that is made meanwhile is in none.
std::unique_lock<std::mutex> no_fork();

}  // namespace verbena::holdings
