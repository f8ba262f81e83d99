// SPDX-License-Identifier: Apache-2.0
#include "base/closing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/holdings.h"
#include "base/quiet_thread.h"

namespace verbena::closing {
namespace {

struct State {
  std::mutex mutex;
  std::deque<int> waiting;  // and the one that is being closed, in front
  std::vector<int> to_tell;  // ends of pipes, to be closed once fewer wait
  bool runs = false;
};

std::atomic<State*>& place() {
  static std::atomic<State*> current{new State};
  return current;
}

// Lives as long as the process. A forked child has another: the thread is not there, and the mutex may be held.
State& state() {
  static const auto number = holdings::do_in_child([] { place().store(new State); });
  static_cast<void>(number);
  return *place().load();
}

void tell(State& all) {
  for (const int end : std::exchange(all.to_tell, {})) holdings::close(end);
}

void close_all(State& all) {
  std::unique_lock lock(all.mutex);
  while (!all.waiting.empty()) {
    const int fd = all.waiting.front();
    lock.unlock();
    ::close(fd);
    lock.lock();
    all.waiting.pop_front();
    if (all.waiting.size() < kMost) tell(all);
  }
  all.runs = false;
}

}  // namespace

void elsewhere(int fd) {
  holdings::forget(fd);  // a child that is forked now must not be the one that waits
  ::shutdown(fd, SHUT_RDWR);
  State& all = state();
  const std::lock_guard guard(all.mutex);
  all.waiting.push_back(fd);
  if (std::exchange(all.runs, true)) return;
  try {
    start_quiet_thread([&all] { close_all(all); }).detach();
  } catch (const std::system_error&) {
    all.runs = false;  // no thread can be made: the next one tries again
  }
}

bool is_behind() {
  State& all = state();
  const std::lock_guard guard(all.mutex);
  return all.waiting.size() >= kMost;
}

int caught_up() {
  int ends[2];
  const auto no_fork = holdings::no_fork();
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  holdings::keep_from_children(ends[1]);
  State& all = state();
  const std::lock_guard guard(all.mutex);
  all.to_tell.push_back(ends[1]);
  if (all.waiting.size() < kMost) tell(all);
  return ends[0];
}

}  // namespace verbena::closing
