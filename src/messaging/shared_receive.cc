// SPDX-License-Identifier: Apache-2.0
#include "messaging/shared_receive.h"

#include <algorithm>
#include <string>

#include "base/byte_order.h"
#include "messaging/send_receive.h"

namespace verbena::messaging {

namespace {
// Of a sender, so that a receiver which keeps a message while it waits for the next does not wait for ever.
constexpr std::uint32_t kOwnReceives = 2;
}  // namespace

struct SharedReceiveReceiver::Peer final : ReceiverPeer {
  Peer(SharedReceiveReceiver& its_end, PeerId its_id) : ReceiverPeer(its_end, its_id), pool_end(its_end) {}
  ~Peer() override {
    pool_end.forget_number(*this);
    for (const std::uint32_t slot : early)
      if (!pool_end.is_dropped()) pool_end.receives_[slot].submit();
    pool_end.spare_ += window - std::min(window, own);
  }

  SharedReceiveReceiver& pool_end;
  bool begun = false;
  std::vector<std::uint32_t> early;  // what came before
  std::uint32_t qpn = 0;
  std::uint32_t window = 0;   // receives promised to it, or holding messages of it
  std::uint32_t own = 1;      // those of them that nobody else can have
  std::uint32_t most = 0;     // that its window may grow to
  std::uint32_t waiting = 0;  // messages in ready_
  std::uint32_t held = 0;     // messages in ready_ or with the program
  std::uint32_t owed = 0;     // credits not yet told
  std::uint64_t told = 0;     // credits given since the beginning
  std::uint64_t came = 0, first = 0;  // messages; credits at the beginning
};

Result<void> SharedReceiveReceiver::open() {
  const Options& o = options();
  if (o.depth < o.max_senders)
    return Error(ErrorCode::InvalidArgument, "messages by shared-receive: a depth of " +
                                                 std::to_string(o.depth) + " for up to " +
                                                 std::to_string(o.max_senders) + " senders; each needs one");
  stride_ = (std::size_t{o.max_message_bytes} + 63) / 64 * 64;
  slots_ = o.depth + 2 * o.max_senders;
  if (const std::uint32_t most = device().info().max_requests; slots_ > most)
    return Error(ErrorCode::InvalidArgument,
                 "messages by shared-receive: a depth of " + std::to_string(o.depth) + " and " +
                     std::to_string(o.max_senders) + " senders take " + std::to_string(slots_) +
                     " receives (depth + 2 x max_senders), and the device's queues hold " + std::to_string(most));
  spare_ = o.depth - o.max_senders;
  auto memory = domain().allocate_memory(stride_ * slots_, Access::LocalWrite);
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  auto pool = ReceivePool::create(engine_of_program(), {.max_receives = slots_,
                                                        .max_segments = 1,
                                                        .device = &device(),
                                                        .protection_domain = o.connection.protection_domain});
  if (!pool) return pool.error();
  pool_ = std::make_shared<ReceivePool>(std::move(*pool));
  ready_.reserve(slots_);
  receives_ = std::make_unique<Operation[]>(slots_);
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    receives_[slot].on_done([this, slot](Operation&) { handle_done(slot); });
    pool_->receive(receives_[slot], memory_.local(std::size_t{slot} * stride_, o.max_message_bytes));
  }
  return {};
}

SharedReceiveReceiver::~SharedReceiveReceiver() {
  drop_peers();
  receives_.reset();
}

