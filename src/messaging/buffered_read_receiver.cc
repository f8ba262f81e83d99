// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "messaging/buffered_read.h"
#include "messaging/ring/fetch_plan.h"
#include "messaging/ring/memory.h"
#include "messaging/ring/reader.h"

namespace verbena::messaging {

namespace {

constexpr std::uint64_t kTailId = 1, kSpanId = 2, kHeadId = 3;
constexpr std::uint64_t kImageLines = 64;  // behind the image: where tails are READ to
// A tail is asked for when less than this part of the ring waits to be taken.
constexpr std::uint64_t kLowPart = 4;

Error broken(std::string_view why) { return Error(ErrorCode::ProtocolError, std::string(why)); }

}  // namespace

struct BufferedReadReceiver::Peer final : ReceiverPeer {
  using ReceiverPeer::ReceiverPeer;

  // The next message, which stays the next one until it is taken.
  const ring::View* next() {
    if (!peeked && reader) peeked = reader->poll();
    return peeked ? &*peeked : nullptr;
  }
  std::uint64_t memory_bytes() const override { return image.region.size(); }
  std::byte* tail_line() const { return image.region.data() + reader->geometry().memory_bytes(); }
  bool is_low() const { return plan->whole() - reader->position() <= reader->geometry().capacity / kLowPart; }

