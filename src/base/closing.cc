// SPDX-License-Identifier: Apache-2.0
#include "base/closing.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/holdings.h"
#include "base/quiet_thread.h"

namespace verbena::closing {
namespace {

struct State {
  std::uint64_t generation;
  State* inherited;  // that of the process this one was forked from: its thread is not here, its mutex may be held
  std::mutex mutex{};
  std::deque<int> waiting{};   // and the one that is being closed, in front
  std::vector<int> to_tell{};  // ends of pipes, to be closed once fewer wait
  bool runs = false;
};

constinit std::atomic<State*> g_state{nullptr};

// Lives as long as the process.
State& state() {
  State* current = g_state.load();
  while (current == nullptr || current->generation != holdings::generation()) {
    auto fresh = std::unique_ptr<State>(new State{holdings::generation(), current});
    if (g_state.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  }
  return *current;
}

void close_all(State& all) {
  std::unique_lock lock(all.mutex);
  while (!all.waiting.empty()) {
    const int fd = all.waiting.front();
    lock.unlock();
    ::close(fd);
    lock.lock();
    all.waiting.pop_front();
    if (all.waiting.size() >= kMost) continue;
    for (const int end : std::exchange(all.to_tell, {})) holdings::close(end);
  }
  all.runs = false;
}

// Under the mutex. Where no thread can be made, the next call tries again.
void see_to_it(State& all) {
  if (all.waiting.empty() || all.runs) return;
  try {
    start_quiet_thread([&all] { close_all(all); }).detach();
    all.runs = true;
  } catch (const std::system_error&) {
  }
}

}  // namespace

void elsewhere(int fd) {
  holdings::forget(fd);  // a child that is forked now must not be the one that waits
  State& all = state();
  const std::lock_guard guard(all.mutex);
  all.waiting.push_back(fd);
  see_to_it(all);
}

bool is_behind(std::size_t most) {
  State& all = state();
  const std::lock_guard guard(all.mutex);
  see_to_it(all);
  return all.waiting.size() >= most;
}

int caught_up() {
  int ends[2];
  const auto no_fork = holdings::no_fork();
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  for (const int end : ends) holdings::keep_from_children(end);
  State& all = state();
  const std::lock_guard guard(all.mutex);
  if (all.waiting.size() >= kMost)
    all.to_tell.push_back(ends[1]);
  else
    holdings::close(ends[1]);
  return ends[0];
}

}  // namespace verbena::closing
