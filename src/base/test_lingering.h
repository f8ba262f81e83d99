// SPDX-License-Identifier: Apache-2.0
// A descriptor whose closing waits: a TCP socket with more to send than its other end takes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/assert.h"

namespace verbena {

// Until this is destroyed, or for ten minutes. The descriptor itself is the user's to close.
class Lingering {
 public:
  Lingering() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int little = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    const linger waits{1, 600};
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    const bool connected = ::bind(listener, any, size) == 0 && ::listen(listener, 1) == 0 &&
                           ::getsockname(listener, any, &size) == 0 && ::connect(fd_, any, size) == 0;
    VERBENA_ASSERT(connected && ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &waits, sizeof waits) == 0);
    deaf_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    const std::vector<char> much(1 << 16);
    while (::send(fd_, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  }
  Lingering(Lingering&& other) noexcept : fd_(other.fd_), deaf_(std::exchange(other.deaf_, -1)) {}
  Lingering& operator=(Lingering&&) = delete;
  // What was never read resets the connection.
  ~Lingering() {
    if (deaf_ >= 0) ::close(deaf_);
  }

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  int deaf_ = -1;
};

}  // namespace verbena
