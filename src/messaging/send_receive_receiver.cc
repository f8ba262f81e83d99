// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "messaging/send_receive.h"

namespace verbena::messaging {

namespace {

constexpr std::uint32_t kSends = 2 * kCreditControls;  // until their completions are seen

}  // namespace

struct SendReceiveReceiver::Peer final : ReceiverPeer {
  using ReceiverPeer::ReceiverPeer;
  std::uint64_t memory_bytes() const override { return memory.size(); }
  MemoryRegion memory;
  std::uint32_t batch = 1;
  std::uint64_t given_back = 0, told = 0;
  std::size_t waiting = 0;             // of its messages, in ready_
  std::vector<std::uint32_t> to_post;  // slots given back, and not yet posted again
};

// One receive more than the window: Finish takes it.
Result<void> SendReceiveReceiver::open() {
  stride_ = (std::size_t{options().max_message_bytes} + 63) / 64 * 64;
  return {};
}

QueuePairCapabilities SendReceiveReceiver::queues() const {
  return {.max_send_requests = kSends,
          .max_receive_requests = options().depth + 1,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

Result<std::unique_ptr<ReceiverPeer>> SendReceiveReceiver::make_peer(PeerId id) {
  auto memory = domain().allocate_memory(stride_ * (options().depth + 1), Access::LocalWrite);
  if (!memory) return memory.error();
  auto peer = std::make_unique<Peer>(*this, id);
  peer->memory = std::move(*memory);
  peer->to_post.reserve(options().depth + 1);
  ready_.reserve((peers().size() + 1) * (options().depth + 1));
  return std::unique_ptr<ReceiverPeer>(std::move(peer));
}

Result<void> SendReceiveReceiver::prepare(ReceiverPeer& base) {
  auto& peer = static_cast<Peer&>(base);
  for (std::uint32_t slot = 0; slot <= options().depth; ++slot) peer.to_post.push_back(slot);
  post_receives(peer);
  return {};
}

Result<void> SendReceiveReceiver::start(ReceiverPeer& base, const Offer&, const Settled& settled) {
  static_cast<Peer&>(base).batch = credit_batch(settled.depth);
  return {};
}

void SendReceiveReceiver::post_receives(Peer& peer) {
  constexpr std::size_t kBatch = 32;
  std::array<ReceiveRequest, kBatch> requests;
  std::array<ScatterGather, kBatch> pieces;
  while (!peer.to_post.empty()) {
    const std::size_t count = std::min(peer.to_post.size(), kBatch);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = peer.to_post.back();
      peer.to_post.pop_back();
      pieces[i] = peer.memory.local(std::size_t{slot} * stride_, options().max_message_bytes);
      requests[i] = {kReceiveId | slot, {&pieces[i], 1}};
    }
    static_cast<void>(peer.connection().post_receive({requests.data(), count}));
  }
}

// ---- Messages.

Result<void> SendReceiveReceiver::handle_received(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  if (completion.opcode != CompletionOpcode::Receive)
    return Error(ErrorCode::ProtocolError, "the sender wrote where it was to send");
  const auto slot = static_cast<std::uint32_t>(completion.id);
  ready_.push({&peer, slot, completion.byte_count});
  ++peer.waiting;
  touch_if_awaited();
  return {};
}

std::size_t SendReceiveReceiver::poll(std::span<Message> out) {
  const std::size_t count = std::min(out.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Ready ready = ready_.pop();
    --ready.peer->waiting;
    out[i] = ready.peer->hand_out(
        {ready.peer->memory.data() + std::size_t{ready.slot} * stride_, ready.bytes}, ready.slot);
  }
  return count;
}

// What is given back is posted first, and then told.
void SendReceiveReceiver::handle_given_back(ReceiverPeer& base, std::uint64_t token) {
  auto& peer = static_cast<Peer&>(base);
  if (peer.is_cut_off() || is_dropped()) return;
  peer.to_post.push_back(static_cast<std::uint32_t>(token));
  ++peer.given_back;
  tell(peer);
}

void SendReceiveReceiver::handle_told(ReceiverPeer& peer) { tell(static_cast<Peer&>(peer)); }

void SendReceiveReceiver::tell(Peer& peer) {
  if (peer.given_back - peer.told < peer.batch) return;
  post_receives(peer);
  if (tell_given_back(peer, peer.given_back)) peer.told = peer.given_back;
}

Result<void> SendReceiveReceiver::handle_sent(ReceiverPeer&, const Completion&) { return {}; }

bool SendReceiveReceiver::is_empty(const ReceiverPeer& peer) const {
  return static_cast<const Peer&>(peer).waiting == 0;
}

}  // namespace verbena::messaging
