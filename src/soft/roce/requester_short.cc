// SPDX-License-Identifier: Apache-2.0
// SENDs and WRITEs of one short packet, each sent for the first time: their way leads past all that is about messages
// of several packets, READs, and sending again. Whatever is not plain goes the long way: to the peer it is the same.
#include "soft/roce/requester.h"

#include <array>

namespace verbena::roce {

using core::SendWqe;

struct Requester::Short {
  wire::Packet packet;  // but for what add_short() sets
  SendFlags flags = SendFlags::None;
  std::array<core::Piece, kMostShortPieces> pieces{};
  std::size_t count = 0;  // of pieces
  std::size_t bytes = 0;  // in all of them

  // One by one: what is put together elsewhere could be copied only when all its parts have reached the cache.
  template <class Request>
  void take(const Request& from, std::uint32_t length) {
    packet.bth.opcode = opcode_of(from.opcode, true, true);
    packet.reth.va = from.remote_address;
    packet.reth.rkey = from.rkey;
    packet.reth.length = length;
    packet.immediate = from.immediate;
    flags = from.flags;
    count = 0;
    bytes = length;
  }
};

namespace {

bool may_be_short(SendOpcode opcode, std::uint64_t length) {
  return opcode < SendOpcode::RdmaRead && length <= kMostShortBytes;
}

}  // namespace

bool Requester::leaves_in_order() const {
  return state_.current_packet == 0 && state_.next == state_.highest && !state_.failed && !state_.rnr_waiting &&
         !state_.rnr_only_one;
}

bool Requester::find_piece(const ScatterGather& sge, bool is_inline, core::Piece& piece) const {
  piece.size = sge.length;
  if (is_inline)
    piece.data = reinterpret_cast<const std::byte*>(sge.address);
  else if (piece.size != 0)
    piece.data = link_.memory.find_local(sge.lkey, link_.pd(), sge.address, sge.length, Access::None);
  return piece.size == 0 || piece.data != nullptr;
}

bool Requester::is_short(const SendWqe& wqe, Short& request) const {
  if (!may_be_short(wqe.opcode, wqe.length) || wqe.started || wqe.sge_count != 1) return false;
  if (has_flag(wqe.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  request.take(wqe, wqe.length);
  return find_payload(wqe, request);
}

// Behind `request`, which left: but for number and payload its packet is the same.
inline bool Requester::is_alike(const SendWqe& wqe, const Short& request) {
  return request.packet.bth.opcode == wire::Opcode::RcSendOnly && wqe.opcode == SendOpcode::Send && !wqe.started &&
         wqe.length == request.bytes && wqe.sge_count == 1 && !has_flag(wqe.flags, SendFlags::Fence) &&
         has_flag(wqe.flags, SendFlags::Solicited) == has_flag(request.flags, SendFlags::Solicited);
}

inline bool Requester::find_payload(const SendWqe& wqe, Short& request) const {
  core::SendQueue& queue = link_.qp.send_queue();
  request.count = 1;
  if (!has_flag(wqe.flags, SendFlags::Inline))
    return find_piece(queue.sges(state_.current)[0], false, request.pieces[0]);
  request.pieces[0] = {queue.inline_data(state_.current).data(), wqe.length};
  return true;
}

// Inline bytes are the caller's own.
bool Requester::is_short(const SendRequest& posted, Short& request) const {
  if (posted.local.size() > kMostShortPieces) return false;
  std::uint64_t bytes = 0;
  for (const ScatterGather& sge : posted.local) bytes += sge.length;
  if (!may_be_short(posted.opcode, bytes)) return false;
  if (has_flag(posted.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  request.take(posted, static_cast<std::uint32_t>(bytes));
  const bool is_inline = has_flag(posted.flags, SendFlags::Inline);
  for (const ScatterGather& sge : posted.local)
    if (!find_piece(sge, is_inline, request.pieces[request.count++])) return false;
  return true;
}

// Each is the last packet of its message, and asks for an acknowledgement. False: the train or the memory ended.
bool Requester::add_short(Short& request, Train& train) const {
  wire::Bth& bth = request.packet.bth;
  bth = bth_of(bth.opcode, request.flags);
  bth.ack_request = true;
  bth.pad_count = wire::pad_count_for(request.bytes);
  return train.fits(request.packet.info().header_bytes + request.bytes + bth.pad_count + wire::kIcrcBytes) &&
         train.add(request.packet, {request.pieces.data(), request.count}, request.bytes, Train::Payload::Copy);
}

// It takes the next place in the window; `first` of its train or not.
inline void Requester::begin_short(SendWqe& wqe, bool first) {
  wqe.started = true;
  wqe.first_psn = state_.next;
  wqe.packets = 1;
  wqe.bytes_before = state_.bytes_begun;
  wqe.trains_before = state_.trains_begun;
  state_.bytes_begun += wqe.length;
  if (first) ++state_.trains_begun;
  pass_psns(1);
  ++state_.current;
}

// That so many have left, of so many bytes with their headers: what was the next before is the first of them.
void Requester::note_shorts(Instant now, std::uint32_t count, std::size_t bytes) {
  const bool was_idle = !state_.anything_sent();
  state_.window.on_sent(state_.highest, now);
  state_.since_ack_request = 0;
  state_.highest = state_.next;
  link_.counters.sent_pkts += count;
  link_.counters.sent_bytes += bytes;
  expect_answer(now, was_idle);
}

// As many of those that come next as there is room for.
Requester::Shorts Requester::emit_shorts(Instant now, const Room& room, Train& train) {
  if (!leaves_in_order()) return Shorts::None;
  core::SendQueue& queue = link_.qp.send_queue();
  const std::uint32_t end = queue.posted();
  const bool joins = !train.empty();
  const std::size_t before = train.total_bytes();
  std::uint32_t count = 0, bytes = 0;
  Short request;
  while (state_.current != end && count < room.packets && bytes + kMostShortBytes <= room.bytes) {
    SendWqe& wqe = queue.at(state_.current);
    const bool alike = count != 0 && is_alike(wqe, request);
    if (alike ? !find_payload(wqe, request) : !is_short(wqe, request)) break;
    if (alike ? !train.add_next(request.pieces[0]) : !add_short(request, train)) {
      if (count == 0 && joins) return Shorts::NoRoom;
      break;
    }
    begin_short(wqe, !joins && count == 0);
    ++count;
    bytes += static_cast<std::uint32_t>(request.bytes);
  }
  if (count == 0) return Shorts::None;
  note_shorts(now, count, train.total_bytes() - before);
  return Shorts::Some;
}

// The window admits at least what is counted here: packets of any length.
bool Requester::put_short(const SendRequest& posted, Train& train) {
  const std::uint32_t with_it = state_.in_flight() + 1;
  const bool admitted = with_it <= std::min(link_.config.max_window_packets, state_.window.packets()) &&
                        with_it * link_.mtu() <= link_.config.max_window_bytes;
  Short request;
  if (!leaves_in_order() || (with_it != 1 && !admitted) || !is_short(posted, request)) return false;
  core::SendQueue& queue = link_.qp.send_queue();
  if (!queue.post_started(state_.current, posted, [&](std::uint32_t) { return add_short(request, train); }))
    return false;
  begin_short(queue.at(state_.current), true);
  return true;
}

void Requester::follow_short(Instant now, const Train& train) { note_shorts(now, 1, train.total_bytes()); }

}  // namespace verbena::roce
