// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "device/wire_bytes.h"
#include "messaging/direct_read.h"

namespace verbena::messaging {

struct DirectReadReceiver::Peer final : ReceiverPeer {
  Peer(DirectReadReceiver& its_end, PeerId its_id) : ReceiverPeer(its_end, its_id), reader(its_end) {}
  // What the device did not say any more.
  ~Peer() override {
    while (!reading.empty()) reader.release_slot(*this, reading.pop().slot);
  }

  DirectReadReceiver& reader;
  std::uint64_t memory_bytes() const override { return memory.size(); }
  MemoryRegion memory;  // announcements
  std::uint32_t most_bytes = 0;
  WaitingQueue<Announcement> announced;  // and not yet being read
  WaitingQueue<Fetch> reading;
  std::uint64_t read = 0, told = 0;  // messages since the beginning
  std::size_t waiting = 0;           // of its messages, in ready_
  std::size_t slots = 0;             // buffers that it has
};

Result<void> DirectReadReceiver::open() {
  if (auto ok = check_max_senders(); !ok) return ok;
  stride_ = (std::size_t{options().max_message_bytes} + 63) / 64 * 64;
  const std::uint32_t slots = options().depth + options().max_senders;  // queue pairs have numbers of 24 bits
  auto memory = domain().allocate_memory(stride_ * slots, Access::LocalWrite);
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  free_.reserve(slots);
  for (std::uint32_t i = slots; i-- > 0;) free_.push_back(i);
  return {};
}

// A READ and an answer for each message, and an answer that is owed.
QueuePairCapabilities DirectReadReceiver::queues() const {
  return {.max_send_requests = 2 * options().depth + 1,
          .max_receive_requests = options().depth + 1,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

Result<std::unique_ptr<ReceiverPeer>> DirectReadReceiver::make_peer(PeerId id) {
  const std::size_t bytes = std::size_t{options().depth + 1} * Announcement::kWireBytes;
  auto memory = domain().allocate_memory(bytes, Access::LocalWrite);
  if (!memory) return memory.error();
  auto peer = std::make_unique<Peer>(*this, id);
  peer->memory = std::move(*memory);
  peer->announced.reserve(options().depth);
  peer->reading.reserve(options().depth);
  ready_.reserve((peers().size() + 1) * options().depth);
  return std::unique_ptr<ReceiverPeer>(std::move(peer));
}

void DirectReadReceiver::post_receive(Peer& peer, std::uint32_t slot) {
  const ScatterGather piece =
      peer.memory.local(std::size_t{slot} * Announcement::kWireBytes, Announcement::kWireBytes);
  const ReceiveRequest request{kReceiveId | slot, {&piece, 1}};
  static_cast<void>(peer.connection().post_receive({&request, 1}));
}

Result<void> DirectReadReceiver::prepare(ReceiverPeer& base) {
  for (std::uint32_t slot = 0; slot <= options().depth; ++slot) post_receive(static_cast<Peer&>(base), slot);
  return {};
}

Result<void> DirectReadReceiver::start(ReceiverPeer& base, const Offer&, const Settled& settled) {
  static_cast<Peer&>(base).most_bytes = settled.max_message_bytes;
  return {};
}

// ---- From an announcement to a message.

void DirectReadReceiver::handle_control_in(ReceiverPeer& base, const Completion& completion) {
  post_receive(static_cast<Peer&>(base), static_cast<std::uint32_t>(completion.id));
}

Result<void> DirectReadReceiver::handle_received(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  const auto slot = static_cast<std::uint32_t>(completion.id);
  if (completion.opcode != CompletionOpcode::Receive || completion.byte_count != Announcement::kWireBytes)
    return Error(ErrorCode::ProtocolError, "the sender sent what is no announcement");
  const std::byte* const bytes = peer.memory.data() + std::size_t{slot} * Announcement::kWireBytes;
  const Announcement it{wire_bytes::load_le64(bytes), RKey{wire_bytes::load_le32(bytes + 8)},
                        wire_bytes::load_le32(bytes + 12)};
  post_receive(peer, slot);
  if (it.bytes > peer.most_bytes)
    return Error(ErrorCode::ProtocolError, "the sender announced a message of " + std::to_string(it.bytes) +
                                               " bytes, and at most " + std::to_string(peer.most_bytes) +
                                               " are agreed");
  if (peer.announced.size() + peer.reading.size() >= options().depth)
    return Error(ErrorCode::ProtocolError, "the sender announced more than it had credits for");
  peer.announced.push(it);
  ask();
  return {};
}

void DirectReadReceiver::read_on() {
  if (has_places()) ask_soon();
  else start_reads();
}

// In turns: a sender with much to say does not take all buffers.
void DirectReadReceiver::start_reads() {
  std::size_t idle = 0;
  while (!peers().empty() && idle < peers().size()) {
    turn_ = (turn_ + 1) % peers().size();
    idle = start_read(static_cast<Peer&>(*peers()[turn_])) ? 0 : idle + 1;
  }
}

// Those that are kept for senders which have none are not for those that have.
bool DirectReadReceiver::may_take_slot(const Peer& peer) const {
  if (peer.slots == 0) return !free_.empty();
  return peer.slots < std::max<std::size_t>(options().depth / peers().size(), 1) &&
         free_.size() > options().max_senders;
}

void DirectReadReceiver::release_slot(Peer& peer, std::uint32_t slot) {
  if (slot == kNoSlot) return;
  free_.push_back(slot);
  --peer.slots;
}

bool DirectReadReceiver::start_read(Peer& peer) {
  if (peer.is_cut_off() || peer.announced.empty()) return false;
  // Also where the program has a place for each: what it does not take is not fetched for ever.
  if (peer.waiting + peer.reading.size() >= options().depth) return false;
  const Announcement it = peer.announced.front();
  Fetch fetch{&peer, kNoSlot, it.bytes, 0};
  ScatterGather target;
  if (const auto place = place_for(peer, it.bytes); place && place->bytes >= it.bytes) {
    target = {place->address, it.bytes, place->lkey};
  } else {
    if (!may_take_slot(peer)) return false;
    fetch.slot = free_.back();
    target = memory_.local(std::size_t{fetch.slot} * stride_, it.bytes);
  }
  fetch.address = target.address;
  const std::uint64_t number = peer.read + peer.reading.size() + 1;
  std::array<SendRequest, 2> requests;
  requests[0].id = number;
  requests[0].opcode = SendOpcode::RdmaRead;
  requests[0].local = {&target, it.bytes == 0 ? std::size_t{0} : std::size_t{1}};
  requests[0].remote_address = it.address;
  requests[0].rkey = it.rkey;
  requests[1].id = kFirstBaseId;
  requests[1].opcode = SendOpcode::SendWithImmediate;
  requests[1].flags = SendFlags::Fence;
  requests[1].immediate =
      Control{Control::Word::GivenBack, static_cast<std::uint32_t>(number)}.to_immediate();
  const std::size_t wanted = options().kind.fenced ? 2 : 1;
  const PostResult posted = post(peer, {requests.data(), wanted});
  if (posted.posted == 0) return false;
  if (posted.posted == 2) {
    peer.told = number;
    ++counters_.credit_messages;
  }
  if (fetch.slot != kNoSlot) {
    free_.pop_back();
    ++peer.slots;
  }
  peer.reading.push(fetch);
  peer.announced.pop();
  return true;
}

Result<void> DirectReadReceiver::handle_sent(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  if (peer.reading.empty()) return {};
  const Fetch fetch = peer.reading.pop();
  if (completion.status != CompletionStatus::Success) {
    release_slot(peer, fetch.slot);
    return {};
  }
  ++peer.read;
  ready_.push(fetch);
  ++peer.waiting;
  tell(peer);
  answer_finish(peer);
  touch_if_awaited();
  ask();
  return {};
}

void DirectReadReceiver::handle_told(ReceiverPeer& peer) { tell(static_cast<Peer&>(peer)); }

// Those still being read will answer for these, too.
void DirectReadReceiver::tell(Peer& peer) {
  const std::uint64_t owed = peer.read - std::min(peer.told, peer.read);
  if (owed != 0 && (peer.reading.empty() || owed * 2 >= options().depth) && tell_given_back(peer, peer.read))
    peer.told = peer.read;
}

bool DirectReadReceiver::has_all(const ReceiverPeer& peer, std::uint64_t total) const {
  return static_cast<const Peer&>(peer).read >= total;
}

bool DirectReadReceiver::is_empty(const ReceiverPeer& peer) const {
  return static_cast<const Peer&>(peer).waiting == 0;
}

// ---- Messages.

std::size_t DirectReadReceiver::poll(std::span<Message> out) {
  const std::size_t count = std::min(out.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Fetch it = ready_.pop();
    --it.peer->waiting;
    const auto* const data = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(it.address));
    out[i] = it.peer->hand_out({data, it.bytes}, it.slot);
  }
  if (count != 0) read_on();
  return count;
}

void DirectReadReceiver::handle_given_back(ReceiverPeer& peer, std::uint64_t token) {
  release_slot(static_cast<Peer&>(peer), static_cast<std::uint32_t>(token));
  read_on();
}

}  // namespace verbena::messaging
