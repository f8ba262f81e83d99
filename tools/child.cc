// SPDX-License-Identifier: Apache-2.0
#include "tools/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

extern char** environ;  // NOLINT(readability-identifier-naming)

namespace verbena::tools {

namespace {

constexpr std::chrono::milliseconds kGlance{100};

// SIGINT and SIGQUIT of the terminal reach the program itself; it starts with what they did before.
class SignalsLeftToChild {
 public:
  SignalsLeftToChild() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &ignore, &int_);
    ::sigaction(SIGQUIT, &ignore, &quit_);
  }
  SignalsLeftToChild(const SignalsLeftToChild&) = delete;
  SignalsLeftToChild& operator=(const SignalsLeftToChild&) = delete;
  ~SignalsLeftToChild() {
    ::sigaction(SIGINT, &int_, nullptr);
    ::sigaction(SIGQUIT, &quit_, nullptr);
  }

 private:
  struct sigaction int_ {}, quit_ {};
};

Result<pid_t> spawn(const std::vector<std::string>& words, const std::string& setting, const std::string& variable) {
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
  for (const int one : {SIGINT, SIGQUIT, SIGPIPE}) sigaddset(&usual, one);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int number =
      ::posix_spawnp(&pid, arguments.front(), nullptr, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  if (number != 0) return Error::from_errno(number, "run " + words.front());
  return pid;
}

}  // namespace

Result<int> run_child(const std::vector<std::string>& words, const std::string& variable, const std::string& value,
                      const std::function<void()>& glance) {
  const SignalsLeftToChild signals;
  const auto pid = spawn(words, variable + "=" + value, variable);
  if (!pid) return pid.error();
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(*pid, &status, WNOHANG);
    if (ended == *pid) break;
    if (ended < 0 && errno != EINTR) return Error::from_errno(errno, "wait for " + words.front());
    std::this_thread::sleep_for(kGlance);
    glance();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string absolute_path(const std::string& path) {
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path, ignored);
  return ignored ? path : absolute.lexically_normal().string();
}

}  // namespace verbena::tools
