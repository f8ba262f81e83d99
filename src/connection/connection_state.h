// SPDX-License-Identifier: Apache-2.0
// One connection: the channel its operations use, and the handshakes around it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/changes.h"
#include "async/channel.h"
#include "verbena/connection/connection.h"

namespace verbena {

class ConnectionState final : public Channel::Owner, private EventHandler {
 public:
  // In phase Prepared.
  static Result<std::shared_ptr<ConnectionState>> prepare(EngineState& engine, ConnectionOptions options);
  static Result<std::shared_ptr<ConnectionState>> prepare(EngineState& engine, AttachedDevice& device,
                                                          ConnectionOptions options);
  ~ConnectionState() override;
  // The connection is being destroyed: ends what is in flight, and tells it, while the owner still points here; then
  // leaves the device. Only those who wait below still hold this; they end as Cancelled, as does what callbacks ask for
  // meanwhile. May be repeated, by a callback too.
  void finish();
  ConnectionState(const ConnectionState&) = delete;
  ConnectionState& operator=(const ConnectionState&) = delete;

  // `self` is this, which lives as long as the task.
  using Self = std::shared_ptr<ConnectionState>;
  Task<Result<void>> connect_to(Self self, std::string address, std::vector<std::byte> private_data);
  Task<Result<void>> established(Self self, Duration timeout);
  Task<Result<void>> close(Self self, Duration timeout);
  Result<ConnectionDescription> describe(std::span<const std::byte> user_data);
  Result<void> connect_to(const ConnectionDescription& peer);
  // The passive side: `id` is a request of a peer, which is ours from here on.
  Result<void> accept(provider::ConnectionId id, std::vector<std::byte> theirs,
                      std::span<const std::byte> ours);
  Result<void> status() const;

  Channel& channel() {
    VERBENA_REQUIRE(channel_ != nullptr, "uses a Connection that was moved away while it was destroyed");
    return *channel_;
  }
  EngineState& engine() { return engine_; }
  AttachedDevice& device() { return device_; }
  ConnectionPhase phase() const { return phase_; }
  const Endpoint& peer() const { return peer_; }
  const provider::ConnectionParameters& parameters() const { return parameters_; }
  std::span<const std::byte> private_data() const { return private_data_; }
  provider::Context& context() { return device_.context(); }
  bool is_passive() const { return passive_; }
  // Connected without connection management.
  bool is_described() const { return described_; }
  // "127.0.0.2:7471"; without a port the queue pair's number stands for it.
  std::string peer_name() const override;

  std::function<void()> on_closed;

 private:
  ConnectionState(EngineState& engine, AttachedDevice& device, const ConnectionOptions& options)
      : engine_(engine), device_(device), options_(options), changed_(engine) {}

  void channel_failed() override;
  void tend() override;
  void handle_event(const provider::Event& event) override;

  Result<void> find_peer(const std::string& address, std::size_t private_bytes);
  Result<void> check_reachable(const Gid& remote) const;
  Result<void> request(const Gid& remote, std::span<const std::byte> private_data);
  // `own`: the first PSN we send, where it is not settled yet.
  Result<void> bring_up(std::optional<Psn> own);
  Result<void> bring_up(Psn expected, Psn first);
  void on_response();
  void on_rejected(const provider::Event& event);
  void on_disconnected();
  void end_by_peer();
  struct Connecting;
  struct Closing;
  Task<Result<void>> leave(Instant deadline, Duration timeout);
  void end_here();
  void end_channel();
  static Error closed_here();
  Error close_timeout(const std::string& what, Duration after) const;
  bool is_connecting() const { return phase_ == ConnectionPhase::Connecting && !ending_; }
  Error destroyed() const;
  bool closed() const { return phase_ == ConnectionPhase::Closed || phase_ == ConnectionPhase::Broken; }
  void give_up(Error error);
  void adopt(provider::ConnectionId id);
  void drop_id();
  Error why_not_connected() const;
  Error timeout_error(bool request_is_there);

  EngineState& engine_;
  AttachedDevice& device_;
  const ConnectionOptions options_;
  Changes changed_;  // phase_, and what else decides about the end of a wait
  std::unique_ptr<Channel> channel_;
  ConnectionPhase phase_ = ConnectionPhase::Prepared;
  bool passive_ = false;
  bool described_ = false;
  std::optional<Psn> told_psn_;  // the first we send, as describe() says
  bool was_established_ = false;
  bool unreachable_ = false;   // the request ran out of repetitions
  bool mtu_refused_ = false;   // the request asked for more than the peer's device takes
  std::optional<Error> stale_;  // the request met what the peer still holds of an earlier one
  std::optional<Error> failed_rise_;  // the queue pair did not come up
  std::uint32_t asked_mtu_ = 0;
  bool peer_is_gone_ = false;  // it closed, or never answered: nothing to tell it
  bool told_owner_ = false;
  bool ending_ = false;  // finish() was called: its callbacks find the connection whole, and wait for nothing of it
  bool unsent_ = false;  // the peer closed, and not everything was sent
  Endpoint peer_;
  Gid remote_;
  std::optional<provider::ConnectionId> id_;
  provider::ConnectionParameters parameters_;
  std::vector<std::byte> private_data_;
  std::optional<Error> error_;  // why it is Closed or Broken
};

}  // namespace verbena
