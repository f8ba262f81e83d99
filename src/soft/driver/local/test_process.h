// SPDX-License-Identifier: Apache-2.0
// A real process at the other end of a socket.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "soft/driver/descriptor.h"

namespace verbena::soft::local {

inline std::array<Descriptor, 2> socket_pair(int type = SOCK_SEQPACKET) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Runs `body` in a child and ends it with what that returns; killed and awaited at the latest here.
class TestProcess {
 public:
  explicit TestProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  TestProcess(const TestProcess&) = delete;
  ~TestProcess() {
    if (pid_ > 0) kill_and_wait();
  }

  pid_t pid() const { return pid_; }
  void kill_and_wait() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  // Its exit status; -1 when a signal ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

}  // namespace verbena::soft::local
