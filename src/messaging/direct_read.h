// SPDX-License-Identifier: Apache-2.0
// DirectRead (DR): the sender announces where a message stands, the receiver READs it to where it wants it,
// and says how many it has read: then the sender's memory is free, and its credit back.
//
// READs of one connection complete in order, so messages do. An announcement takes a credit and a small
// receive, of which there is one for each; an answer takes one of as many receives at the sender, as there is
// at most one for each message. Fenced, an answer follows its READ at once and the device holds it until that
// is done; otherwise many READs are under way, and one answer does for those that complete together.
#pragma once

#include <optional>
#include <vector>

#include "messaging/receiver_end.h"
#include "messaging/sender_end.h"
#include "messaging/waiting_queue.h"

namespace verbena::messaging {

// What an announcement says.
//
//     0         8     12       16
//     | address | key | length |     little-endian
struct Announcement {
  static constexpr std::uint32_t kWireBytes = 16;
  std::uint64_t address = 0;
  RKey rkey{};
  std::uint32_t bytes = 0;
};

class DirectReadSender final : public SenderEnd {
 public:
  DirectReadSender(ProgressEngine& engine, const Options& options) : SenderEnd(engine, options) {}
  ~DirectReadSender() override { drop_connection(); }

  std::uint64_t credits() const override { return depth_ + given_back_ - sent(); }
  bool has_buffer() const override { return sent() < completed_ + in_flight_.size(); }
  std::uint64_t memory_bytes() const override { return buffers_.memory().size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return options().depth; }
  Result<void> start(const Offer& theirs) override;
  SendResult put(std::span<const Outgoing> messages) override;
  SendResult commit(std::uint32_t slot, std::uint32_t bytes) override;
  void handle_sent(const Completion& completion) override;
  Result<void> handle_given_back(std::uint32_t number) override;

 private:

  SendStatus announce(std::uint64_t number, const Announcement& announcement, std::uint32_t slot);
  Announcement announcement_of(std::uint32_t slot, std::uint32_t bytes) const;

  std::uint32_t depth_ = 0;
  std::uint64_t given_back_ = 0;
  std::uint64_t completed_ = 0;           // announcements whose completion was seen
  std::vector<std::uint32_t> in_flight_;  // by message modulo their number: its buffer, or kNoSlot
};

class DirectReadReceiver final : public ReceiverEnd {
 public:
  DirectReadReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~DirectReadReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_.size() + memory_of_peers(); }

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
  void handle_control_in(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) override;
  void handle_told(ReceiverPeer& peer) override;
  bool has_all(const ReceiverPeer& peer, std::uint64_t total) const override;
  bool is_empty(const ReceiverPeer& peer) const override;
  void ask_for_places() override { start_reads(); }

 private:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;
  struct Peer;
  // A message that is being read, or waits to be taken.
  struct Fetch {
    Peer* peer = nullptr;
    std::uint32_t slot = kNoSlot;  // kNoSlot: where the program wants it
    std::uint32_t bytes = 0;
    std::uint64_t address = 0;
  };

  void post_receive(Peer& peer, std::uint32_t slot);
  void read_on();
  void start_reads();
  void tell(Peer& peer);
  bool start_read(Peer& peer);
  bool may_take_slot(const Peer& peer) const;
  void release_slot(Peer& peer, std::uint32_t slot);

  MemoryRegion memory_;  // buffers for all senders
  std::size_t stride_ = 0;
  std::vector<std::uint32_t> free_;
  WaitingQueue<Fetch> ready_;
  std::size_t turn_ = 0;  // whose announcement is next
};

}  // namespace verbena::messaging