QueuePairCapabilities SharedReceiveReceiver::queues() const {
  return {.max_send_requests = 2 * kCreditControls,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

// ---- Senders.

std::uint32_t SharedReceiveReceiver::fair_share() const {
  const auto senders = static_cast<std::uint32_t>(std::max<std::size_t>(peers().size(), 1));
  return std::max(options().depth / senders, 1u);
}

Result<std::unique_ptr<ReceiverPeer>> SharedReceiveReceiver::make_peer(PeerId id) {
  return std::unique_ptr<ReceiverPeer>(std::make_unique<Peer>(*this, id));
}

Result<void> SharedReceiveReceiver::prepare(ReceiverPeer& base) {
  auto& peer = static_cast<Peer&>(base);
  peer.qpn = peer.connection().local_qpn().value();
  by_qpn_[peer.qpn] = &peer;
  peer.window = peer.own;
  return {};
}

// Its own, and where the peer's depth is known what is its share when all senders are there. The rest it gets as it
// uses that up.
void SharedReceiveReceiver::offer(ReceiverPeer& base, Offer& ours, const Offer* theirs) {
  auto& peer = static_cast<Peer&>(base);
  if (theirs != nullptr) {
    peer.window = peer.own = std::min({kOwnReceives, options().depth, theirs->depth});
    const std::uint32_t wanted = std::min(options().depth / options().max_senders, theirs->depth);
    const std::uint32_t more = std::min(spare_, wanted - std::min(wanted, peer.window));
    peer.window += more;
    spare_ -= more;
  }
  peer.first = peer.window;
  ours.extra = peer.window;
}

Result<void> SharedReceiveReceiver::start(ReceiverPeer& base, const Offer&, const Settled& settled) {
  auto& peer = static_cast<Peer&>(base);
  peer.most = settled.depth;
  peer.begun = true;
  if (const std::uint32_t own = std::min(kOwnReceives, settled.depth); own > peer.own) {
    peer.window += own - peer.own;
    peer.owed += own - peer.own;
    peer.own = own;
    tell(peer);
  }
  for (const std::uint32_t slot : std::exchange(peer.early, {})) handle_arrival(peer, slot);
  return {};
}

// The number may be another's by now: of hardware that gives it out anew.
void SharedReceiveReceiver::forget_number(const Peer& peer) {
  const auto found = by_qpn_.find(peer.qpn);
  if (found != by_qpn_.end() && found->second == &peer) by_qpn_.erase(found);
}

void SharedReceiveReceiver::handle_fenced(ReceiverPeer& base) {
  auto& peer = static_cast<Peer&>(base);
  forget_number(peer);
  const std::uint32_t kept = std::max(peer.held + static_cast<std::uint32_t>(peer.early.size()), peer.own);
  if (peer.window <= kept) return;
  spare_ += peer.window - kept;
  peer.window = kept;
}

bool SharedReceiveReceiver::is_empty(const ReceiverPeer& peer) const {
  return static_cast<const Peer&>(peer).waiting == 0;
}

// ---- Messages.

void SharedReceiveReceiver::handle_done(std::uint32_t slot) {
  if (is_dropped()) return;
  Operation& receive = receives_[slot];
  const auto outcome = receive.result();
  const auto found = outcome ? by_qpn_.find(outcome->qpn.value()) : by_qpn_.end();
  if (found == by_qpn_.end()) return void(receive.submit());  // its sender is gone, or took it and went
  Peer& peer = *found->second;
  if (!peer.begun) return peer.early.push_back(slot);
  handle_arrival(peer, slot);
}

void SharedReceiveReceiver::handle_arrival(Peer& peer, std::uint32_t slot) {
  Operation& receive = receives_[slot];
  const auto outcome = receive.result();
  if (outcome->immediate) {
    std::array<std::byte, 4> immediate{};
    store_be32(immediate.data(), *outcome->immediate);
    receive.submit();
    return handle_control(peer, immediate);
  }
  if (++peer.came > peer.first + peer.told) {
    receive.submit();
    return fail(peer, Error(ErrorCode::ProtocolError, "the sender sent more than it had credits for"));
  }
  ready_.push({&peer, slot, outcome->bytes});
  ++peer.waiting;
  ++peer.held;
  if (peer.came == peer.first + peer.told) {
    grow(peer);
    tell(peer);
  }
  touch_if_awaited();
}

std::size_t SharedReceiveReceiver::poll(std::span<Message> out) {
  const std::size_t count = std::min(out.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Ready ready = ready_.pop();
    --ready.peer->waiting;
    out[i] =
        ready.peer->hand_out({memory_.data() + std::size_t{ready.slot} * stride_, ready.bytes}, ready.slot);
  }
  return count;
}

void SharedReceiveReceiver::handle_given_back(ReceiverPeer& base, std::uint64_t token) {
  auto& peer = static_cast<Peer&>(base);
  receives_[token].submit();
  --peer.held;
  if (!peer.is_cut_off()) return give_credit(peer);
  if (peer.window <= peer.own) return;
  --peer.window;
  ++spare_;
}

// The credit goes back to whom it came from, unless it has more than its share and others could use it.
void SharedReceiveReceiver::give_credit(Peer& peer) {
  const std::uint32_t share = std::max(fair_share(), peer.own);
  if (spare_ == 0 && peer.window > share) {
    --peer.window;
    ++spare_;
  } else {
    ++peer.owed;
  }
  tell(peer);
}

void SharedReceiveReceiver::handle_told(ReceiverPeer& peer) { tell(static_cast<Peer&>(peer)); }

// Who has used up all it had gets as much again, also while the receiver holds what it sent.
void SharedReceiveReceiver::grow(Peer& peer) {
  const std::uint32_t limit = std::min(peer.most, std::max(fair_share(), options().depth / 2));
  const std::uint32_t more = std::min({peer.window, spare_, limit - std::min(limit, peer.window)});
  peer.window += more;
  peer.owed += more;
  spare_ -= more;
}

void SharedReceiveReceiver::tell(Peer& peer) {
  if (peer.owed == 0 || peer.owed < credit_batch(peer.window)) return;
  if (!tell_given_back(peer, peer.told + peer.owed)) return;
  peer.told += peer.owed;
  peer.owed = 0;
}

Result<void> SharedReceiveReceiver::handle_received(ReceiverPeer&, const Completion&) { return {}; }
Result<void> SharedReceiveReceiver::handle_sent(ReceiverPeer&, const Completion&) { return {}; }

}  // namespace verbena::messaging
