// SPDX-License-Identifier: Apache-2.0
// DirectWrite (DW): the receiver grants memory, and a message is one WRITE into the next piece of it; its
// immediate says which message it is, and its completion how long.
//
// A grant is a credit with an address. Grants travel in SENDs, several in one; at most `depth` are open, and
// the sender keeps as many receives for them. They are used in the order in which they were given, so both
// ends count and name none.
#pragma once

#include <optional>
#include <vector>

#include "messaging/receiver_end.h"
#include "messaging/send_receive.h"

namespace verbena::messaging {

// Memory for one message, as it travels.
//
//     0         8     12      16
//     | address | key | bytes |     little-endian
struct Grant {
  static constexpr std::uint32_t kWireBytes = 16;
  static constexpr std::uint32_t kMostTogether = 8;  // in one SEND
  std::uint64_t address = 0;
  RKey rkey{};
  std::uint32_t bytes = 0;
};

class DirectWriteSender final : public SendReceiveSender {
 public:
  DirectWriteSender(ProgressEngine& engine, const Options& options)
      : SendReceiveSender(engine, options, Aim::AtMemory) {}
  ~DirectWriteSender() override { drop_connection(); }

  std::uint64_t memory_bytes() const override { return SendReceiveSender::memory_bytes() + inbox_.size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return 0; }
  bool has_own_receives() const override { return true; }
  Result<void> prepare(Connection& connection) override;
  Result<void> start(const Offer& theirs) override;
  void aim(SendRequest& request, std::uint64_t number) const override;
  Result<void> handle_given_back(std::uint32_t number) override;
  Result<void> handle_received(const Completion& completion) override;
  void handle_control_in(const Completion& completion) override { post_inbox(completion.id); }

 private:
  void post_inbox(std::uint64_t id);
  Result<void> check_grants() const;

  MemoryRegion inbox_;         // where grants arrive
  std::vector<Grant> grants_;  // by message modulo their number
  std::uint64_t granted_ = 0;  // since the beginning
  std::uint32_t shortest_ = 0xffffffff;
};

class DirectWriteReceiver final : public ReceiverEnd {
 public:
  DirectWriteReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~DirectWriteReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_of_peers(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return options().depth; }
  Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) override;
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) override;
  bool is_empty(const ReceiverPeer& peer) const override;
  void ask_for_places() override;

 private:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;
  struct Peer;
  // Memory that was granted, or holds a message.
  struct Place {
    Peer* peer = nullptr;
    std::uint32_t slot = kNoSlot;  // kNoSlot: the program's
    std::uint32_t bytes = 0;
    std::uint64_t address = 0;
  };

  void grant(Peer& peer);
  void send_grants(Peer& peer);
  Grant next_grant(Peer& peer, const std::optional<LentMemory>& place);

  std::size_t stride_ = 0;
  WaitingQueue<Place> ready_;
  std::size_t turn_ = 0;  // for whom places were asked for last
};

}  // namespace verbena::messaging
