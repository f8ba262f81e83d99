// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "base/byte_order.h"
#include "messaging/buffered_write.h"
#include "messaging/ring_options.h"

namespace verbena::messaging {

struct BufferedWriteReceiver::Peer final : ReceiverPeer {
  using ReceiverPeer::ReceiverPeer;

  std::optional<ring::View> take_next() { return peeked ? std::exchange(peeked, std::nullopt) : find_next(); }
  // What is found stays the next one until it is taken.
  bool has_next() {
    if (!peeked) peeked = find_next();
    return peeked.has_value();
  }
  std::optional<ring::View> find_next() {
    if (!reader) return std::nullopt;
    if (reader->geometry().commit != ring::Commit::Immediate) return reader->poll();
    if (ready_count == 0) return std::nullopt;
    --ready_count;
    return ready[std::exchange(first_ready, (first_ready + 1) % ready.size())];
  }
  std::uint64_t memory_bytes() const override { return memory.region.size(); }
  std::byte* line(std::uint64_t which) const {
    return memory.region.data() + reader->geometry().memory_bytes() + which;
  }

  RegisteredRing memory;
  std::optional<ring::Reader> reader;
  std::optional<ring::View> peeked;
  bool reads_head = false;
  // Messages whose immediate came, oldest first, in a circle.
  std::vector<ring::View> ready;
  std::size_t first_ready = 0, ready_count = 0;
};

Result<void> BufferedWriteReceiver::open() {
  auto capacity = ring_capacity(options());
  if (!capacity) return capacity.error();
  capacity_ = *capacity;
  if (!has_atomic_tail(options().kind, device().info().order_in_write)) return {};
  const ReliabilityOptions& granted = options().connection.reliability;
  if (granted.max_dest_rd_atomic == 0) return needs_atomics("max_dest_rd_atomic is 0");
  if ((granted.access & Access::RemoteAtomic) == Access::None) return needs_atomics("access has no RemoteAtomic");
  return {};
}

Result<std::unique_ptr<ReceiverPeer>> BufferedWriteReceiver::make_peer(PeerId id) {
  Access access = Access::LocalWrite | Access::RemoteWrite | Access::RemoteRead;
  if (has_atomic_tail(options().kind, device().info().order_in_write)) access = access | Access::RemoteAtomic;
  auto memory = RegisteredRing::create(domain(), capacity_, options().kind.ring, kRingLines, access);
  if (!memory) return memory.error();
  auto peer = std::make_unique<Peer>(*this, id);
  peer->memory = std::move(*memory);
  return std::unique_ptr<ReceiverPeer>(std::move(peer));
}

QueuePairCapabilities BufferedWriteReceiver::queues() const {
  const bool tells = options().kind.acknowledge == Acknowledge::Send;
  return {.max_send_requests = tells ? 2 * kHeadControls : 0,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

// The base's own receives take the immediates.
std::uint32_t BufferedWriteReceiver::control_receives() const {
  return options().kind.commit == Commit::Immediate ? options().depth : 1;
}

void BufferedWriteReceiver::offer(ReceiverPeer& peer, Offer& ours, const Offer*) {
  ours.memory = static_cast<Peer&>(peer).memory.region.remote();
  ours.extra = capacity_;
}

Result<void> BufferedWriteReceiver::start(ReceiverPeer& base, const Offer&, const Settled& settled) {
  auto& peer = static_cast<Peer&>(base);
  const ring::Geometry geometry = geometry_of(settled, capacity_);
  const auto ring = peer.memory.region.bytes().first(static_cast<std::size_t>(geometry.memory_bytes()));
  const std::byte* const tail = peer.memory.region.data() + geometry.memory_bytes() + kTailLine;
  peer.reader.emplace(geometry, ring::RingMemory(ring, tail));
  peer.ready.resize(geometry.max_messages);
  peer.reads_head = settled.kind.acknowledge == Acknowledge::Read;
  if (!peer.reads_head) peer.post_receives_by(geometry.acknowledged_messages());
  return {};
}

// ---- Messages.

Result<void> BufferedWriteReceiver::handle_received(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  const auto broken = [](std::string_view why) { return Error(ErrorCode::ProtocolError, std::string(why)); };
  if (!peer.reader || peer.reader->geometry().commit != ring::Commit::Immediate ||
      completion.opcode != CompletionOpcode::ReceiveRdmaWithImmediate)
    return broken("the sender finishes a receive that is not for messages");
  const std::uint32_t length = load_be32(completion.immediate.data());
  if (length != completion.byte_count) return broken(to_string(ring::Fault::Length));
  const auto view = peer.reader->handle_immediate(length);
  if (!view) return broken(to_string(peer.reader->fault()));
  // Never more than receives were there, but for those that are handed out.
  if (peer.ready_count == peer.ready.size()) return broken(to_string(ring::Fault::Overrun));
  peer.ready[(peer.first_ready + peer.ready_count++) % peer.ready.size()] = *view;
  touch_if_awaited();
  return {};
}

bool BufferedWriteReceiver::poll_one(Peer& peer, Message& out) {
  const std::optional<ring::View> view = peer.take_next();
  if (view) {
    out = peer.hand_out({peer.memory.region.data() + view->offset, view->bytes}, view->position);
    return true;
  }
  if (peer.reader && peer.reader->fault() != ring::Fault::None && !peer.is_cut_off())
    fail(peer, Error(ErrorCode::ProtocolError, std::string(to_string(peer.reader->fault()))));
  return false;
}

std::size_t BufferedWriteReceiver::poll(std::span<Message> out) {
  return poll_in_turns(out, [this](ReceiverPeer& peer, Message& message) {
    return poll_one(static_cast<Peer&>(peer), message);
  });
}

void BufferedWriteReceiver::handle_given_back(ReceiverPeer& base, std::uint64_t token) {
  auto& peer = static_cast<Peer&>(base);
  peer.reader->release({.position = token});
  if (peer.is_cut_off()) return;
  if (peer.reads_head)
    ring::store_word(peer.line(kHeadLine), peer.reader->acknowledge());
  else
    tell_head(peer);
}

// What could not be told, because all that may be told at once was under way.
void BufferedWriteReceiver::handle_told(ReceiverPeer& base) {
  auto& peer = static_cast<Peer&>(base);
  if (peer.reader && !peer.is_cut_off()) tell_head(peer);
}

void BufferedWriteReceiver::tell_head(Peer& peer) {
  ring::Reader& reader = *peer.reader;
  if (reader.acknowledgement_due() && tell_given_back(peer, reader.head() / reader.geometry().unit))
    reader.acknowledge();
}

bool BufferedWriteReceiver::is_empty(const ReceiverPeer& base) const {
  return !const_cast<Peer&>(static_cast<const Peer&>(base)).has_next();
}

}  // namespace verbena::messaging
