// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/requester.h"

#include <algorithm>
#include <utility>

#include "soft/core/planted.h"

namespace verbena::roce {

using core::PlantedBug;
using core::SendWqe;
using wire::Opcode;

std::uint32_t packets_of(std::uint32_t bytes, std::uint32_t mtu) {
  return bytes <= mtu ? 1 : (bytes - 1) / mtu + 1;
}

std::uint32_t read_chunk_packets(const Link& link) {
  const std::uint32_t most = std::max(link.config.max_window_packets * 2 / 3, 2u) - 1;
  return std::clamp(link.config.read_chunk_bytes / link.mtu(), 1u, most);
}

// One packet of a message: which bytes, and whether it is the first and the last.
struct Requester::Cut {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;   // payload; of a READ: the bytes asked for
  std::uint32_t packets = 1;  // sequence numbers it takes
  bool first = false, last = false;
};

Opcode opcode_of(SendOpcode opcode, bool first, bool last) {
  switch (opcode) {
    case SendOpcode::RdmaRead:
      return Opcode::RcReadRequest;
    case SendOpcode::CompareAndSwap:
      return Opcode::RcCompareSwap;
    case SendOpcode::FetchAndAdd:
      return Opcode::RcFetchAdd;
    default:
      break;
  }
  const bool writes = opcode == SendOpcode::RdmaWrite || opcode == SendOpcode::RdmaWriteWithImmediate;
  const bool immediate = opcode == SendOpcode::SendWithImmediate || opcode == SendOpcode::RdmaWriteWithImmediate;
  const Opcode of_send = first ? (last ? Opcode::RcSendOnly : Opcode::RcSendFirst)
                               : (last ? Opcode::RcSendLast : Opcode::RcSendMiddle);
  // The opcodes of a WRITE stand in the order of those of a SEND, each with immediate behind the one without.
  constexpr auto kWrite = static_cast<std::uint8_t>(Opcode::RcWriteFirst);
  return static_cast<Opcode>(static_cast<std::uint8_t>(of_send) + (writes ? kWrite : 0) + (immediate && last ? 1 : 0));
}

wire::Bth Requester::bth_of(Opcode opcode, SendFlags flags) const {
  wire::Bth bth;
  bth.opcode = opcode;
  bth.psn = state_.next;
  bth.destination = link_.qp.attributes().destination;
  bth.pkey = link_.pkey;
  bth.solicited = wire::opcode_info(opcode).completes_receive && has_flag(flags, SendFlags::Solicited);
  return bth;
}

std::uint32_t Requester::read_chunk_packets() const { return roce::read_chunk_packets(link_); }

bool Requester::may_start(const SendWqe& wqe) const {
  const QueuePairState qp_state = link_.qp.state();
  const bool fresh = !wqe.started;
  if (qp_state == QueuePairState::Sqd ? fresh : qp_state != QueuePairState::Rts) return false;
  if (fresh && has_flag(wqe.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  const std::uint8_t limit = link_.qp.attributes().max_rd_atomic;
  if (wqe.is_read_or_atomic() && limit != 0 && state_.reads_out >= limit) return false;
  return true;
}

std::uint32_t Requester::bytes_in_flight() const {
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() == queue.posted()) return 0;
  const SendWqe& oldest = queue.at(queue.retired());
  if (!oldest.started) return 0;
  const std::uint32_t mtu = link_.mtu();
  const auto answered = static_cast<std::uint32_t>(std::max(Psn::distance(state_.unacked, oldest.first_psn), 0));
  const std::uint32_t begin = oldest.bytes_before + std::min(answered * mtu, oldest.length);
  if (state_.current == queue.posted() || !queue.at(state_.current).started) return state_.bytes_begun - begin;
  const SendWqe& current = queue.at(state_.current);
  return current.bytes_before + std::min(state_.current_packet * mtu, current.length) - begin;
}

std::uint32_t Requester::trains_in_flight() const {
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() == queue.posted()) return 0;
  const SendWqe& oldest = queue.at(queue.retired());
  return oldest.started ? state_.trains_begun - oldest.trains_before : 0;
}

Requester::Room Requester::room() const {
  const Config& config = link_.config;
  const std::uint32_t in_flight = state_.in_flight(), bytes_out = bytes_in_flight();
  const auto left_of = [&](std::uint32_t packets, std::uint32_t bytes) {
    packets = std::min(packets, state_.window.packets());
    return Room{packets - std::min(packets, in_flight), bytes - std::min(bytes, bytes_out)};
  };
  const Room room = left_of(config.max_window_packets, config.max_window_bytes);
  if (room.packets != 0 || !link_.trains_arrive_whole || trains_in_flight() > config.max_window_trains) return room;
  return left_of(config.max_window_packets_in_trains, config.max_window_bytes_in_trains);
}

// One more is always admitted while nothing is outstanding.
bool Requester::window_admits(const SendWqe& wqe, const Room& room) const {
  if (state_.in_flight() == 0) return true;
  const std::uint32_t mtu = link_.mtu();
  const std::uint32_t left = wqe.is_atomic() ? 0 : wqe.length - (wqe.started ? state_.current_packet * mtu : 0);
  std::uint32_t wanted = 1;
  if (wqe.opcode == SendOpcode::RdmaRead) {
    const std::uint32_t total = wqe.started ? wqe.packets : packets_of(wqe.length, mtu);
    wanted = std::min(read_chunk_packets(), total - state_.current_packet);
  }
  return wanted <= room.packets && std::min(left, wanted * mtu) <= room.bytes;
}

bool Requester::waits_for_room(const SendWqe& wqe, const Room& room) const {
  const std::uint32_t admitted = room.full_packets(link_.mtu());
  return admitted < full_train_ && full_train_ <= half_window() && state_.current_packet != 0 &&
         !wqe.is_read_or_atomic() && wqe.packets - state_.current_packet > admitted && state_.next == state_.highest;
}

bool Requester::next_may_leave() {
  Room room;
  const SendWqe* const wqe = sendable(room);
  return wqe != nullptr && !waits_for_room(*wqe, room);
}

SendWqe* Requester::sendable(Room& room) {
  SendWqe* const wqe = next_request();
  if (wqe == nullptr || state_.rnr_waiting || at_failed() || !may_start(*wqe)) return nullptr;
  room = this->room();
  return window_admits(*wqe, room) ? wqe : nullptr;
}

std::uint32_t Requester::half_window() const { return std::max(state_.window.full_packets() / 2, 1u); }

// Once in a full train, so that room is made for one at a time.
std::uint32_t Requester::ack_request_interval() const {
  const std::uint32_t most = std::min(link_.config.ack_request_interval, half_window());
  return full_train_ == 1 ? most : std::min(full_train_, most);
}

void Requester::begin(SendWqe& wqe) {
  wqe.started = true;
  wqe.first_psn = state_.next;
  wqe.packets = wqe.is_atomic() ? 1 : packets_of(wqe.length, link_.mtu());
  wqe.bytes_before = state_.bytes_begun;
  wqe.trains_before = state_.trains_begun;
  state_.bytes_begun += wqe.length;
  // A READ or atomic must be able to store its answer, or nothing of it is sent. The QP must allow
  // READs at all.
  if (!wqe.is_read_or_atomic()) return;
  if (link_.qp.attributes().max_rd_atomic == 0) return fail(CompletionStatus::LocalQpOperationError);
  PieceList pieces;
  if (!find_pieces(link_, link_.pd(), link_.qp.send_queue().sges(state_.current), 0, wqe.length, Access::LocalWrite,
                   pieces))
    fail(CompletionStatus::LocalProtectionError);
}

void Requester::fail(CompletionStatus status) {
  state_.failed = true;
  state_.failed_index = state_.current;
  state_.failed_status = status;
}

bool Requester::payload_of(SendWqe& wqe, const Cut& cut, PieceList& pieces) {
  if (wqe.is_read_or_atomic() || cut.length == 0) return true;
  core::SendQueue& queue = link_.qp.send_queue();
  if (has_flag(wqe.flags, SendFlags::Inline)) {
    pieces.pieces[0] = {queue.inline_data(state_.current).data() + cut.offset, cut.length};
    pieces.count = 1;
    return true;
  }
  return find_pieces(link_, link_.pd(), queue.sges(state_.current), cut.offset, cut.length, Access::None, pieces);
}

bool Requester::emit(Instant now, Train& train) {
  bool added = false;
  if (state_.current_packet != 0) full_train_ = train.room_for_run(link_.mtu());
  Room room;
  while (SendWqe* const next = sendable(room)) {
    SendWqe& wqe = *next;
    const Shorts shorts = emit_shorts(now, room, train);
    if (shorts == Shorts::NoRoom) break;
    if (shorts == Shorts::Some) {
      added = true;
      continue;
    }
    if (!added && waits_for_room(wqe, room)) break;
    if (!wqe.started) begin(wqe);
    if (at_failed()) break;
    const std::uint32_t run = middle_run(wqe, room, train);
    if (!(run != 0 ? emit_run(now, wqe, run, room, train) : emit_packet(now, wqe, room, train))) break;
    if (!std::exchange(added, true)) ++state_.trains_begun;
    if (state_.rnr_only_one) {
      state_.rnr_only_one = false;
      state_.next = state_.highest;
      while (state_.current != link_.qp.send_queue().posted() &&
             link_.qp.send_queue().at(state_.current).started)
        ++state_.current;
      state_.current_packet = 0;
      break;
    }
  }
  return added;
}

// How many of the next packets are alike but for number and payload: sent for the first time, in the middle of a
// message, and none asks for an answer. 0 unless there are several.
std::uint32_t Requester::middle_run(const SendWqe& wqe, const Room& room, const Train& train) const {
  if (wqe.is_read_or_atomic() || has_flag(wqe.flags, SendFlags::Inline) || state_.current_packet == 0 ||
      state_.next != state_.highest || state_.rnr_only_one)
    return 0;
  const std::uint32_t admitted = room.full_packets(link_.mtu());
  const std::uint32_t limits[] = {
      wqe.packets - 1 - state_.current_packet,
      admitted - std::min(admitted, 1u),
      ack_request_interval() - std::min(state_.since_ack_request + 1, ack_request_interval()),
  };
  const std::uint32_t most = *std::min_element(std::begin(limits), std::end(limits));
  return most < 2 ? 0 : std::min(most, train.room_for_run(link_.mtu()));
}

bool Requester::emit_run(Instant now, SendWqe& wqe, std::uint32_t count, const Room& room, Train& train) {
  const std::uint32_t mtu = link_.mtu();
  const auto sges = link_.qp.send_queue().sges(state_.current);
  const std::uint32_t offset = state_.current_packet * mtu;
  PieceList pieces;
  if (!find_pieces(link_, link_.pd(), sges, offset, count * mtu, Access::None, pieces) || pieces.count != 1)
    return emit_packet(now, wqe, room, train);  // one by one as far as it goes
  const wire::Bth bth = bth_of(opcode_of(wqe.opcode, false, false), wqe.flags);
  if (!train.add_run(bth, pieces.pieces[0].data, mtu, count, Train::Payload::Gather))
    return emit_packet(now, wqe, room, train);  // so far as the memory is there
  link_.counters.sent_pkts += count;
  link_.counters.sent_bytes += count * (wire::kBthBytes + mtu + wire::kIcrcBytes);
  advance(now, wqe, count, false);
  return true;
}

bool Requester::emit_packet(Instant now, SendWqe& wqe, const Room& room, Train& train) {
  const std::uint32_t mtu = link_.mtu();
  Cut cut;
  cut.offset = state_.current_packet * mtu;
  cut.first = state_.current_packet == 0;
  if (wqe.opcode == SendOpcode::RdmaRead) {
    const std::uint32_t chunk = read_chunk_packets();
    cut.packets = std::min(chunk - state_.current_packet % chunk, wqe.packets - state_.current_packet);
    cut.length = std::min(cut.packets * mtu, wqe.length - cut.offset);
  } else if (!wqe.is_atomic()) {
    cut.length = std::min(mtu, wqe.length - cut.offset);
  }
  cut.last = state_.current_packet + cut.packets == wqe.packets;

  wire::Packet packet;
  wire::Bth& bth = packet.bth;
  bth = bth_of(opcode_of(wqe.opcode, cut.first, cut.last), wqe.flags);
  bth.ack_request = cut.last || room.ends_with_next(mtu) || state_.since_ack_request + 1 >= ack_request_interval();
  packet.immediate = wqe.immediate;
  if (wqe.is_atomic()) {
    const bool swaps = wqe.opcode == SendOpcode::CompareAndSwap;
    packet.atomic = {wqe.remote_address, wqe.rkey, wqe.swap_or_add, swaps ? wqe.compare : 0};
  } else if (wqe.opcode == SendOpcode::RdmaRead) {
    packet.reth = {wqe.remote_address + cut.offset, wqe.rkey, cut.length};
  } else {
    packet.reth = {wqe.remote_address, wqe.rkey, wqe.length};
  }

  const std::size_t payload = wqe.is_read_or_atomic() ? 0 : cut.length;
  bth.pad_count = wire::pad_count_for(payload);
  const std::size_t bytes = packet.info().header_bytes + payload + bth.pad_count + wire::kIcrcBytes;
  if (!train.fits(bytes)) return false;
  PieceList pieces;
  if (!payload_of(wqe, cut, pieces)) {
    fail(CompletionStatus::LocalProtectionError);
    return false;
  }
  // What is sent again may have been changed by its owner meanwhile only by mistake; a copy keeps its CRC
  // true.
  const bool again = state_.next.is_before(state_.highest);
  const bool copy = again || has_flag(wqe.flags, SendFlags::Inline);
  if (!train.add(packet, pieces.span(), payload, copy ? Train::Payload::Copy : Train::Payload::Gather)) {
    ++link_.counters.memory_faults;
    fail(CompletionStatus::LocalProtectionError);
    return false;
  }
  ++link_.counters.sent_pkts;
  link_.counters.sent_bytes += bytes;
  if (again) ++link_.counters.retransmitted_pkts;
  advance(now, wqe, cut.packets, bth.ack_request || wqe.is_read_or_atomic());
  return true;
}

void Requester::advance(Instant now, SendWqe& wqe, std::uint32_t packets, bool asks_answer) {
  const bool was_idle = !state_.anything_sent();
  if (asks_answer) {
    if (!state_.next.is_before(state_.highest)) state_.window.on_sent(state_.next, now);
    state_.since_ack_request = 0;
  } else {
    state_.since_ack_request += packets;
  }
  if (wqe.is_read_or_atomic()) ++state_.reads_out;
  pass_psns(packets);
  if (state_.next.is_after(state_.highest)) state_.highest = state_.next;
  state_.current_packet += packets;
  if (state_.current_packet >= wqe.packets) {
    ++state_.current;
    state_.current_packet = 0;
  }
  expect_answer(now, was_idle);
}

void Requester::expect_answer(Instant now, bool was_idle) {
  const std::uint8_t code = link_.qp.attributes().timeout;
  if (code == 0) return;
  if (was_idle) state_.period_end = now + ack_timeout(code);
  if (state_.retransmit_at.is_never())
    state_.retransmit_at = now + std::min(state_.window.retransmission_time(), ack_timeout(code));
}

}  // namespace verbena::roce
