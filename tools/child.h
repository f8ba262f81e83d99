// SPDX-License-Identifier: Apache-2.0
// Another program, run in the place of the user who would have run it.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "verbena/base/result.h"

namespace verbena::tools {

// While it lives, signals are the affair of the program that is run: SIGINT and SIGQUIT of the terminal reach it
// anyway, SIGTERM and SIGHUP are passed on to it. None ends this process, which has to finish once the program has.
// Threads: made before any thread but its own, and used by that one.
class SignalsLeftToChild {
 public:
  SignalsLeftToChild();
  SignalsLeftToChild(const SignalsLeftToChild&) = delete;
  SignalsLeftToChild& operator=(const SignalsLeftToChild&) = delete;
  ~SignalsLeftToChild();

  // What was blocked before: the program's own mask.
  const sigset_t& mask_of_child() const { return before_; }
  // Waits 100 ms at most for a signal, and sends it to `pid`.
  void pass_on(pid_t pid) const;

 private:
  struct sigaction int_ {}, quit_ {};
  sigset_t passed_{}, before_{};
};

// Runs words[0], found by PATH, with `variable` set to `value`, and calls `glance` every 100 ms until it ends. Its exit
// status, or 128 and the signal that ended it, as shells tell it. Errors: NotFound, PermissionDenied, ResourceExhausted
// (it did not start).
Result<int> run_child(const SignalsLeftToChild& signals, const std::vector<std::string>& words,
                      const std::string& variable, const std::string& value, const std::function<void()>& glance);

}  // namespace verbena::tools
