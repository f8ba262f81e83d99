// SPDX-License-Identifier: Apache-2.0
// SharedWrite (SW): many senders WRITE into one ring, and reserve in it by fetch-and-add:
// src/messaging/ring/shared.h says how, and what becomes of one that dies. Here its requests are posted.
//
// The memory a receiver offers to all: the ring, and behind it a line with the tail, one with the head, and a
// cell for each sender. What is said with it to a sender: the ring's size, and which cell is its own (its
// seat).
//
// A sender takes a message when its window has room, and the ring as far as it knows; the message waits in
// its own memory until the place for it is reserved, which takes a round trip. The window is the receives
// that the receiver keeps for it: a message is in it until the head has passed it.
#pragma once

#include <optional>
#include <vector>

#include "messaging/receiver_end.h"
#include "messaging/ring/shared_reader.h"
#include "messaging/ring/shared_writer.h"
#include "messaging/ring_options.h"
#include "messaging/sender_end.h"

namespace verbena::messaging {

// So long a wait may be somebody's fault: whoever waits says so, and the receiver looks who it is.
inline constexpr Duration kLongWait = Duration::milliseconds(20);
// Offsets behind the ring.
inline constexpr std::uint64_t kSharedTail = 0, kSharedHead = 64, kSharedCells = 128;

// Offer::extra.
struct SharedPlace {
  std::uint64_t capacity = 0;
  std::uint32_t seat = 0;

  std::uint64_t pack() const {
    return std::uint64_t{seat} << 8 | static_cast<unsigned>(std::countr_zero(capacity));
  }
  static SharedPlace unpack(std::uint64_t extra) {
    return {std::uint64_t{1} << (extra & 63), static_cast<std::uint32_t>(extra >> 8)};
  }
};

class SharedWriteSender final : public SenderEnd {
 public:
  SharedWriteSender(ProgressEngine& engine, const Options& options) : SenderEnd(engine, options) {}
  ~SharedWriteSender() override { drop_connection(); }

  std::uint64_t credits() const override;
  bool has_room_for(std::uint32_t bytes) const override;
  bool has_buffer() const override { return taken_ - done_ < items_.size(); }
  std::uint64_t memory_bytes() const override { return buffers_.memory().size() + answers_.size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return 0; }
  Result<void> start(const Offer& theirs) override;
  SendResult put(std::span<const Outgoing> messages) override;
  SendResult commit(std::uint32_t slot, std::uint32_t bytes) override;
  void handle_sent(const Completion& completion) override;
  Result<void> handle_given_back(std::uint32_t number) override;
  void look() override { ask_for_head(); }
  bool looks() const override { return starved_ && (is_room_awaited() || !all_posted()); }
  void want_room() override;
  bool all_posted() const override { return posted_ == taken_; }

 private:
  using Step = ring::SharedWriter::Step;
  static constexpr std::uint64_t kReadId = std::uint64_t{1} << 61, kAddId = kReadId + 1;
  // A message that was taken, until it is done.
  struct Item {
    ScatterGather memory{};
    std::uint32_t slot = kNoSlot;
    std::uint64_t end = 0;  // of its place in the ring, when it was posted
  };
  // What goes to the device together.
  struct Batch {
    std::array<SendRequest, 4> requests;
    std::array<ScatterGather, 4> pieces;
    std::array<std::uint64_t, 4> words;
    std::size_t size = 0;
  };

  Item& item(MessageId number) { return items_[number % items_.size()]; }
  void take(const ScatterGather& memory, std::uint32_t slot);
  void go_on();
  void begin(Batch& batch);
  void write_message(Batch& batch);
  SendRequest& add_word(Batch& batch, ring::CellWord where, std::uint64_t word);
  bool flush(Batch& batch);
  void ask_for_head();
  void say_how_long();
  void handle_words(ring::Fault fault);
  std::uint64_t lines() const { return remote_.address + geometry_.frames().memory_bytes(); }

  ring::SharedGeometry geometry_;
  std::optional<ring::SharedWriter> writer_;
  RemoteMemory remote_;
  std::uint32_t seat_ = 0;
  MemoryRegion answers_;  // a line for what atomics and READs bring
  std::vector<Item> items_;  // by message modulo their number
  MessageId taken_ = 0, posted_ = 0, done_ = 0, released_ = 0;
  std::uint64_t queued_bytes_ = 0;  // frames of what is taken and has no place yet
  std::uint64_t tail_ = 0;          // as far as known
  bool said_waiting_ = false;
  bool said_long_ = false;
  Instant waits_since_;
  bool reading_ = false;
  bool starved_ = false;  // somebody waits for the head to move
};

class SharedWriteReceiver final : public ReceiverEnd {
 public:
  SharedWriteReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~SharedWriteReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_.region.size(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override;
  void offer(ReceiverPeer& peer, Offer& ours, const Offer* theirs) override;
  Result<void> start(ReceiverPeer&, const Offer&, const Settled&) override { return {}; }
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer&, const Completion&) override { return {}; }
  bool is_empty(const ReceiverPeer& peer) const override;
  Result<void> handle_waiting(ReceiverPeer& peer) override;
  void handle_fenced(ReceiverPeer& peer) override;
  // Who waits for room says so without a completion.
  bool looks() const override { return has_dead_ && reader_ && reader_->is_searching(); }

 private:
  struct Peer;
  void restart();
  void start_reader();
  void leave(Peer& peer);
  void tell_head();
  void look_for_holders();
  bool is_too_long(Duration time) const;
  std::byte* lines() const { return memory_.region.data() + geometry_.frames().memory_bytes(); }

  ring::SharedGeometry geometry_;
  RegisteredRing memory_;
  std::optional<ring::SharedReader> reader_;
  std::vector<Peer*> seats_;
  bool somebody_waits_ = false;  // for room, and said so
  Instant asked_at_;             // who holds up the others, whether it lives
  std::uint64_t held_at_ = 0;    // position at the last look
  bool has_dead_ = false;        // the search goes on for one that is gone
};

}  // namespace verbena::messaging
