// SPDX-License-Identifier: Apache-2.0
#include "tools/message_child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "tools/safe_path.h"

extern char** environ;  // NOLINT(readability-identifier-naming)

namespace verbena::tools {

namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr std::string_view kGreeting = "listening on ";
constexpr std::size_t kMaxLine = 4096;
// Between asking it to end and asking harder.
constexpr Duration kGrace = Duration::seconds(2);

// Its standard output and standard error go to `out`.
Result<pid_t> spawn(const std::vector<std::string>& words, int out) {
  std::vector<char*> arguments;
  std::string name = "verbena";
  arguments.push_back(name.data());
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int one : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) sigaddset(&usual, one);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int number = ::posix_spawn(&pid, kThisProgram, &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (number != 0) return Error::from_errno(number, "start the other end");
  return pid;
}

Result<std::string> first_line(int from, Duration patience, const StopQuestion& stopped) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience.ns);
  std::string line;
  while (line.size() < kMaxLine) {
    if (stopped()) return Error(ErrorCode::Cancelled, "interrupted");
    if (std::chrono::steady_clock::now() >= deadline)
      return Error(ErrorCode::TimedOut, "the other end did not say where it listens");
    pollfd one{from, POLLIN, 0};
    if (::poll(&one, 1, kStopGlanceMs) <= 0) continue;
    char byte = 0;
    if (::read(from, &byte, 1) != 1 || byte == '\n') break;
    line += byte;
  }
  return line;
}

}  // namespace

Result<MessageChild> MessageChild::start(const std::vector<std::string>& words, Duration patience,
                                         const StopQuestion& stopped) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno(errno, "start the other end");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  auto pid = spawn(words, to.get());
  if (!pid) return std::move(pid).error();
  MessageChild child(*pid);
  to = UniqueFd();
  auto line = first_line(from.get(), patience, stopped);
  if (!line) return std::move(line).error();
  auto address = Endpoint::parse(line->rfind(kGreeting, 0) == 0 ? line->substr(kGreeting.size()) : "");
  if (!address) return Error(ErrorCode::IoError, "the other end did not start: " + printable(*line));
  child.address_ = std::move(*address);
  return child;
}

MessageChild::MessageChild(MessageChild&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), address_(std::move(other.address_)) {}

bool MessageChild::wait_end(Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience.ns);
  do {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

MessageChild::~MessageChild() {
  if (pid_ <= 0 || wait_end(kGrace)) return;
  for (const int how : {SIGTERM, SIGKILL}) {
    ::kill(pid_, how);
    if (wait_end(kGrace)) return;
  }
}

}  // namespace verbena::tools
