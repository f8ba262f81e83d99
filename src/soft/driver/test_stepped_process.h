// SPDX-License-Identifier: Apache-2.0
// A process that goes one instruction, or one system call, at a time, and can be killed anywhere.
#pragma once

#include <sched.h>
#include <sys/ptrace.h>

#include "soft/driver/local/test_process.h"

namespace verbena::soft {

// Who steps and who is stepped take turns: on one processor that is much faster. A child begun meanwhile
// stays there.
class OneProcessor {
 public:
  OneProcessor() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &here);
    ::sched_setaffinity(0, sizeof here, &here);
  }
  ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneProcessor(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
};

// A child that stands still until it is told to go on. Threads it starts run by themselves.
class SteppedProcess {
 public:
  explicit SteppedProcess(const std::function<int()>& body)
      : process_([&body] {
          if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 77;
          ::raise(SIGSTOP);
          return body();
        }) {
    traced_ = ::waitpid(process_.pid(), &status_, 0) == process_.pid() && WIFSTOPPED(status_);
  }

  bool traced() const { return traced_; }
  pid_t pid() const { return process_.pid(); }
  // One instruction. False when it ended instead.
  bool step() { return go_on(PTRACE_SINGLESTEP); }
  // To the beginning or the end of the next system call. False when it ended instead.
  bool step_call() { return go_on(PTRACE_SYSCALL); }
  // By itself, until it stops itself, which only `pause()` does; `meanwhile` is done again and again. False when it
  // ended instead.
  bool go_on_until_pause(const std::function<void()>& meanwhile) {
    if (::ptrace(PTRACE_CONT, process_.pid(), nullptr, nullptr) != 0) return false;
    for (;;) {
      const pid_t changed = ::waitpid(process_.pid(), &status_, WNOHANG);
      if (changed != 0) return changed == process_.pid() && pauses();
      meanwhile();
      ::sched_yield();
    }
  }
  // Of the child: it stands still again. A step that meets it is none.
  static void pause() { ::raise(SIGSTOP); }
  bool pauses() const { return WIFSTOPPED(status_) && WSTOPSIG(status_) == SIGSTOP; }
  // Its exit status, after a step that was none; -1 when a signal ended it.
  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }
  void kill_and_wait() { process_.kill_and_wait(); }

 private:
  bool go_on(__ptrace_request request) {
    return ::ptrace(request, process_.pid(), nullptr, nullptr) == 0 &&
           ::waitpid(process_.pid(), &status_, 0) == process_.pid() && WIFSTOPPED(status_) &&
           WSTOPSIG(status_) == SIGTRAP;
  }

  const OneProcessor processor_;
  local::TestProcess process_;
  int status_ = 0;
  bool traced_ = false;
};

}  // namespace verbena::soft
