// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/byte_order.h"
#include "device/wire_bytes.h"
#include "messaging/direct_write.h"

namespace verbena::messaging {

struct DirectWriteReceiver::Peer final : ReceiverPeer {
  using ReceiverPeer::ReceiverPeer;
  std::uint64_t memory_bytes() const override { return memory.size(); }
  MemoryRegion memory;
  Settled settled;
  std::vector<std::uint32_t> free;  // slots of its memory
  WaitingQueue<Place> granted;      // in the order of messages to come
  std::uint32_t owed = 0;           // grants
  std::uint32_t asked = 0;          // of the next of them: has its place in `places`
  std::array<std::optional<LentMemory>, Grant::kMostTogether> places;
  std::uint32_t came = 0;           // messages, modulo 2^32
  std::uint32_t sends_out = 0;      // with grants, whose completions were not seen
  std::size_t waiting = 0;          // of its messages, in ready_
};

Result<void> DirectWriteReceiver::open() {
  stride_ = (std::size_t{options().max_message_bytes} + 63) / 64 * 64;
  if (device().info().max_inline_bytes < Grant::kWireBytes * Grant::kMostTogether)
    return Error(ErrorCode::NotSupported, "messages by direct-write: the device sends too little inline");
  return {};
}

QueuePairCapabilities DirectWriteReceiver::queues() const {
  return {.max_send_requests = options().depth,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = Grant::kWireBytes * Grant::kMostTogether};
}

Result<std::unique_ptr<ReceiverPeer>> DirectWriteReceiver::make_peer(PeerId id) {
  auto memory = domain().allocate_memory(stride_ * options().depth, Access::LocalWrite | Access::RemoteWrite);
  if (!memory) return memory.error();
  auto peer = std::make_unique<Peer>(*this, id);
  peer->memory = std::move(*memory);
  for (std::uint32_t i = options().depth; i-- > 0;) peer->free.push_back(i);
  peer->granted.reserve(options().depth);
  ready_.reserve((peers().size() + 1) * options().depth);
  return std::unique_ptr<ReceiverPeer>(std::move(peer));
}

Result<void> DirectWriteReceiver::start(ReceiverPeer& base, const Offer&, const Settled& settled) {
  auto& peer = static_cast<Peer&>(base);
  peer.settled = settled;
  peer.owed = settled.depth;
  grant(peer);
  return {};
}

// ---- Grants.

void DirectWriteReceiver::grant(Peer& peer) {
  if (peer.owed < credit_batch(peer.settled.depth)) return;
  if (has_places()) ask_soon();
  else send_grants(peer);
}

// In turns: one whose places cannot be had does not keep the others from theirs.
void DirectWriteReceiver::ask_for_places() {
  for (std::size_t left = peers().size(); left != 0; --left) {
    turn_ = (turn_ + 1) % peers().size();
    auto& peer = static_cast<Peer&>(*peers()[turn_]);
    if (peer.owed >= credit_batch(peer.settled.depth)) send_grants(peer);
  }
}

Grant DirectWriteReceiver::next_grant(Peer& peer, const std::optional<LentMemory>& place) {
  const std::uint32_t bytes = peer.settled.max_message_bytes;
  if (place && place->bytes >= bytes) {
    peer.granted.push({&peer, kNoSlot, bytes, place->address});
    return {place->address, place->rkey, bytes};
  }
  const std::uint32_t slot = peer.free.back();
  peer.free.pop_back();
  const ScatterGather piece = peer.memory.local(std::size_t{slot} * stride_, bytes);
  peer.granted.push({&peer, slot, bytes, piece.address});
  return {piece.address, peer.memory.rkey(), bytes};
}

// A grant may be used up before the completion of its SEND is seen; see handle_sent().
void DirectWriteReceiver::send_grants(Peer& peer) {
  while (peer.owed != 0 && peer.sends_out < options().depth && !peer.is_cut_off()) {
    std::array<std::byte, std::size_t{Grant::kWireBytes} * Grant::kMostTogether> bytes;
    const std::uint32_t count = std::min(peer.owed, Grant::kMostTogether);
    // Those that were had before the program throws are not asked for anew.
    for (; peer.asked < count; ++peer.asked)
      peer.places[peer.asked] = place_for(peer, peer.settled.max_message_bytes);
    peer.asked = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Grant grant = next_grant(peer, peer.places[i]);
      std::byte* const at = &bytes[std::size_t{i} * Grant::kWireBytes];
      wire_bytes::store_le64(at, grant.address);
      wire_bytes::store_le32(at + 8, grant.rkey.value());
      wire_bytes::store_le32(at + 12, grant.bytes);
    }
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(bytes.data()), count * Grant::kWireBytes, {}};
    SendRequest request;
    request.flags = SendFlags::Signaled | SendFlags::Inline;
    request.local = {&piece, 1};
    peer.owed -= count;
    ++peer.sends_out;
    if (post(peer, {&request, 1})) ++counters_.credit_messages;  // refused, the connection is gone
  }
}

// ---- Messages.

Result<void> DirectWriteReceiver::handle_received(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  if (completion.opcode != CompletionOpcode::ReceiveRdmaWithImmediate || peer.granted.empty() ||
      load_be32(completion.immediate.data()) != peer.came)
    return Error(ErrorCode::ProtocolError, "the sender sent what was not its turn");
  if (completion.byte_count > peer.granted.front().bytes)
    return Error(ErrorCode::ProtocolError, "the sender wrote more than it was granted");
  ++peer.came;
  Place place = peer.granted.pop();
  place.bytes = completion.byte_count;
  ready_.push(place);
  ++peer.waiting;
  touch_if_awaited();
  return {};
}

std::size_t DirectWriteReceiver::poll(std::span<Message> out) {
  const std::size_t count = std::min(out.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Place it = ready_.pop();
    --it.peer->waiting;
    const auto* const data = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(it.address));
    out[i] = it.peer->hand_out({data, it.bytes}, it.slot);
  }
  return count;
}

void DirectWriteReceiver::handle_given_back(ReceiverPeer& base, std::uint64_t token) {
  auto& peer = static_cast<Peer&>(base);
  const auto slot = static_cast<std::uint32_t>(token);
  if (slot != kNoSlot) peer.free.push_back(slot);
  ++peer.owed;
  grant(peer);
}

Result<void> DirectWriteReceiver::handle_sent(ReceiverPeer& base, const Completion&) {
  auto& peer = static_cast<Peer&>(base);
  --peer.sends_out;
  grant(peer);
  return {};
}

bool DirectWriteReceiver::is_empty(const ReceiverPeer& peer) const {
  return static_cast<const Peer&>(peer).waiting == 0;
}

}  // namespace verbena::messaging
