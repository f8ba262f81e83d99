// SPDX-License-Identifier: Apache-2.0
// A process that shares an address, told by a pipe what to do.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "soft/driver/udp/shared_address.h"

namespace verbena::soft::udp::testing {

inline constexpr std::uint32_t kTcp = 0x0106'0000;

inline std::string answer_of(const Result<void>& result) {
  return result ? "ok" : result.error().to_string();
}

inline bool arrives(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 5'000) == 1;
}

// Whom a process is of, where it may become him, and whom it names.
struct As {
  std::optional<uid_t> user;
  std::vector<std::uint32_t> names;
};

// A process at an address. It does what a line says and answers with a line.
class Member {
 public:
  enum class When { AtOnce, Later };
  // Later: by come(). A process is forked before this one has threads: a sanitizer wants no threads in a
  // child of such.
  explicit Member(const Gid& address, When when = When::AtOnce, const As& as = {}) {
    int in[2], out[2];
    EXPECT_TRUE(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(in[1]);
      ::close(out[0]);
      if (when == When::Later) read_line(in[0]);
      run(address, as, in[0], out[1]);
      ::_exit(0);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = Descriptor(in[1]);
    from_ = Descriptor(out[0]);
    if (when == When::AtOnce) greeting = read_line(from_.get());
  }
  void come() { greeting = ask("come"); }
  ~Member() { kill(SIGKILL); }
  Member(Member&& other) noexcept
      : greeting(other.greeting),
        pid_(std::exchange(other.pid_, 0)),
        to_(std::move(other.to_)),
        from_(std::move(other.from_)) {}
  Member& operator=(Member&&) = delete;

  std::string ask(const std::string& words) {
    if (words != "come" && !is_in()) {
      ADD_FAILURE() << greeting;
      return "not there";
    }
    EXPECT_EQ(::write(to_.get(), (words + "\n").data(), words.size() + 1),
              static_cast<ssize_t>(words.size()) + 1);
    return read_line(from_.get());
  }
  void kill(int signal) {
    if (pid_ == 0) return;
    ::kill(pid_, signal);
    if (signal == SIGSTOP || signal == SIGCONT) return;
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  // Ends it in good order.
  void leave() {
    ask("leave");
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool is_in() const { return greeting.rfind("slot ", 0) == 0; }
  unsigned slot() const { return static_cast<unsigned>(std::stoul(greeting.substr(5))); }

  std::string greeting;  // "slot N", or why not

 private:
  static std::string read_line(int fd) {
    std::string line;
    for (char c; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  static bool become(uid_t user) {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
  }
  static void run(const Gid& address, const As& as, int in, int out) {
    const auto say = [out](const std::string& words) {
      [[maybe_unused]] const ssize_t n = ::write(out, (words + "\n").data(), words.size() + 1);
    };
    if (as.user && !become(*as.user)) return say("cannot become another user");
    const auto users = AddressUsers::with(as.names);
    if (!users) return say(users.error().to_string());
    auto opened = address.is_zero() ? SharedAddress::open_free_loopback(*users) : SharedAddress::open(address, *users);
    if (!opened) return say(opened.error().to_string());
    std::unique_ptr<SharedAddress> shared = std::move(*opened);
    Descriptor socket = std::move(*shared->receiving_socket());
    say("slot " + std::to_string(shared->ids().value));
    for (;;) {
      std::istringstream words(read_line(in));
      std::string command;
      std::uint32_t number = 0;
      words >> command >> number;
      std::byte bytes[512];
      if (command == "listen") say(answer_of(shared->announce(kTcp | number)));
      if (command == "stop") say(answer_of(shared->withdraw(kTcp | number)));
      if (command == "address") say(shared->local().gid.to_string());
      if (command == "explain") say(shared->explain());
      if (command == "read")
        say(arrives(socket.get()) ? std::to_string(::recv(socket.get(), bytes, 512, 0)) : "nothing");
      if (command == "mislead") {
        std::byte two[200]{};
        for (std::byte* one : {two, two + 100}) one[5] = static_cast<std::byte>(number << 2);  // a queue pair number
        shared->sort({.path = {address, address, 50'000}, .bytes = two, .segment_bytes = 100});
        say("ok");
      }
      if (command == "become") say(become(number) ? "ok" : std::strerror(errno));
      if (command == "quiet") say(::recv(socket.get(), bytes, 512, MSG_DONTWAIT) < 0 ? "yes" : "no");
      if (command == "inbox" || command == "glance") {
        std::size_t total = 0;
        if (command == "glance" || arrives(shared->inbox().fd()))
          for (const Stray& stray : shared->inbox().take()) total += stray.bytes.size();
        say(std::to_string(total));
      }
      if (command == "descriptors") {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = number;
        say(::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "ok" : std::strerror(errno));
      }
      if (command == "leave" || command.empty()) {
        shared.reset();
        return say("left");
      }
    }
  }

  pid_t pid_ = 0;
  Descriptor to_, from_;
};

}  // namespace verbena::soft::udp::testing
