// SPDX-License-Identifier: Apache-2.0
// What a process meets that has users, a network and process numbers of its own, where this system lets it.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

#include "soft/driver/descriptor.h"

namespace verbena::soft::local {

inline constexpr const char* kNoContainer = "no namespaces can be made here";

struct TestContainer {
  bool knows_us = true;  // this user is root there; otherwise a stranger

  // What `body` says in there; nothing when there is no such. `meanwhile` runs here until it has.
  std::optional<std::string> said(const std::function<std::string()>& body,
                                  const std::function<void()>& meanwhile) const {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const Descriptor in(ends[0]), out(ends[1]);
    constexpr int kCannot = 77;
    const pid_t outer = ::fork();
    if (outer == 0) {
      if (!enter()) ::_exit(kCannot);
      const pid_t inner = ::fork();  // the first process of its numbers
      if (inner == 0) {
        const std::string words = body();
        ::_exit(::write(out.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()) ? 0 : 1);
      }
      int status = 1;
      ::waitpid(inner, &status, 0);
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int status = 0;
    while (::waitpid(outer, &status, WNOHANG) == 0) {
      meanwhile();
      ::usleep(100);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) == kCannot) return std::nullopt;
    std::string words(60'000, '\0');
    ::fcntl(in.get(), F_SETFL, O_NONBLOCK);
    const ssize_t n = ::read(in.get(), words.data(), words.size());
    words.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return words;
  }

 private:
  bool enter() const {
    const std::string uid = "0 " + std::to_string(::geteuid()) + " 1";
    const std::string gid = "0 " + std::to_string(::getegid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC) != 0) return false;
    if (!knows_us) return true;
    return write_file("/proc/self/uid_map", uid) && write_file("/proc/self/setgroups", "deny") &&
           write_file("/proc/self/gid_map", gid);
  }
  static bool write_file(const char* path, const std::string& text) {
    const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
    return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
};

}  // namespace verbena::soft::local
