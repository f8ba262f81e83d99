// SPDX-License-Identifier: Apache-2.0
// SendReceive (SR): a message is a SEND, and finds one of the receives that the receiver has posted for this
// sender.
//
// A sender starts with as many credits as there are receives. A message takes one, and the receiver gives
// them back a quarter of the window at a time, each time by one control: so no more than four of those wait
// at the sender, for which it keeps receives. Neither end ever sends what finds no receive.
#pragma once

#include <memory>
#include <vector>

#include "messaging/receiver_end.h"
#include "messaging/sender_end.h"
#include "messaging/waiting_queue.h"

namespace verbena::messaging {

// Credits that the receiver gives back at once.
constexpr std::uint32_t credit_batch(std::uint32_t depth) { return (depth + 3) / 4; }
inline constexpr std::uint32_t kCreditControls = 4;

class SendReceiveSender : public SenderEnd {
 public:
  SendReceiveSender(ProgressEngine& engine, const Options& options);
  ~SendReceiveSender() override;

  std::uint64_t credits() const override { return depth_ + given_back_ - sent(); }
  bool has_buffer() const override { return free_requests() != 0; }
  std::uint64_t memory_bytes() const override { return buffers_.memory().size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override;
  Result<void> start(const Offer& theirs) override;
  SendResult put(std::span<const Outgoing> messages) override;
  SendResult commit(std::uint32_t slot, std::uint32_t bytes) override;
  void handle_sent(const Completion& completion) override;
  Result<void> handle_given_back(std::uint32_t number) override;

  // ---- For protocols that differ in where a message goes.
  enum class Aim : std::uint8_t { AtReceives, AtMemory };
  SendReceiveSender(ProgressEngine& engine, const Options& options, Aim aim);
  virtual void aim(SendRequest& /*request*/, std::uint64_t /*number*/) const {}
  // No sooner than the receiver gave them: see credits().
  void set_credits(std::uint32_t at_first, std::uint32_t most) {
    depth_ = at_first;
    most_ = most;
  }
  Result<void> add_credits(std::uint64_t more);

 private:
  static constexpr std::size_t kBatch = 32;
  // Requests of one batch, and where their bytes stand.
  struct Batch;

  // A credit may be back before the completion of the SEND that used it.
  std::uint64_t free_requests() const { return in_flight_.size() - (sent() - completed_); }
  bool add(Batch& batch, const Outgoing& message, std::uint64_t first);
  std::size_t flush(Batch& batch, std::uint64_t first);
  void add_buffer(Batch& batch, std::uint32_t slot, std::uint32_t bytes);

  const bool aims_ = false;
  std::unique_ptr<Batch> batch_;  // kept, as it is long
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t depth_ = 0;               // credits at first
  std::uint32_t most_ = 0;                // and at most, at any time
  std::uint64_t given_back_ = 0;          // those that came since
  std::uint64_t completed_ = 0;           // messages
  bool closed_ = false;                   // the device refused the last batch for good
  std::vector<std::uint32_t> in_flight_;  // by message modulo their number: its buffer, or kNoSlot
};

class SendReceiveReceiver final : public ReceiverEnd {
 public:
  SendReceiveReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~SendReceiveReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_of_peers(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return 0; }
  Result<void> prepare(ReceiverPeer& peer) override;
  Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) override;
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) override;
  void handle_told(ReceiverPeer& peer) override;
  bool is_empty(const ReceiverPeer& peer) const override;

 private:
  struct Peer;
  struct Ready {
    Peer* peer = nullptr;
    std::uint32_t slot = 0, bytes = 0;
  };
  void post_receives(Peer& peer);
  void tell(Peer& peer);

  std::size_t stride_ = 0;
  WaitingQueue<Ready> ready_;  // messages that wait to be taken; as many as there are receives
};

}  // namespace verbena::messaging
