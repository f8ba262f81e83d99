// SPDX-License-Identifier: Apache-2.0
// The answering side of rping: READs what a client advertises, and WRITEs it back.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/rping_protocol.h"
#include "verbena/verbena.h"

namespace verbena::tools {

// One client, driven by the callbacks of its operations.
class RpingVisit {
 public:
  static Result<std::unique_ptr<RpingVisit>> create(ProgressEngine& engine, Device& device,
                                                    const RpingSettings& settings, ConnectionRequest& from);
  ~RpingVisit();
  RpingVisit(const RpingVisit&) = delete;
  RpingVisit& operator=(const RpingVisit&) = delete;

  // The client has closed, is gone, or did wrong.
  bool over() const { return error_.has_value() || connection_->closed(); }
  // Of a visit that is over: what went wrong, if anything did. Errors: ProtocolError, CorruptData, Disconnected (in the
  // middle of a ping), those of operations and connections.
  Result<void> status() const;
  std::uint64_t pings() const { return pings_; }
  const std::string& peer() const { return peer_; }

 private:
  enum class Step : std::uint8_t { AwaitSource, Reading, AwaitSink, Writing };

  RpingVisit(const RpingSettings& settings, std::string peer) : settings_(settings), peer_(std::move(peer)) {}
  Result<void> accept(ProgressEngine& engine, Device& device, ConnectionRequest& from);
  void handle_message();
  void read_source(const RpingAdvertisement& source);
  void handle_data();
  void write_sink(const RpingAdvertisement& sink);
  void answer(Step next);
  void fail(Error error);
  void tell(const std::string& text) const {
    if (settings_.tell) settings_.tell(peer_ + ": " + text);
  }
  ScatterGather inbox() const { return messages_.local(0, RpingAdvertisement::kWireBytes); }
  ScatterGather outbox() const {
    return messages_.local(RpingAdvertisement::kWireBytes, RpingAdvertisement::kWireBytes);
  }
  std::span<std::byte> data() const { return data_.bytes().first(length_); }

  const RpingSettings settings_;
  const std::string peer_;
  MemoryRegion data_, messages_;
  std::uint32_t length_ = 0;  // of the ping at hand
  Step step_ = Step::AwaitSource;
  std::uint64_t pings_ = 0;
  std::optional<Error> error_;
  Operation receive_, move_, send_;
  std::optional<Connection> connection_;  // ends first: afterwards no operation is in flight
};

class RpingServer {
 public:
  // Not persistent: for one client alone.
  static Result<std::unique_ptr<RpingServer>> create(ProgressEngine& engine, Device& device, std::uint16_t port,
                                                     bool persistent, const RpingSettings& settings);

  Endpoint address() const { return listener_->address(); }
  // Takes who came, and tells of who went. True when anything happened.
  bool pump(const std::function<void(const RpingVisit&)>& on_over);

 private:
  static constexpr std::size_t kMaxVisits = 256;

  RpingServer(ProgressEngine& engine, Device& device, bool persistent, const RpingSettings& settings)
      : engine_(engine), device_(device), max_visits_(persistent ? kMaxVisits : 1), settings_(settings) {}
  void welcome(ConnectionRequest request);

  ProgressEngine& engine_;
  Device& device_;
  const std::size_t max_visits_;
  const RpingSettings settings_;
  std::optional<Listener> listener_;
  std::vector<std::unique_ptr<RpingVisit>> visits_;
};

}  // namespace verbena::tools
