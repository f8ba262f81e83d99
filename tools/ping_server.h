// SPDX-License-Identifier: Apache-2.0
// The answering side of `verbena ping`: sends messages back, and lends memory for the rest.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/ping_protocol.h"
#include "verbena/verbena.h"

namespace verbena::tools {

// One client.
class PingVisit {
 public:
  static Result<std::unique_ptr<PingVisit>> create(ProgressEngine& engine, Device& device, const PingRequest& request,
                                                   ConnectionRequest& from);
  ~PingVisit();
  PingVisit(const PingVisit&) = delete;
  PingVisit& operator=(const PingVisit&) = delete;

  // The client has closed, or is gone.
  bool over() const { return connection_->closed(); }
  Result<void> status() const { return connection_->status(); }
  const std::string& peer() const { return peer_; }
  const PingRequest& request() const { return request_; }
  std::uint64_t memory_bytes() const { return region_.size(); }

 private:
  static constexpr std::size_t kBuffers = 2;

  PingVisit(const PingRequest& request, std::string peer) : request_(request), peer_(std::move(peer)) {}
  Result<void> accept(ProgressEngine& engine, Device& device, ConnectionRequest& from);
  ScatterGather buffer(std::size_t index, std::uint32_t bytes) const;
  void send_back(std::size_t index);
  void receive_again(std::size_t index);

  const PingRequest request_;
  const std::string peer_;
  MemoryRegion region_;
  std::array<Operation, kBuffers> receives_, sends_;
  std::optional<Connection> connection_;
};

class PingServer {
 public:
  static Result<std::unique_ptr<PingServer>> create(ProgressEngine& engine, Device& device, std::uint16_t port);

  Endpoint address() const { return listener_->address(); }
  // Takes who came, and tells of who went. True when anything happened.
  using Teller = std::function<void(const PingVisit&)>;
  bool pump(const Teller& on_begin, const Teller& on_over);

 private:
  static constexpr std::size_t kMaxVisits = 64;
  static constexpr std::uint64_t kMaxMemoryBytes = 256u << 20;  // lent to all clients together

  PingServer(ProgressEngine& engine, Device& device) : engine_(engine), device_(device) {}
  void welcome(ConnectionRequest request, const Teller& on_begin);

  ProgressEngine& engine_;
  Device& device_;
  std::optional<Listener> listener_;
  std::vector<std::unique_ptr<PingVisit>> visits_;
};

}  // namespace verbena::tools
