// SPDX-License-Identifier: Apache-2.0
// What a process of another user meets, where this one may become another user.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

namespace verbena::soft {

// Mapped in no user namespace that maps one user alone: there nobody can become it.
inline constexpr uid_t kOtherUser = 65534;
inline constexpr const char* kNoOtherUser = "only root of a whole system can become another user";

// What `body` says in a child of that user; nothing when there is no such. `meanwhile` runs here until it has.
inline std::optional<std::string> said_by_another_user(const std::function<std::string()>& body,
                                                       const std::function<void()>& meanwhile = {}) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  constexpr int kCannot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kOtherUser, kOtherUser, kOtherUser) != 0 ||
        ::setresuid(kOtherUser, kOtherUser, kOtherUser) != 0)
      ::_exit(kCannot);
    const std::string words = body();
    ::_exit(::write(ends[1], words.data(), words.size()) == static_cast<ssize_t>(words.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  int status = 0;
  while (::waitpid(child, &status, meanwhile ? WNOHANG : 0) == 0) {
    meanwhile();
    ::usleep(1'000);
  }
  std::string words(65'536, '\0');
  const ssize_t n = ::read(ends[0], words.data(), words.size());
  ::close(ends[0]);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) return std::nullopt;
  words.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return words;
}

}  // namespace verbena::soft
