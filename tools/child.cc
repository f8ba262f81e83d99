// SPDX-License-Identifier: Apache-2.0
#include "tools/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

extern char** environ;  // NOLINT(readability-identifier-naming)

namespace verbena::tools {

namespace {

Result<pid_t> spawn(const SignalsLeftToChild& signals, const std::vector<std::string>& words,
                    const std::string& setting, const std::string& variable) {
  std::vector<char*> arguments, environment;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (char** one = environ; *one != nullptr; ++one)
    if (std::string_view(*one).substr(0, variable.size() + 1) != variable + "=") environment.push_back(*one);
  environment.push_back(const_cast<char*>(setting.c_str()));
  environment.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int one : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&usual, one);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setsigmask(&attributes, &signals.mask_of_child());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int number =
      ::posix_spawnp(&pid, arguments.front(), nullptr, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  if (number != 0) return Error::from_errno(number, "run " + words.front());
  return pid;
}

}  // namespace

SignalsLeftToChild::SignalsLeftToChild() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &int_);
  ::sigaction(SIGQUIT, &ignore, &quit_);
  sigemptyset(&passed_);
  for (const int one : {SIGTERM, SIGHUP}) sigaddset(&passed_, one);
  ::pthread_sigmask(SIG_BLOCK, &passed_, &before_);
}

SignalsLeftToChild::~SignalsLeftToChild() {
  constexpr timespec kNow{};
  while (::sigtimedwait(&passed_, nullptr, &kNow) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGINT, &int_, nullptr);
  ::sigaction(SIGQUIT, &quit_, nullptr);
}

void SignalsLeftToChild::pass_on(pid_t pid) const {
  constexpr timespec kGlance{0, 100'000'000};
  const int number = ::sigtimedwait(&passed_, nullptr, &kGlance);
  if (number > 0) ::kill(pid, number);
}

Result<int> run_child(const SignalsLeftToChild& signals, const std::vector<std::string>& words,
                      const std::string& variable, const std::string& value, const std::function<void()>& glance) {
  const auto pid = spawn(signals, words, variable + "=" + value, variable);
  if (!pid) return pid.error();
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(*pid, &status, WNOHANG);
    if (ended == *pid) break;
    if (ended < 0 && errno != EINTR) return Error::from_errno(errno, "wait for " + words.front());
    signals.pass_on(*pid);
    glance();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace verbena::tools
