// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/byte_order.h"
#include "messaging/shared_write.h"

namespace verbena::messaging {

namespace {

// A place may be held so long, and twice as long as a death takes, while others wait for what is behind it.
constexpr std::int64_t kMostKeepAlives = 10;

}  // namespace

struct SharedWriteReceiver::Peer final : ReceiverPeer {
  Peer(SharedWriteReceiver& receiver, PeerId id, std::uint32_t number)
      : ReceiverPeer(receiver, id), owner(receiver), seat(number) {}
  // Its connection is gone by now.
  ~Peer() override {
    if (!gone) owner.leave(*this);
    owner.seats_[seat] = nullptr;
  }

  SharedWriteReceiver& owner;
  const std::uint32_t seat;
  bool gone = false;
  // At the last look: it may hold up the others, and has since then with what it began after so many arrivals.
  bool holds = false;
  std::uint64_t arrived_then = 0;
  Instant holds_since;
};

Result<void> SharedWriteReceiver::open() {
  if (options().connection.keep_alive <= Duration{})
    return Error(ErrorCode::InvalidArgument, "messages by shared-write: keep_alive is 0, and a sender that dies with a "
                                             "place reserved would hold up the others for ever");
  if (auto ok = check_max_senders(); !ok) return ok;
  auto capacity = ring_capacity(options());
  if (!capacity) return capacity.error();
  geometry_ = {.capacity = *capacity, .doubled = options().kind.ring == RingMemory::DoubleMapped};
  const Access access = Access::All;
  const std::uint64_t cells = std::uint64_t{options().max_senders} * ring::kCellBytes;
  auto memory =
      RegisteredRing::create(domain(), *capacity, options().kind.ring, kSharedCells + cells, access);
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  start_reader();
  seats_.resize(options().max_senders);
  return {};
}

// A tail that a sender spoilt is for good, as it is where the others reserve: with the last of them it goes. Nothing of
// the ring is handed out then.
void SharedWriteReceiver::restart() {
  const std::span<std::byte> words(lines(), kSharedCells + std::size_t{options().max_senders} * ring::kCellBytes);
  std::memset(words.data(), 0, words.size());
  start_reader();
}

void SharedWriteReceiver::start_reader() {
  somebody_waits_ = has_dead_ = false;
  const std::span<const std::byte> cells(lines() + kSharedCells,
                                         std::size_t{options().max_senders} * ring::kCellBytes);
  reader_.emplace(geometry_, options().max_senders, ring::SharedMemory(lines() + kSharedTail, cells));
}

Result<std::unique_ptr<ReceiverPeer>> SharedWriteReceiver::make_peer(PeerId id) {
  if (reader_->fault() != ring::Fault::None) {
    if (!peers().empty())
      return Error(ErrorCode::ResourceExhausted,
                   "the ring was spoilt by a sender, and is made anew when the others have gone: connect again");
    restart();
  }
  const auto free = std::find(seats_.begin(), seats_.end(), nullptr);
  VERBENA_ASSERT(free != seats_.end());  // as many peers as seats are the most there are
  const auto seat = static_cast<std::uint32_t>(free - seats_.begin());
  std::memset(lines() + kSharedCells + std::size_t{seat} * ring::kCellBytes, 0, ring::kCellBytes);
  auto peer = std::make_unique<Peer>(*this, id, seat);
  seats_[seat] = peer.get();
  reader_->add(seat);
  return std::unique_ptr<ReceiverPeer>(std::move(peer));
}

QueuePairCapabilities SharedWriteReceiver::queues() const {
  return {.max_send_requests = 0,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

// The base's own receives take the immediates: of messages, and in a plain ring of as many that were dropped.
std::uint32_t SharedWriteReceiver::control_receives() const {
  constexpr std::uint32_t kWaits = 2;  // one for each place that waits, and none before the head has passed the last
  return std::min(2 * options().depth + kWaits, device().info().max_requests - 8);
}

void SharedWriteReceiver::offer(ReceiverPeer& peer, Offer& ours, const Offer*) {
  ours.memory = memory_.region.remote();
  ours.extra = SharedPlace{geometry_.capacity, static_cast<Peer&>(peer).seat}.pack();
}

// ---- Messages.

Result<void> SharedWriteReceiver::handle_received(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  if (completion.opcode != CompletionOpcode::ReceiveRdmaWithImmediate)
    return Error(ErrorCode::ProtocolError, "the sender finishes a receive that is not for messages");
  const std::uint32_t immediate = load_be32(completion.immediate.data());
  const ring::Fault fault = reader_->handle_arrival(peer.seat, immediate, completion.byte_count);
  if (fault != ring::Fault::None && !peer.gone)
    return Error(ErrorCode::ProtocolError, std::string(to_string(fault)));
  if (reader_->waits()) look_for_holders();
  touch_if_awaited();
  return {};
}

Result<void> SharedWriteReceiver::handle_waiting(ReceiverPeer&) {
  somebody_waits_ = true;
  look_for_holders();
  touch_if_awaited();
  return {};
}

// Mostly the next to come is under way. If it is not, the others wait: until the death of whoever has that place is
// known, who may have lived when it was asked; or he has had it for too long; or it turns out that nobody has.
// Nothing more may come from those who wait.
void SharedWriteReceiver::look_for_holders() {
  const Instant now = engine().now();
  touch_at(now + kLongWait);
  if (now < asked_at_ + kLongWait) return;
  const bool is_first = is_too_long(now - std::exchange(asked_at_, now));
  somebody_waits_ = somebody_waits_ && reader_->somebody_waits();
  if (std::exchange(held_at_, reader_->position()) == reader_->position()) reader_->search();
  for (const auto& each : peers()) {
    auto& peer = static_cast<Peer&>(*each);
    const bool holds = !peer.is_cut_off() && reader_->may_hold_up(peer.seat);
    const std::uint64_t arrived = std::exchange(peer.arrived_then, reader_->arrived(peer.seat));
    const bool held = std::exchange(peer.holds, holds);
    if (!held || is_first || arrived != peer.arrived_then) peer.holds_since = now;
    if (!holds) continue;
    if (!is_too_long(now - peer.holds_since)) check_alive(peer);
    else fail(peer, Error(ErrorCode::ProtocolError, "the sender reserved a place, and has held up the others with it"));
  }
}

// Not before it would be known to be dead: that is another end.
bool SharedWriteReceiver::is_too_long(Duration time) const {
  const ReliabilityOptions& reliability = options().connection.reliability;
  const std::int64_t retries = std::int64_t{reliability.retry_count} + 1;
  const Duration dying = Duration::nanoseconds(std::int64_t{4096} << (reliability.timeout & 31)) * (2 * retries);
  return (time - dying).ns / kMostKeepAlives >= std::max(options().connection.keep_alive, kLongWait).ns;
}

std::size_t SharedWriteReceiver::poll(std::span<Message> out) {
  std::size_t count = 0;
  for (; count < out.size(); ++count) {
    const auto got = reader_->poll();
    if (!got) break;
    const std::byte* const at = memory_.region.data() + got->view.offset;
    out[count] = seats_[got->sender]->hand_out({at, got->view.bytes}, got->view.position);
  }
  tell_head();
  if (somebody_waits_ || reader_->waits()) look_for_holders();
  has_dead_ = has_dead_ && reader_->is_searching();
  if (reader_->fault() != ring::Fault::None)
    for (const auto& peer : peers())
      if (!peer->is_cut_off())
        fail(*peer, Error(ErrorCode::ProtocolError, std::string(to_string(reader_->fault()))));
  return count;
}

void SharedWriteReceiver::handle_given_back(ReceiverPeer&, std::uint64_t token) {
  reader_->release({.position = token});
  tell_head();
}

void SharedWriteReceiver::tell_head() { ring::store_word(lines() + kSharedHead, reader_->head()); }

bool SharedWriteReceiver::is_empty(const ReceiverPeer& peer) const {
  return reader_->fault() != ring::Fault::None || !reader_->has_more_of(static_cast<const Peer&>(peer).seat);
}

void SharedWriteReceiver::handle_fenced(ReceiverPeer& peer) { leave(static_cast<Peer&>(peer)); }

void SharedWriteReceiver::leave(Peer& peer) {
  if (engine().is_inherited()) return;  // the ring is not there
  peer.gone = has_dead_ = true;
  reader_->handle_gone(peer.seat);
  touch();
}

}  // namespace verbena::messaging
