// SPDX-License-Identifier: Apache-2.0
// The asking side of `verbena ping`: one operation at a time, and how long it took.
#pragma once

#include <memory>
#include <optional>

#include "tools/ping_protocol.h"
#include "verbena/verbena.h"

namespace verbena::tools {

class PingClient {
 public:
  // Errors: those of Connection::connect(), ResourceExhausted, ProtocolError (no ping server there).
  static Result<std::unique_ptr<PingClient>> connect(ProgressEngine& engine, Device& device, const Endpoint& server,
                                                     const PingRequest& request, const ConnectionOptions& options);
  PingClient(const PingClient&) = delete;
  PingClient& operator=(const PingClient&) = delete;

  // One operation. send: until the same bytes are back; the others: until they are done. Errors: TimedOut (`timeout`
  // passed), CorruptData (not the bytes sent, not the value expected), those of operations.
  Result<Duration> ping(std::uint64_t sequence, Duration timeout);
  Connection& connection() { return *connection_; }

 private:
  PingClient(ProgressEngine& engine, const PingRequest& request) : engine_(engine), request_(request) {}
  void prepare(std::uint64_t sequence);
  void start(std::uint64_t sequence);
  Result<void> check(std::uint64_t sequence);

  ProgressEngine& engine_;
  const PingRequest request_;
  MemoryRegion region_;  // what is sent or written, then what comes back
  RemoteMemory remote_;
  Operation operation_, receive_;
  std::uint64_t cell_ = 0;  // what the remote cell holds, for atomics
  std::optional<Connection> connection_;
};

}  // namespace verbena::tools
