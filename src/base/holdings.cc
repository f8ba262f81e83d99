// SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace verbena::holdings {
namespace {

struct State {
  // In the order in which they are taken; between the first two is whatever `before` waits for.
  std::mutex round_forks;  // of the next two
  std::map<std::uint64_t, RoundFork> round_fork;
  std::uint64_t last_round_fork = 0;
  std::mutex forks;
  std::mutex mutex;  // of what follows
  std::map<std::string, std::uint64_t> places;
  std::set<int> descriptors;
  std::map<std::byte*, std::size_t> memory;
  std::vector<std::shared_ptr<void>> abandoned;
  std::uint64_t last_stay = 0;
  std::atomic<std::uint64_t> generation{0};
};

void before_fork();
void after_fork();
void after_fork_in_child();

// Lives as long as the process: a fork may come at any time.
State& state() {
  static State* const all = [] {
    VERBENA_ASSERT(::pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0);
    return new State;
  }();
  return *all;
}

void before_fork() {
  State& all = state();
  all.round_forks.lock();
  for (;;) {
    for (const auto& [number, around] : all.round_fork) around.before();
    if (all.forks.try_lock()) break;
    for (const auto& [number, around] : all.round_fork) around.after();  // nobody waits as long as some hold it
    all.forks.lock();
    all.forks.unlock();
  }
  all.mutex.lock();
}
void let_fork(std::function<void()> RoundFork::*then) {
  state().mutex.unlock();
  state().forks.unlock();
  for (const auto& [number, all] : state().round_fork) (all.*then)();
  state().round_forks.unlock();
}
void after_fork() { let_fork(&RoundFork::after); }
// Before anything else is mapped.
void reserve_memory() {
  for (const auto& [place, bytes] : state().memory)
    ::mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  state().memory.clear();
}
// Each becomes one of its own, in the room that closing it makes.
void void_descriptors() {
  for (const int fd : state().descriptors) {
    ::close(fd);
    const int nothing = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (nothing == fd || nothing < 0) continue;
    ::dup3(nothing, fd, O_CLOEXEC);
    ::close(nothing);
  }
  state().descriptors.clear();
}
void after_fork_in_child() {
  reserve_memory();
  void_descriptors();
  state().places.clear();
  state().generation.fetch_add(1);
  let_fork(&RoundFork::in_child);
}

}  // namespace

std::uint64_t enter(const std::string& place) {
  const std::lock_guard guard(state().mutex);
  const bool added = state().places.emplace(place, state().last_stay + 1).second;
  return added ? ++state().last_stay : 0;
}

bool has(const std::string& place) {
  const std::lock_guard guard(state().mutex);
  return state().places.contains(place);
}

void leave(std::uint64_t stay) {
  const std::lock_guard guard(state().mutex);
  std::erase_if(state().places, [&](const auto& entry) { return entry.second == stay; });
}

void keep_from_children(int fd) {
  const std::lock_guard guard(state().mutex);
  state().descriptors.insert(fd);
}

void forget(int fd) {
  const std::lock_guard guard(state().mutex);
  state().descriptors.erase(fd);
}

// A fork waits for the mutex, too.
void close(int fd) {
  const std::lock_guard guard(state().mutex);
  state().descriptors.erase(fd);
  ::close(fd);
}

// A fork waits for the mutex: no child has it.
void* map_apart(void* place, std::size_t bytes, int protection, int flags, int fd, std::size_t offset) {
  const std::lock_guard guard(state().mutex);
  void* const made = ::mmap(place, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (made == MAP_FAILED) return made;
  if (::madvise(made, bytes, MADV_DONTFORK) != 0) {
    const int error = errno;
    if ((flags & MAP_FIXED) == 0) ::munmap(made, bytes);  // who has the place ends it
    errno = error;
    return MAP_FAILED;
  }
  state().memory[static_cast<std::byte*>(made)] = bytes;
  return made;
}

void unmap(void* place, std::size_t bytes) {
  std::byte* const begin = static_cast<std::byte*>(place);
  const std::lock_guard guard(state().mutex);
  state().memory.erase(state().memory.lower_bound(begin), state().memory.lower_bound(begin + bytes));
  ::munmap(place, bytes);
}

std::uint64_t do_round_fork(RoundFork all) {
  const std::lock_guard guard(state().round_forks);
  state().round_fork.emplace(++state().last_round_fork, std::move(all));
  return state().last_round_fork;
}

void forget_round_fork(std::uint64_t number) {
  const std::lock_guard guard(state().round_forks);
  state().round_fork.erase(number);
}

std::uint64_t generation() { return state().generation.load(); }

void abandon(std::shared_ptr<void> what) {
  const std::lock_guard guard(state().mutex);
  state().abandoned.push_back(std::move(what));
}

std::unique_lock<std::mutex> no_fork() { return std::unique_lock(state().forks); }

}  // namespace verbena::holdings
