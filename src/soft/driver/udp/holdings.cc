// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/holdings.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "base/assert.h"

namespace verbena::soft::udp::holdings {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> places;
  std::vector<int> descriptors;
  std::uint64_t last_stay = 0;
  int nothing = ::eventfd(0, EFD_CLOEXEC);
};

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// Lives as long as the process: a fork may come at any time.
State& state() {
  static State* const all = [] {
    VERBENA_ASSERT(::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
    return new State;
  }();
  return *all;
}

void before_fork() { state().mutex.lock(); }
void after_fork_in_parent() { state().mutex.unlock(); }
void after_fork_in_child() {
  for (const int fd : state().descriptors) ::dup3(state().nothing, fd, O_CLOEXEC);
  state().descriptors.clear();
  state().places.clear();
  state().mutex.unlock();
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
  state().descriptors.push_back(fd);
}

void forget(int fd) {
  const std::lock_guard guard(state().mutex);
  std::erase(state().descriptors, fd);
}

}  // namespace verbena::soft::udp::holdings
