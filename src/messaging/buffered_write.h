// SPDX-License-Identifier: Apache-2.0
// BufferedWrite (BW): a sender WRITEs its messages into a ring at the receiver, of its own, as
// src/messaging/ring has it. What is to be written where is decided there; here it is posted.
//
// The memory a receiver offers: the ring (twice, where it is mapped twice), and behind it two lines: the
// tail, which the sender moves with Commit::Offset, by a WRITE or an atomic (has_atomic_tail()), and the head, which it
// READs with Acknowledge::Read.
//
// Acknowledge::Send tells the head, in units, by a control after each eighth of the ring, or quarter of the receives
// for immediates. What is under way of those is of one ring and one window, for which the sender keeps receives.
#pragma once

#include <optional>
#include <vector>

#include "messaging/double_mapping.h"
#include "messaging/receiver_end.h"
#include "messaging/ring/reader.h"
#include "messaging/ring/writer.h"
#include "messaging/sender_end.h"

namespace verbena::messaging {

inline constexpr std::uint32_t kHeadControls = 16;  // at once: 8 by bytes; by messages, and a gap, 8
inline constexpr std::uint64_t kTailLine = 0, kHeadLine = 64, kRingLines = 128;

class BufferedWriteSender final : public SenderEnd {
 public:
  BufferedWriteSender(ProgressEngine& engine, const Options& options);
  ~BufferedWriteSender() override;

  std::uint64_t credits() const override;
  bool has_room_for(std::uint32_t bytes) const override;
  bool has_buffer() const override { return may_post(0); }
  std::uint64_t memory_bytes() const override { return image_.size() + buffers_.memory().size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return kHeadControls; }
  Result<void> check_offer(const Offer& theirs, const Settled& settled) const override;
  Result<void> start(const Offer& theirs) override;
  SendResult put(std::span<const Outgoing> messages) override;
  SendResult commit(std::uint32_t slot, std::uint32_t bytes) override;
  void handle_sent(const Completion& completion) override;
  Result<void> handle_given_back(std::uint32_t number) override;
  void look() override { ask_for_head(); }
  bool looks() const override { return starved_ && is_room_awaited(); }
  void want_room() override;

 private:
  static constexpr std::size_t kBatch = 16;
  static constexpr std::uint64_t kAnswer = kHeadLine + ring::kWordBytes;  // what atomics bring, and nobody reads
  static constexpr std::uint64_t kReadId = std::uint64_t{1} << 61;
  struct Batch;
  // What the last request of a batch stands for when it is done.
  struct Signal {
    MessageId message = 0;
    std::uint32_t requests = 0;
    std::uint32_t slot = kNoSlot;
  };

  bool reads_head() const { return settled().kind.acknowledge == Acknowledge::Read; }
  bool may_post(std::size_t beside) const;
  SendResult put_one(const Outgoing& message);
  SendResult put_all(std::span<const Outgoing> messages);
  SendStatus add(const Outgoing& message);
  void add(const ring::RemoteWrite& write, const Outgoing& message, const ring::Reservation& place);
  void add_write(const ring::RemoteWrite& write, const Outgoing& message,
                 const ring::Reservation& place);
  void put_write(const ring::RemoteWrite& write, const Outgoing& message, const ring::Reservation& place);
  void add_tail(const ring::RemoteWrite& write);
  void add_word(const ring::RemoteWrite& write);
  void close_last();
  void begin_batch();
  static bool is_tail(const ring::RemoteWrite& write);
  std::uint64_t place_of(const ring::RemoteWrite& write) const;
  bool write_through(const ring::RemoteWrite& write);
  bool flush(MessageId last, std::uint32_t slot);
  void ask_for_head();
  SendStatus no_room();
  Result<void> take_head(std::uint64_t head);

  std::optional<ring::Writer> writer_;
  std::unique_ptr<Batch> batch_;  // kept, as it is long
  RemoteMemory remote_;
  MemoryRegion image_;          // laid out as the ring; behind it a line of zeros, and one for the head and answers
  std::uint64_t zeros_ = 0;     // offset of those lines
  std::uint64_t tail_ = 0;      // of the ring, after the atomics that were made to move it
  bool atomic_tail_ = false;
  std::uint32_t requests_ = 0;  // posted and not done
  std::uint32_t most_ = 0;
  bool reading_ = false;
  bool starved_ = false;  // refused for want of room, and the head is ours to look for
  std::vector<Signal> signals_;  // in a circle, oldest first
  std::size_t first_signal_ = 0, signal_count_ = 0;
};

class BufferedWriteReceiver final : public ReceiverEnd {
 public:
  BufferedWriteReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~BufferedWriteReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_of_peers(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override;
  void offer(ReceiverPeer& peer, Offer& ours, const Offer* theirs) override;
  Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) override;
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  void handle_told(ReceiverPeer& peer) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer&, const Completion&) override { return {}; }
  bool is_empty(const ReceiverPeer& peer) const override;

 private:
  struct Peer;
  bool poll_one(Peer& peer, Message& out);
  void tell_head(Peer& peer);

  std::uint64_t capacity_ = 0;
};

}  // namespace verbena::messaging
