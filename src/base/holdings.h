// SPDX-License-Identifier: Apache-2.0
// What this process holds and a forked child must not: of each shared address one device, descriptors by whose end
// others learn that this process ended, and memory that is shared with others. In the child each of the descriptors
// becomes one of nothing, and no address is held; where the memory is here nothing can be touched there, and nothing
// else comes to lie: what was inherited still has those addresses, and may end them.
#pragma once

#include <cstddef>
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
// mmap() of memory that children do not have, and munmap() of all that was mapped so within the range.
void* map_apart(void* place, std::size_t bytes, int protection, int flags, int fd, std::size_t offset = 0);
void unmap(void* place, std::size_t bytes);
// What others do round a fork: `before` it, waiting for whatever must not be copied in the middle; then in the parent
// `after`, or in the child, before the fork returns there, `in_child`. What they wait for is held by nobody who has
// no_fork(); nor does that one, or they themselves, call these two.
struct RoundFork {
  std::function<void()> before = [] {}, after = [] {}, in_child = [] {};
};
// A number for forget_round_fork().
std::uint64_t do_round_fork(RoundFork all);
void forget_round_fork(std::uint64_t number);
// How often this process was forked off: who remembers another number was inherited.
std::uint64_t generation();
// Of what was inherited and must not be ended here: a thread that is not in this process, a file that is not its own.
void abandon(std::shared_ptr<void> what);
// No child is forked while it lives: a descriptor that is made meanwhile is in none.
std::unique_lock<std::mutex> no_fork();

}  // namespace verbena::holdings
