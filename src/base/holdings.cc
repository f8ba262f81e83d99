// SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace verbena::holdings {
namespace {

struct State {
  std::mutex forks;  // before mutex
  std::mutex mutex;
  std::map<std::string, std::uint64_t> places;
  std::set<int> descriptors;
  std::map<std::uint64_t, std::function<void()>> in_child;
  std::vector<std::shared_ptr<void>> abandoned;
  std::uint64_t last_stay = 0, last_in_child = 0;
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
  state().forks.lock();
  state().mutex.lock();
}
void after_fork() {
  state().mutex.unlock();
  state().forks.unlock();
}
// Closing the first makes room for what all become.
void after_fork_in_child() {
  std::set<int>& all = state().descriptors;
  if (!all.empty()) {
    ::close(*all.begin());
    const int nothing = ::eventfd(0, EFD_CLOEXEC);
    for (const int fd : all)
      if (fd != nothing) ::dup3(nothing, fd, O_CLOEXEC);
    if (!all.contains(nothing)) ::close(nothing);
  }
  all.clear();
  state().places.clear();
  state().generation.fetch_add(1);
  for (const auto& [number, f] : state().in_child) f();
  after_fork();
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

std::uint64_t do_in_child(std::function<void()> f) {
  const std::lock_guard guard(state().mutex);
  state().in_child.emplace(++state().last_in_child, std::move(f));
  return state().last_in_child;
}

void forget_in_child(std::uint64_t number) {
  const std::lock_guard guard(state().mutex);
  state().in_child.erase(number);
}

std::uint64_t generation() { return state().generation.load(); }

void abandon(std::shared_ptr<void> what) {
  const std::lock_guard guard(state().mutex);
  state().abandoned.push_back(std::move(what));
}

std::unique_lock<std::mutex> no_fork() { return std::unique_lock(state().forks); }

}  // namespace verbena::holdings
