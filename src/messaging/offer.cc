// SPDX-License-Identifier: Apache-2.0
#include "messaging/offer.h"

#include <algorithm>
#include <string>

#include "device/wire_bytes.h"

namespace verbena::messaging {

namespace {

using namespace wire_bytes;

constexpr char kSealLetter = 'M';
constexpr std::byte kOrderInWrite{1};

template <class E>
std::byte as_byte(E value) {
  return static_cast<std::byte>(value);
}

Error not_ours(const std::string& why) {
  return Error(ErrorCode::ProtocolError, "the peer's offer of a message protocol: " + why);
}

// A byte that may hold first to last.
template <class E>
bool take(std::byte from, E first, E last, E& to) {
  if (from < as_byte(first) || from > as_byte(last)) return false;
  to = static_cast<E>(from);
  return true;
}

}  // namespace

std::array<std::byte, Offer::kWireBytes> Offer::to_bytes() const {
  std::array<std::byte, kWireBytes> bytes{};
  bytes[0] = as_byte(role);
  bytes[1] = as_byte(kind.protocol);
  bytes[2] = as_byte(kind.commit);
  bytes[3] = as_byte(kind.acknowledge);
  bytes[4] = as_byte(kind.ring);
  bytes[5] = as_byte(kind.fenced);
  bytes[6] = order_in_write ? kOrderInWrite : std::byte{0};
  store_le32(&bytes[8], max_message_bytes);
  store_le32(&bytes[12], depth);
  store_le64(&bytes[16], memory.address);
  store_le64(&bytes[24], memory.length);
  store_le32(&bytes[32], memory.rkey.value());
  store_le64(&bytes[36], extra);
  seal(bytes, kSealLetter);
  return bytes;
}

Result<Offer> Offer::from_bytes(std::span<const std::byte> bytes) {
  if (auto ok = check_seal(bytes, kWireBytes, kSealLetter, "offer of a message protocol"); !ok)
    return Error(ErrorCode::ProtocolError,
                 ok.error().context() + "; is there a messaging::Sender or Receiver of this release?");
  Offer offer;
  if (!take(bytes[0], Role::Sender, Role::Receiver, offer.role))
    return not_ours("neither sender nor receiver");
  if (!take(bytes[1], Protocol::SendReceive, Protocol::BufferedRead, offer.kind.protocol))
    return not_ours("protocol " + std::to_string(std::to_integer<int>(bytes[1])) +
                    ", which this side does not know");
  if (!take(bytes[2], Commit::Immediate, Commit::Reversed, offer.kind.commit) ||
      !take(bytes[3], Acknowledge::Send, Acknowledge::Read, offer.kind.acknowledge) ||
      !take(bytes[4], RingMemory::Plain, RingMemory::DoubleMapped, offer.kind.ring) ||
      bytes[5] > std::byte{1} || bytes[6] > kOrderInWrite || bytes[7] != std::byte{0})
    return not_ours("a choice this side does not know");
  offer.kind.fenced = bytes[5] != std::byte{0};
  offer.order_in_write = bytes[6] == kOrderInWrite;
  offer.max_message_bytes = load_le32(&bytes[8]);
  offer.depth = load_le32(&bytes[12]);
  offer.memory = {load_le64(&bytes[16]), load_le64(&bytes[24]), RKey{load_le32(&bytes[32])}};
  offer.extra = load_le64(&bytes[36]);
  if (offer.max_message_bytes == 0 || offer.depth == 0)
    return not_ours("no message, or none in flight, is allowed");
  return offer;
}

Result<Settled> settle(const Offer& ours, const Offer& theirs) {
  if (ours.role == theirs.role)
    return Error(ErrorCode::InvalidArgument,
                 ours.role == Role::Sender ? "both ends are senders" : "both ends are receivers");
  if (ours.kind.protocol != theirs.kind.protocol)
    return Error(ErrorCode::InvalidArgument, "one end speaks " + std::string(to_string(ours.kind.protocol)) +
                                                 ", the other " +
                                                 std::string(to_string(theirs.kind.protocol)));
  const bool we_send = ours.role == Role::Sender;
  const Offer& sender = we_send ? ours : theirs;
  const Offer& receiver = we_send ? theirs : ours;
  Kind kind = receiver.kind;
  if (kind.protocol == Protocol::BufferedRead) kind.ring = sender.kind.ring;
  if (traits_of(kind).order_in_write && !receiver.order_in_write)
    return Error(ErrorCode::NotSupported, "the receiver chose " + to_string(kind) +
                                              ", and its device does not promise the order inside a WRITE that "
                                              "this needs");
  return Settled{kind, std::min(ours.max_message_bytes, theirs.max_message_bytes),
                 std::min(ours.depth, theirs.depth), receiver.order_in_write};
}

Kind without_order_in_write(const Kind& kind) {
  Kind other = kind;
  if (traits_of(kind).order_in_write)
    other.commit = kind.acknowledge == Acknowledge::Read ? Commit::Offset : Commit::Immediate;
  return other;
}

Error needs_atomics(const std::string& but) {
  return Error(ErrorCode::InvalidArgument,
               "messages by buffered-write/offset at a device that promises no order of WRITEs need atomics, and "
               "ConnectionOptions::reliability." + but);
}

bool has_atomic_tail(const Kind& kind, bool order_in_write) {
  return kind.protocol == Protocol::BufferedWrite && kind.commit == Commit::Offset && !order_in_write;
}

}  // namespace verbena::messaging
