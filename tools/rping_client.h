// SPDX-License-Identifier: Apache-2.0
// The asking side of rping: advertises what the server is to READ, then where it is to WRITE.
#pragma once

#include <memory>
#include <optional>

#include "tools/rping_protocol.h"
#include "verbena/verbena.h"

namespace verbena::tools {

class RpingClient {
 public:
  // Errors: those of Connection::connect(), ResourceExhausted.
  static Result<std::unique_ptr<RpingClient>> connect(ProgressEngine& engine, Device& device, const Endpoint& server,
                                                      const RpingSettings& settings);
  RpingClient(const RpingClient&) = delete;
  RpingClient& operator=(const RpingClient&) = delete;

  // Ping `number`, there and back. Errors: TimedOut (no answer within `timeout`), ProtocolError, CorruptData (with
  // settings.validate: not the bytes sent), those of operations.
  Result<void> ping(std::uint64_t number, Duration timeout);
  // What the last ping brought.
  std::span<const std::byte> data() const { return sink_.bytes(); }
  Connection& connection() { return *connection_; }

 private:
  RpingClient(ProgressEngine& engine, const RpingSettings& settings) : engine_(engine), settings_(settings) {}
  // Sends the advertisement and waits for the server's answer to it.
  Result<void> advertise(const MemoryRegion& memory, std::string_view name, Instant deadline);
  ScatterGather inbox() const { return messages_.local(0, RpingAdvertisement::kWireBytes); }
  ScatterGather outbox() const {
    return messages_.local(RpingAdvertisement::kWireBytes, RpingAdvertisement::kWireBytes);
  }
  void tell(const std::string& text) const {
    if (settings_.tell) settings_.tell(text);
  }

  ProgressEngine& engine_;
  const RpingSettings settings_;
  MemoryRegion source_, sink_, messages_;
  Operation send_, receive_;
  std::optional<Connection> connection_;  // ends first: afterwards no operation is in flight
};

}  // namespace verbena::tools
