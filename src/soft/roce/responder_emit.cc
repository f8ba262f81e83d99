// SPDX-License-Identifier: Apache-2.0
// The responder's packets. READ data goes out from a copy: the memory is live.
#include <algorithm>

#include "soft/roce/responder.h"

namespace verbena::roce {

using wire::Opcode;

bool Responder::emit(Instant now, bool flush_acks, Train& train) {
  bool added = false;
  while (ready(now, flush_acks)) {
    const bool read = responses_.front().kind == Response::Kind::Read;
    if (!(read ? emit_read(now, train) : emit_short(now, train))) break;
    added = true;
  }
  return added;
}

wire::Packet Responder::answer(Opcode opcode, const Response& response) const {
  wire::Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.psn = response.psn;
  packet.bth.destination = link_.qp.attributes().destination;
  packet.bth.pkey = link_.pkey;
  packet.aeth = {response.syndrome, response.msn};
  packet.atomic_original = response.value;
  return packet;
}

Responder::Added Responder::add(Train& train, const wire::Packet& packet, std::span<const Piece> parts,
                    std::size_t payload) {
  const std::size_t bytes = packet.info().header_bytes + payload + packet.bth.pad_count + wire::kIcrcBytes;
  if (!train.fits(bytes)) return Added::NoRoom;
  if (!train.add(packet, parts, payload, Train::Payload::Copy)) return Added::Fault;
  ++link_.counters.sent_pkts;
  link_.counters.sent_bytes += bytes;
  return Added::Yes;
}

bool Responder::emit_short(Instant now, Train& train) {
  const Response& front = responses_.front();
  const bool atomic = front.kind == Response::Kind::Atomic;
  const bool alone = train.empty() && !front.prompt;
  const wire::Packet packet = answer(atomic ? Opcode::RcAtomicAcknowledge : Opcode::RcAcknowledge, front);
  if (add(train, packet, {}, 0) != Added::Yes) return false;
  if (front.kind == Response::Kind::Acknowledge) conversation_.on_acknowledged(now, alone);
  responses_.pop();
  return true;
}

void Responder::break_off_read(wire::NakCode code, AsyncEventType event) {
  const Psn psn = responses_.front().psn;
  responses_.clear();
  fatal(code, psn, event);
}

// The middle of an answer, as far as it goes at once. False where it has to go packet by packet.
bool Responder::emit_read_run(Instant now, Train& train) {
  Response& front = responses_.front();
  const std::uint32_t mtu = link_.mtu();
  if (!front.began || front.length <= 2 * mtu || !may_be_read()) return false;
  const std::uint32_t count = std::min((front.length - 1) / mtu, train.room_for_run(mtu));
  if (count < 2) return false;
  const std::uint32_t bytes = count * mtu;
  const std::byte* from = link_.memory.find_remote(front.rkey, link_.pd(), front.va, bytes, Access::RemoteRead);
  const wire::Bth bth = answer(Opcode::RcReadResponseMiddle, front).bth;
  if (from == nullptr || !train.add_run(bth, from, mtu, count, Train::Payload::Copy)) return false;
  link_.counters.sent_pkts += count;
  link_.counters.sent_bytes += count * (wire::kBthBytes + mtu + wire::kIcrcBytes);
  front.filled = front.filled || train.room_for_run(mtu) == 0;
  front.since = now;
  front.psn = front.psn + count;
  front.va += bytes;
  front.length -= bytes;
  return true;
}

bool Responder::emit_read(Instant now, Train& train) {
  if (emit_read_run(now, train)) return true;
  Response& front = responses_.front();
  const std::uint32_t bytes = std::min(front.length, link_.mtu());
  const bool last = bytes == front.length;
  Opcode opcode = last ? Opcode::RcReadResponseLast : Opcode::RcReadResponseMiddle;
  if (!front.began) opcode = last ? Opcode::RcReadResponseOnly : Opcode::RcReadResponseFirst;
  if (!may_be_read()) {  // taken away while it was being read
    ++link_.counters.invalid_requests;
    break_off_read(wire::NakCode::InvalidRequest, AsyncEventType::QpRequestError);
    return true;
  }
  Piece piece{nullptr, 0};
  if (bytes != 0) {
    piece = {link_.memory.find_remote(front.rkey, link_.pd(), front.va, bytes, Access::RemoteRead), bytes};
    if (piece.data == nullptr) {  // deregistered while it was being read
      ++link_.counters.access_violations;
      break_off_read(wire::NakCode::RemoteAccess, AsyncEventType::QpAccessError);
      return true;
    }
  }
  wire::Packet packet = answer(opcode, front);
  packet.bth.pad_count = wire::pad_count_for(bytes);
  const Added added = add(train, packet, {&piece, bytes == 0 ? 0u : 1u}, bytes);
  if (added == Added::NoRoom) return false;
  if (added == Added::Fault) {  // unmapped while it is registered
    ++link_.counters.memory_faults;
    break_off_read(wire::NakCode::RemoteOperation, AsyncEventType::QpFatal);
    return true;
  }
  if (last) {
    responses_.pop();
    return true;
  }
  front.began = true;
  front.since = now;
  ++front.psn;
  front.va += bytes;
  front.length -= bytes;
  return true;
}

}  // namespace verbena::roce
