// SPDX-License-Identifier: Apache-2.0
#include "tools/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace verbena::tools {

namespace {

using Clock = std::chrono::steady_clock;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  SocketAddress() = default;
  SocketAddress(const Gid& gid, std::uint16_t port) {
    if (gid.is_ipv4()) {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(port);
      std::memcpy(&v4->sin_addr, gid.bytes.data() + 12, 4);
      length = sizeof *v4;
    } else {
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(port);
      std::memcpy(&v6->sin6_addr, gid.bytes.data(), 16);
      length = sizeof *v6;
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  std::uint16_t port() const {
    return ntohs(storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                              : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
};

// Nothing waits for the acknowledgement of what was said before: who leaves with something unread resets the
// connection, and last words that waited would be thrown away.
void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Clock::time_point after(Duration timeout) {
  return timeout == Duration::forever() ? Clock::time_point::max()
                                        : Clock::now() + std::chrono::nanoseconds(timeout.ns);
}

Result<void> wait_ready(int fd, short events, Clock::time_point deadline, const StopQuestion& stopped,
                        const std::string& what) {
  for (;;) {
    if (stopped()) return Error(ErrorCode::Cancelled, what + ": interrupted");
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, kStopGlanceMs);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error::from_errno(errno, what);
    if (Clock::now() >= deadline) return Error(ErrorCode::TimedOut, what + ": nothing came in time");
  }
}

}  // namespace

Result<TcpLink> TcpLink::connect(const Endpoint& server, Duration timeout, const StopQuestion& stopped) {
  const std::string what = "connect to TCP " + server.to_string();
  auto host = server.resolve();
  if (!host) return std::move(host).error();
  SocketAddress address(*host, server.port);
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return Error::from_errno(errno, what);
  send_at_once(fd.get());
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return Error::from_errno(errno, what);
    if (auto ready = wait_ready(fd.get(), POLLOUT, after(timeout), stopped, what); !ready)
      return ready.error().code() == ErrorCode::TimedOut ? Error(ErrorCode::Unreachable, what + ": no answer")
                                                         : ready.error();
    int number = 0;
    socklen_t length = sizeof number;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &number, &length);
    if (number != 0) return Error::from_errno(number, what);
  }
  return TcpLink(std::move(fd), server.to_string());
}

bool TcpLink::ready(Duration wait) const {
  pollfd one{fd_.get(), POLLIN, 0};
  return ::poll(&one, 1, static_cast<int>(wait.ns / 1'000'000)) > 0;
}

namespace {

// A process that is killed with bytes unread resets the connection.
Error broken_off(int number, const std::string& what) {
  if (number == ECONNRESET || number == EPIPE)
    return Error(ErrorCode::ConnectionLost, what + ": the other side is gone");
  return Error::from_errno(number, what);
}

}  // namespace

// The few bytes of an exchange fit any socket's buffer.
Result<void> TcpLink::write(std::span<const char> bytes) {
  const ssize_t written = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (written < 0) return broken_off(errno, "write to " + peer_);
  if (static_cast<std::size_t>(written) != bytes.size())
    return Error(ErrorCode::IoError, "write to " + peer_ + ": it takes nothing");
  return {};
}

Result<void> TcpLink::read(std::span<char> bytes, Duration timeout, const StopQuestion& stopped) {
  const std::string what = "read from TCP " + peer_;
  const auto deadline = after(timeout);
  for (std::size_t got = 0; got < bytes.size();) {
    if (auto ready = wait_ready(fd_.get(), POLLIN, deadline, stopped, what); !ready) return ready;
    const ssize_t n = ::recv(fd_.get(), bytes.data() + got, bytes.size() - got, 0);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return broken_off(errno, what);
    if (n == 0)
      return Error(ErrorCode::ProtocolError, what + ": it closed after " + std::to_string(got) + " of " +
                                                 std::to_string(bytes.size()) + " bytes");
    got += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  return {};
}

Result<TcpListener> TcpListener::create(const Gid& address, std::uint16_t port) {
  const std::string what = "listen on TCP " + Endpoint{address.to_string(), port}.to_string();
  SocketAddress own(address, port);
  UniqueFd fd(::socket(own.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd.is_open() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), own.get(), own.length) != 0 || ::listen(fd.get(), 1) != 0 ||
      ::getsockname(fd.get(), own.get(), &own.length) != 0)
    return Error::from_errno(errno, what);
  return TcpListener(std::move(fd), own.port());
}

Result<TcpLink> TcpListener::accept(const StopQuestion& stopped) {
  for (;;) {
    if (auto ready = wait_ready(fd_.get(), POLLIN, Clock::time_point::max(), stopped, "wait for a client"); !ready)
      return std::move(ready).error();
    SocketAddress peer;
    peer.length = sizeof peer.storage;
    UniqueFd fd(::accept4(fd_.get(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.is_open()) {
      send_at_once(fd.get());
      return TcpLink(std::move(fd), "the client");
    }
    if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) return Error::from_errno(errno, "accept a client");
  }
}

}  // namespace verbena::tools
