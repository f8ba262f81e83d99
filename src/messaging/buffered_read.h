// SPDX-License-Identifier: Apache-2.0
// BufferedRead (BR): a sender puts its messages into a ring in its own memory and issues nothing; the
// receiver READs the tail, then all that is new at once, into an image of the ring, out of which it hands
// messages. How far they were given back it WRITEs into a word of the sender's, an eighth of the ring at a
// time.
//
// The memory a sender offers: the ring (twice, where it is mapped twice), and behind it two lines: the tail,
// which the receiver READs, and the head, which it WRITEs. The ring, its size and how it is mapped are the
// sender's choice, and the receiver takes none that is larger than its own Options::ring_bytes.
//
// A tail is stored behind the messages it makes visible, and a span is asked for when the READ of its tail is
// done: nothing more is asked of the order of READs. The READ of the next tail goes in front of a span, so
// that the span after it is asked for while that one is under way.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "messaging/double_mapping.h"
#include "messaging/receiver_end.h"
#include "messaging/ring/writer.h"
#include "messaging/ring_options.h"
#include "messaging/sender_end.h"

namespace verbena::messaging {

struct ReadRing {
  static constexpr std::uint64_t kTail = 0, kHead = 64, kLines = 128;
};

class BufferedReadSender final : public SenderEnd {
 public:
  BufferedReadSender(ProgressEngine& engine, const Options& options) : SenderEnd(engine, options) {}
  ~BufferedReadSender() override { drop_connection(); }

  std::uint64_t credits() const override;
  bool has_room_for(std::uint32_t bytes) const override;
  std::uint64_t memory_bytes() const override { return ring_.region.size() + buffers_.memory().size(); }

 protected:
  Result<void> open() override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return 0; }
  void offer(Offer& ours) const override;
  Result<void> start(const Offer& theirs) override;
  SendResult put(std::span<const Outgoing> messages) override;
  SendResult commit(std::uint32_t slot, std::uint32_t bytes) override;
  void handle_sent(const Completion&) override {}
  Result<void> handle_given_back(std::uint32_t number) override;
  void look() override { take_head(); }
  // The head comes without a completion.
  bool has_silent_room() const override { return true; }
  bool looks() const override {
    return writer_ && (is_room_awaited() || is_try_awaited()) && !writer_->try_reserve(settled().max_message_bytes);
  }

 private:
  bool take_head();
  SendStatus add(const Outgoing& message);
  bool copy_in(const Outgoing& message, std::byte* to);
  void publish();
  std::byte* line(std::uint64_t which) const {
    return ring_.region.data() + writer_->geometry().memory_bytes() + which;
  }

  std::uint64_t capacity_ = 0;
  RegisteredRing ring_;
  std::optional<ring::Writer> writer_;
};

class BufferedReadReceiver final : public ReceiverEnd {
 public:
  BufferedReadReceiver(ProgressEngine& engine, const Options& options) : ReceiverEnd(engine, options) {}
  ~BufferedReadReceiver() override { drop_peers(); }

  std::uint64_t memory_bytes() const override { return memory_of_peers(); }

 protected:
  Result<void> open() override;
  Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) override;
  QueuePairCapabilities queues() const override;
  std::uint32_t control_receives() const override { return 1; }
  void offer(ReceiverPeer&, Offer& ours, const Offer*) override { ours.extra = most_capacity_; }
  Result<void> check_offer(const Offer& theirs, const Settled& settled) const override;
  Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) override;
  std::size_t poll(std::span<Message> out) override;
  void handle_given_back(ReceiverPeer& peer, std::uint64_t token) override;
  Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) override;
  Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) override;
  void handle_finish(ReceiverPeer& peer) override;
  bool has_all(const ReceiverPeer& peer, std::uint64_t total) const override;
  bool is_empty(const ReceiverPeer& peer) const override;

 private:
  struct Peer;
  bool poll_one(Peer& peer, Message& out);
  void ask_for_tail(Peer& peer);
  void ask_for_spans(Peer& peer);
  bool post_read(Peer& peer, std::uint64_t id, const ScatterGather& to, std::uint64_t offset);
  Result<void> take_tail(Peer& peer);
  void tell_head(Peer& peer);

  std::uint64_t most_capacity_ = 0;
};

}  // namespace verbena::messaging
