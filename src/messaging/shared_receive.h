// SPDX-License-Identifier: Apache-2.0
// SharedReceive: send-receive in which all senders' messages find one pool of receives.
//
// Every receive of the pool is promised to one sender at most. Each sender has two for certain (one where its depth is
// one), so that none holds back another, nor a message that the receiver keeps the next of the same sender; what is
// left over of `depth` goes to those that use up what they have, and comes back from those that have more than their
// share when others could use it. Beside `depth` there are two receives per sender: its second one, and one for its
// Finish.
#pragma once

#include <memory>
#include <unordered_map>

#include "messaging/receiver_end.h"
#include "messaging/waiting_queue.h"
#include "verbena/async/receive_pool.h"

namespace verbena::messaging {

class SharedReceiveReceiver final : public ReceiverEnd {
 public:
  SharedReceiveReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~SharedReceiveReceiver() override;

  std::uint64_t memory_bytes() const override { return memory_.size(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::shared_ptr<ReceivePool> receive_pool() override { return pool_; }
  std::uint32_t control_receives() const override { return 0; }
  Result<void> prepare(ReceiverPeer& peer) override;
  void offer(ReceiverPeer& peer, Offer& ours, const Offer* theirs) override;
  Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) override;
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) override;
  void handle_told(ReceiverPeer& peer) override;
  bool is_empty(const ReceiverPeer& peer) const override;
  void handle_fenced(ReceiverPeer& peer) override;

 private:
  struct Peer;
  struct Ready {
    Peer* peer = nullptr;
    std::uint32_t slot = 0, bytes = 0;
  };

  void handle_done(std::uint32_t slot);
  void handle_arrival(Peer& peer, std::uint32_t slot);
  void give_credit(Peer& peer);
  void grow(Peer& peer);
  void tell(Peer& peer);
  std::uint32_t fair_share() const;
  void forget_number(const Peer& peer);

  std::size_t stride_ = 0;
  MemoryRegion memory_;
  std::shared_ptr<ReceivePool> pool_;
  std::unique_ptr<Operation[]> receives_;  // by slot
  std::uint32_t slots_ = 0;
  std::uint32_t spare_ = 0;  // of the pool's, promised to nobody and kept for nobody
  std::unordered_map<std::uint32_t, Peer*> by_qpn_;
  WaitingQueue<Ready> ready_;  // messages that wait to be taken
};

}  // namespace verbena::messaging
