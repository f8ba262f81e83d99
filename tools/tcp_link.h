// SPDX-License-Identifier: Apache-2.0
// A TCP connection for a few short messages, and the waiting for one.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tools/tree.h"
#include "verbena/base/gid.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/connection/endpoint.h"

namespace verbena::tools {

// Every wait ends with Cancelled soon after `stopped` says so, and, where there is a timeout, with TimedOut after it.
using StopQuestion = std::function<bool()>;
// A signal between the question and the wait is noticed this much later.
inline constexpr int kStopGlanceMs = 100;

class TcpLink {
 public:
  // Errors: NotFound (no such host), ConnectionRefused, Unreachable, IoError.
  static Result<TcpLink> connect(const Endpoint& server, Duration timeout, const StopQuestion& stopped);

  // A read() would get something, if only the end; waits so long for it, in whole milliseconds.
  bool ready(Duration wait = {}) const;
  // IoError: the peer has gone.
  Result<void> write(std::span<const char> bytes);
  // Until `bytes` is full. ProtocolError: the peer closed before.
  Result<void> read(std::span<char> bytes, Duration timeout, const StopQuestion& stopped);

 private:
  friend class TcpListener;
  TcpLink(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  UniqueFd fd_;
  std::string peer_;
};

class TcpListener {
 public:
  // `port` 0: a free one. Errors: AddressInUse, AddressNotAvailable, PermissionDenied, IoError.
  static Result<TcpListener> create(const Gid& address, std::uint16_t port);
  std::uint16_t port() const { return port_; }
  // The first peer that comes.
  Result<TcpLink> accept(const StopQuestion& stopped);

 private:
  TcpListener(UniqueFd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}

  UniqueFd fd_;
  std::uint16_t port_;
};

}  // namespace verbena::tools
