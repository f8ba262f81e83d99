// SPDX-License-Identifier: Apache-2.0
// A second process: it runs a function, talks over a pipe, and can be stopped and killed.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "test_pair.h"

namespace verbena::test {

inline constexpr std::size_t kLentBytes = 1 << 20;  // what a process gives its peer to read and write

inline Device opened(PathChoice path, std::optional<bool> pull = true) {
  return must(Device::open(OpenOptions{.path = path, .pull = pull}));
}

class Process {
 public:
  // Forks. The child runs f(say), where say(line) can be read by hear(); then it leaves with 0. No thread may run yet.
  explicit Process(const std::function<void(const std::function<void(const std::string&)>&)>& f) {
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that aborts leaves nobody behind
      ::close(pipe_ends[0]);
      f([&](const std::string& line) {
        const std::string text = line + "\n";
        if (::write(pipe_ends[1], text.data(), text.size()) < 0) ::_exit(3);
      });
      ::_exit(0);
    }
    ::close(pipe_ends[1]);
    from_child_ = pipe_ends[0];
  }
  ~Process() {
    if (!ended_) {
      signal(SIGKILL);
      wait();
    }
    ::close(from_child_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line of the child; empty when it has left.
  std::string hear() {
    std::string line;
    char c = 0;
    while (::read(from_child_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void signal(int number) { ::kill(pid_, number); }
  // Stops it, and returns when it stands still.
  void stop() {
    signal(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  // Its exit status, -signal when it was killed.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int from_child_ = -1;
  bool ended_ = false;
};

// What a child is told; made before the fork.
struct Reception {
  Reception() {
    if (::pipe(ends) != 0) std::abort();
  }
  ~Reception() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  std::string hear() {
    std::string line;
    char c = 0;
    while (::read(ends[0], &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void say(const std::string& line) { EXPECT_GT(::write(ends[1], (line + "\n").data(), line.size() + 1), 0); }
  int ends[2];
};

}  // namespace verbena::test