  RemoteMemory remote;
  RegisteredRing image;
  std::uint64_t whole = 0;  // what the reader takes for the tail
  std::optional<ring::FetchPlan> plan;
  std::optional<ring::Reader> reader;
  std::optional<ring::View> peeked;
  bool asks_tail = false;   // its READ is under way
  bool tells_head = false;  // its WRITE is under way
  // Of the last tail: the sender said before it was asked for that there will be no other.
  bool finishing = false, asks_last = false, has_last = false;
};

Result<void> BufferedReadReceiver::open() {
  if (device().info().max_inline_bytes < ring::kWordBytes)
    return Error(ErrorCode::NotSupported, "messages by " + to_string(options().kind) +
                                              ": the device sends nothing inline, and words are sent so");
  auto capacity = ring_capacity(options());
  if (!capacity) return capacity.error();
  most_capacity_ = *capacity;
  return {};
}

Result<std::unique_ptr<ReceiverPeer>> BufferedReadReceiver::make_peer(PeerId id) {
  return std::unique_ptr<ReceiverPeer>(std::make_unique<Peer>(*this, id));
}

// Spans, a tail and a head.
QueuePairCapabilities BufferedReadReceiver::queues() const {
  return {.max_send_requests = static_cast<std::uint32_t>(ring::FetchPlan::kMostSpans) + 2,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = ring::kWordBytes};
}

Result<void> BufferedReadReceiver::check_offer(const Offer& theirs, const Settled& settled) const {
  const auto unsound = [&](const std::string& why) {
    return broken("the sender offers a ring of " + std::to_string(theirs.extra) + " bytes" + why);
  };
  const ring::Geometry geometry = geometry_of(settled, theirs.extra);
  if (!geometry.is_valid()) return unsound("");
  if (geometry.capacity > most_capacity_)
    return Error(ErrorCode::InvalidArgument, "the sender has a ring of " + std::to_string(theirs.extra) +
                                                 " bytes, and at most " + std::to_string(most_capacity_) +
                                                 " are taken");
  if (theirs.memory.length < geometry.memory_bytes() + ReadRing::kLines)
    return unsound(" in memory of " + std::to_string(theirs.memory.length));
  if (settled.max_message_bytes > geometry.max_payload_bytes())
    return unsound(" that does not hold its longest message");
  return {};
}

Result<void> BufferedReadReceiver::start(ReceiverPeer& base, const Offer& theirs, const Settled& settled) {
  const ring::Geometry geometry = geometry_of(settled, theirs.extra);
  auto& peer = static_cast<Peer&>(base);
  auto image =
      RegisteredRing::create(domain(), geometry.capacity, settled.kind.ring, kImageLines, Access::LocalWrite);
  if (!image) return image.error();
  peer.image = std::move(*image);
  peer.remote = theirs.memory;
  const auto bytes = peer.image.region.bytes().first(static_cast<std::size_t>(geometry.memory_bytes()));
  peer.plan.emplace(geometry);
  peer.reader.emplace(geometry, ring::RingMemory(bytes, reinterpret_cast<const std::byte*>(&peer.whole)));
  ask_for_tail(peer);
  return {};
}

// ---- Fetching.

bool BufferedReadReceiver::post_read(Peer& peer, std::uint64_t id, const ScatterGather& to,
                                     std::uint64_t offset) {
  SendRequest request;
  request.id = id;
  request.opcode = SendOpcode::RdmaRead;
  request.local = {&to, 1};
  request.remote_address = peer.remote.address + offset;
  request.rkey = peer.remote.rkey;
  return static_cast<bool>(post(peer, {&request, 1}));
}

void BufferedReadReceiver::ask_for_tail(Peer& peer) {
  if (peer.asks_tail || (peer.plan->is_full() && !peer.finishing)) return;
  const std::uint64_t line = peer.reader->geometry().memory_bytes();
  peer.asks_last = peer.finishing;
  peer.asks_tail =
      post_read(peer, kTailId, peer.image.region.local(line, ring::kWordBytes), line + ReadRing::kTail);
}

void BufferedReadReceiver::ask_for_spans(Peer& peer) {
  while (const auto span = peer.plan->next())
    if (!post_read(peer, kSpanId, peer.image.region.local(span->offset, span->bytes), span->offset)) return;
}

Result<void> BufferedReadReceiver::take_tail(Peer& peer) {
  peer.asks_tail = false;
  peer.has_last = peer.asks_last;
  const std::uint64_t tail = ring::load_word(peer.tail_line());
  if (const ring::Fault fault = peer.plan->handle_tail(tail); fault != ring::Fault::None)
    return broken(to_string(fault));
  // The next in front of the span; or, with nothing new, when something came or somebody looks.
  const bool is_more = !peer.plan->has_all_known();
  if (!peer.has_last && (is_more || peer.finishing)) ask_for_tail(peer);
  return {};
}

Result<void> BufferedReadReceiver::handle_sent(ReceiverPeer& base, const Completion& completion) {
  auto& peer = static_cast<Peer&>(base);
  if (completion.status != CompletionStatus::Success) return {};
  if (completion.id == kHeadId) {
    peer.tells_head = false;
    tell_head(peer);
    return {};
  }
  if (completion.id == kTailId) {
    if (auto ok = take_tail(peer); !ok) return ok;
  } else {
    peer.plan->handle_fetched();
    peer.whole = peer.plan->whole();
    if (!peer.has_last) ask_for_tail(peer);
    touch_if_awaited();
  }
  ask_for_spans(peer);
  answer_finish(peer);
  return {};
}

// What was put into the ring before is to be seen in the tail from now on.
void BufferedReadReceiver::handle_finish(ReceiverPeer& base) {
  auto& peer = static_cast<Peer&>(base);
  peer.finishing = true;
  if (peer.plan) ask_for_tail(peer);
}

bool BufferedReadReceiver::has_all(const ReceiverPeer& base, std::uint64_t) const {
  const auto& peer = static_cast<const Peer&>(base);
  return peer.has_last && peer.plan->has_all_known();
}

Result<void> BufferedReadReceiver::handle_received(ReceiverPeer&, const Completion&) {
  return broken("the sender finishes a receive that is not for messages");
}

// ---- Messages.

bool BufferedReadReceiver::poll_one(Peer& peer, Message& out) {
  if (!peer.reader) return false;
  const ring::View* const view = peer.next();
  if (peer.is_cut_off()) {
    // Nothing is asked of it any more.
  } else if (view == nullptr && peer.reader->fault() != ring::Fault::None) {
    fail(peer, broken(to_string(peer.reader->fault())));
  } else if (!peer.has_last && peer.plan->asked() == 0 && peer.is_low()) {
    ask_for_tail(peer);
  }
  if (view == nullptr) return false;
  out = peer.hand_out({peer.image.region.data() + view->offset, view->bytes}, view->position);
  peer.peeked.reset();
  return true;
}

std::size_t BufferedReadReceiver::poll(std::span<Message> out) {
  return poll_in_turns(out, [this](ReceiverPeer& peer, Message& message) {
    return poll_one(static_cast<Peer&>(peer), message);
  });
}

void BufferedReadReceiver::handle_given_back(ReceiverPeer& base, std::uint64_t token) {
  auto& peer = static_cast<Peer&>(base);
  peer.reader->release({.position = token});
  tell_head(peer);
}

// One at a time: what is given back meanwhile goes with the next.
void BufferedReadReceiver::tell_head(Peer& peer) {
  if (peer.tells_head || !peer.reader->acknowledgement_due()) return;
  const std::uint64_t head = peer.reader->head();
  const ScatterGather piece{reinterpret_cast<std::uintptr_t>(&head), ring::kWordBytes, {}};
  SendRequest request;
  request.id = kHeadId;
  request.opcode = SendOpcode::RdmaWrite;
  request.flags = SendFlags::Signaled | SendFlags::Inline;
  request.local = {&piece, 1};
  request.remote_address = peer.remote.address + peer.reader->geometry().memory_bytes() + ReadRing::kHead;
  request.rkey = peer.remote.rkey;
  if (!post(peer, {&request, 1})) return;
  peer.tells_head = true;
  peer.plan->handle_told(peer.reader->acknowledge());
  ++counters_.credit_messages;
}

bool BufferedReadReceiver::is_empty(const ReceiverPeer& base) const {
  return const_cast<Peer&>(static_cast<const Peer&>(base)).next() == nullptr;
}

}  // namespace verbena::messaging
