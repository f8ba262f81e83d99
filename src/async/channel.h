// SPDX-License-Identifier: Apache-2.0
// A queue pair whose requests are operations: from an operation to the queue, and from a completion back to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/operation_queue.h"
#include "verbena/async/operation.h"
#include "verbena/device/queue_pair.h"

namespace verbena {

class ReceivePoolState;

struct ChannelOptions {
  QueuePairCapabilities queues{};
  provider::PdId domain{};
  ReliabilityOptions reliability{};
  Duration keep_alive{};
  ReceivePoolState* pool = nullptr;  // where its receives come from; null: its own
};

class Channel final : public OperationQueue, private EventHandler {
 public:
  // Whose channel it is. Called from the engine, never from inside a start.
  class Owner {
   public:
    virtual ~Owner() = default;
    // "127.0.0.2:7471", for errors.
    virtual std::string peer_name() const = 0;
    // The channel has just failed; failure() says why. Must neither destroy it nor call users.
    virtual void channel_failed() = 0;
    // Follows, from the engine, what request_tending() asked for. May destroy the channel.
    virtual void tend() = 0;
  };

  // The queue pair is in INIT: receives may be started.
  static Result<std::unique_ptr<Channel>> create(EngineState& engine, AttachedDevice& device,
                                                 const ChannelOptions& options, Owner& owner);
  // finish(), if it was not called.
  ~Channel() override;
  // Ends what is in flight and waits for it. Callbacks run meanwhile, and may use what the channel belongs to. Nothing
  // is told after.
  void finish();

  AttachedDevice& device() { return device_; }
  Qpn qpn() const { return qpn_; }
  const ChannelOptions& options() const { return options_; }

  // The peer is there, or shall be after `grace`: keep-alives begin.
  void set_connected(Duration grace = {});
  // Whether READs and atomics may be under way at all, as both sides agreed.
  void allow_fetches(bool may) { may_fetch_ = may; }
  // Operations end and begin no more. `reason` is what they are told; the first one stays.
  enum class End : std::uint8_t {
    Closed,      // asked for here
    PeerClosed,  // asked for there
    Failed,
  };
  void end(End how, Error reason);
  // Lets the device send the acknowledgements it owes: what the peer sent and we took, it shall know.
  void settle();
  bool ended() const { return end_.has_value(); }
  const Error* failure() const { return reason_.get(); }
  void request_tending();

  // ---- Operations.
  void abort(Operation& operation, Operation::Ending ending) override;
  // Owner::tend() follows when no sends are in flight any more, from now on.
  void tell_when_sent() { tells_when_sent_ = true; }
  std::size_t sends_in_flight() const { return sends_.in_flight(); }
  std::size_t receives_in_flight() const { return receives_.in_flight(); }

  // ---- Requests of the user's own. They take slots as operations do, until their completion is told.
  PostResult post_send(std::span<const SendRequest> requests);
  PostResult post_receive(std::span<const ReceiveRequest> requests);
  // See QueuePair::try_write_now().
  bool try_write_now(const ShortWrite& write) { return !end_ && note_done_now(ops_->write_now(write)); }
  bool try_read_now(const ShortRead& read) { return !end_ && note_done_now(ops_->read_now(read)); }
  void on_completion(std::function<void(const Completion&)> handler);
  void check_alive();

  // ---- For its pool of receives.
  std::string peer_name() const { return owner_.peer_name(); }
  void note_heard() { heard_ = true; }
  // What a request is told that ended with the channel.
  ErrorCode end_code() const;
  std::string end_text() const;

  // ---- For the engine.
  bool completes_in(const CompletionShard& shard) const override;
  void handle_completion(const Completion& completion) override;
  void tend() override;
  void keep_alive(Instant now) override;

 private:
  Channel(EngineState& engine, AttachedDevice& device, const ChannelOptions& options, Owner& owner);
  Result<void> open();
  void handle_event(const provider::Event& event) override;

  Refusal refusal(const Operation& operation) const;
  Refusal post(Operation& operation) override;
  Refusal post_send(Operation& operation, std::uint32_t slot);
  Refusal post_receive(Operation& operation, std::uint32_t slot);
  template <class Request>
  PostResult post_own(Slots& slots, std::uint32_t direction, std::span<const Request> requests,
                      std::vector<Request>& list);
  Result<ScatterGather> atomic_cell(std::uint32_t slot);
  void complete_keep_alive(const Completion& completion);
  void end_keep_alive();
  void complete(Operation& operation, const Completion& completion, std::uint32_t slot);
  Refusal refused(const Operation& operation, PostStatus status) const;
  std::string subject(const Operation& operation) const;
  Error flush_error(const Operation& operation) const;
  Error failure_of_own(const Completion& completion, bool is_receive) const;
  void expect_keep_alive(Instant at);
  void expect_keep_alive_soon();
  bool overran() const;  // a completion queue it uses
  bool fail_what_is_lost();
  bool has_nothing_out() const;
  bool note_done_now(bool done) {
    if (!done) return false;
    engine_.note_activity();
    heard_ = true;
    return true;
  }

  Slots& slots_of(const Operation& operation) { return operation.request_.is_receive ? receives_ : sends_; }

  // The lower half of a request's id: its direction and its slot.
  static constexpr std::uint32_t kReceive = 1u << 31;
  static constexpr std::uint32_t kKeepAlive = kReceive - 1;
  std::uint64_t id_of(std::uint32_t low) const { return std::uint64_t{key_} << 32 | low; }

  AttachedDevice& device_;
  const ChannelOptions options_;
  Owner& owner_;
  std::uint32_t key_ = 0;
  bool registered_ = false;
  Qpn qpn_;
  provider::QueuePairOps* ops_ = nullptr;
  CompletionShard* shard_ = nullptr;
  std::uint32_t promised_ = 0;

  Slots sends_, receives_;
  std::unique_ptr<std::uint64_t[]> cells_;  // results of atomics, one per send slot
  LKey cells_key_;
  bool cells_registered_ = false;

  bool may_fetch_ = true;
  std::optional<End> end_;
  std::unique_ptr<Error> reason_;
  std::unique_ptr<Error> reported_;  // an event said so; a completion may still know better
  std::uint64_t keep_alive_out_ = 0;  // its mark in the engine's window
  bool heard_ = true;  // something completed since the last look
  bool wants_owner_ = false;
  bool tells_when_sent_ = false;
  std::shared_ptr<const std::function<void(const Completion&)>> on_completion_;
  Instant next_keep_alive_ = Instant::never();
};

}  // namespace verbena
