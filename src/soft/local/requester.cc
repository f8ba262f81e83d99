// SPDX-License-Identifier: Apache-2.0
#include "soft/local/requester.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "soft/core/dma.h"
#include "soft/local/short_send.h"

namespace verbena::local {

using core::SendWqe;

// One record of a message: how much of the payload it carries or names, and how long it is itself.
struct Requester::Cut {
  RecordKind kind = RecordKind::Continuation;
  std::uint32_t head = 0;
  std::uint32_t payload = 0;
  std::uint32_t pieces = 0;  // that name the payload; 0: it carries it

  std::uint32_t bytes() const { return head + (pieces != 0 ? pieces * kPieceBytes : payload); }
};

namespace {

bool may_be_solicited(SendOpcode opcode) { return carries_payload(opcode) && opcode != SendOpcode::RdmaWrite; }

RequestHead head_of(const SendWqe& wqe) {
  RequestHead request;
  request.opcode = wqe.opcode;
  request.solicited = has_flag(wqe.flags, SendFlags::Solicited) && may_be_solicited(wqe.opcode);
  request.length = wqe.length;
  if (wqe.opcode == SendOpcode::SendWithImmediate || wqe.opcode == SendOpcode::RdmaWriteWithImmediate)
    request.immediate = wqe.immediate;
  request.remote_address = wqe.remote_address;
  request.rkey = wqe.rkey;
  if (wqe.opcode == SendOpcode::CompareAndSwap) request.compare = wqe.compare;
  request.swap_or_add = wqe.swap_or_add;
  return request;
}

}  // namespace

SendWqe* Requester::next_request() const {
  core::SendQueue& queue = link_.qp.send_queue();
  return state_.current == queue.posted() ? nullptr : &queue.at(state_.current);
}

bool Requester::may_start(const SendWqe& wqe) const {
  if (state_.began) return true;
  const QueuePairState qp_state = link_.qp.state();
  const bool fresh = !wqe.started;
  if (qp_state == QueuePairState::Sqd ? fresh : qp_state != QueuePairState::Rts) return false;
  if (fresh && has_flag(wqe.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  const std::uint8_t limit = link_.qp.attributes().max_rd_atomic;
  return !wqe.is_read_or_atomic() || limit == 0 || state_.reads_out < limit;
}

bool Requester::ready() const {
  if (state_.rnr_waiting || at_failed()) return false;
  if (state_.waits && state_.current != link_.qp.send_queue().retired()) return false;
  const SendWqe* wqe = next_request();
  return wqe != nullptr && may_start(*wqe);
}

Requester::Cut Requester::cut_of(const SendWqe& wqe) const {
  Cut cut;
  cut.head = kContinuationHeadBytes;
  if (!state_.began) {
    cut.kind = kind_of(wqe.opcode);
    cut.head = head_bytes(wqe.opcode);
  }
  if (!carries_payload(wqe.opcode)) return cut;
  if (state_.began ? state_.pulled : is_to_be_pulled(wqe)) return pulled_cut_of(wqe, cut);
  cut.payload = std::min(wqe.length - state_.written, link_.max_record_bytes - cut.head);
  return cut;
}

bool Requester::is_to_be_pulled(const SendWqe& wqe) const {
  const Config& config = link_.config;
  if (!link_.peer_pulls || wqe.length < std::min(config.map_from_bytes, config.pull_from_bytes)) return false;
  if (has_flag(wqe.flags, SendFlags::Inline)) return false;
  const auto sges = link_.qp.send_queue().sges(state_.current);
  if (wqe.length < config.pull_from_bytes && !peer_maps(sges)) return false;
  return std::none_of(sges.begin(), sges.end(), [this](const ScatterGather& sge) {
    const core::MemoryRegion* const region = link_.memory.region(sge.lkey);
    return region != nullptr && includes(region->access, Access::NoDirect);
  });
}

// As far as is known here: it was lent that region. One that it could be lent is named now and then, so that it asks.
bool Requester::peer_maps(std::span<const ScatterGather> sges) const {
  constexpr std::uint32_t kNamedEvery = 64;
  const RKey within = region_to_map(sges);
  if (within == RKey{} || !link_.channel->granter) return false;
  return link_.channel->granter->slot_of(within) ||
         (state_.current - state_.first) % kNamedEvery == kNamedEvery / 2;
}

// As much as one record may name: a piece for each segment that is not empty.
Requester::Cut Requester::pulled_cut_of(const SendWqe& wqe, Cut cut) const {
  const std::uint32_t room = (link_.max_record_bytes - cut.head) / kPieceBytes;
  const std::uint32_t most = std::min(wqe.length - state_.written, kMaxPulledBytes);
  std::uint32_t offset = state_.written;
  for (const ScatterGather& sge : link_.qp.send_queue().sges(state_.current)) {
    if (cut.payload == most || cut.pieces == std::min<std::uint32_t>(room, kMaxPieces)) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    cut.payload += std::min(sge.length - offset, most - cut.payload);
    ++cut.pieces;
    offset = 0;
  }
  return cut;
}

std::uint32_t Requester::next_record_bytes() const { return cut_of(*next_request()).bytes(); }

void Requester::fail(CompletionStatus status) {
  state_.failed = true;
  state_.failed_index = state_.current;
  state_.failed_status = status;
}

// A READ or atomic must be able to store its answer, or nothing of it is sent. The queue pair must allow them.
bool Requester::begin(SendWqe& wqe) {
  wqe.started = true;
  if (!wqe.is_read_or_atomic()) return true;
  if (link_.qp.attributes().max_rd_atomic == 0) return fail(CompletionStatus::LocalQpOperationError), false;
  core::PieceList pieces;
  if (core::find_pieces(link_.memory, link_.pd(), link_.qp.send_queue().sges(state_.current), 0, wqe.length,
                        Access::LocalWrite, pieces))
    return true;
  fail(CompletionStatus::LocalProtectionError);
  return false;
}

bool Requester::copy_payload(const SendWqe& wqe, const Cut& cut, std::byte* to) {
  if (cut.payload == 0) return true;
  core::SendQueue& queue = link_.qp.send_queue();
  if (has_flag(wqe.flags, SendFlags::Inline)) {
    std::memcpy(to, queue.inline_data(state_.current).data() + state_.written, cut.payload);
    return true;
  }
  core::PieceList pieces;
  if (!core::find_pieces(link_.memory, link_.pd(), queue.sges(state_.current), state_.written, cut.payload,
                         Access::None, pieces))
    return false;
  for (const core::Piece& piece : pieces.span()) {
    if (!core::dma_read(to, {piece.data, piece.size})) {
      ++link_.counters.memory_faults;
      return false;
    }
    to += piece.size;
  }
  return true;
}

// The bytes stay the application's until the peer acknowledges them, which it does when it has them.
bool Requester::name_payload(const Cut& cut, PieceSet& named) {
  core::PieceList pieces;
  if (!core::find_pieces(link_.memory, link_.pd(), link_.qp.send_queue().sges(state_.current), state_.written,
                         cut.payload, Access::None, pieces))
    return false;
  VERBENA_ASSERT(pieces.count == cut.pieces);
  const RKey within = region_to_map(link_.qp.send_queue().sges(state_.current));
  for (const core::Piece& piece : pieces.span())
    named.pieces[named.count++] = {within.value(), static_cast<std::uint32_t>(piece.size),
                                   reinterpret_cast<std::uintptr_t>(piece.data)};
  return true;
}

bool Requester::names(LKey lkey) const {
  core::SendQueue& queue = link_.qp.send_queue();
  for (std::uint32_t index = queue.retired(), end = state_.current + (state_.began ? 1 : 0); index != end; ++index) {
    const auto sges = queue.sges(index);
    const auto is_there = [lkey](const ScatterGather& sge) { return sge.lkey == lkey; };
    if (queue.at(index).packets != 0 && std::any_of(sges.begin(), sges.end(), is_there)) return true;
  }
  return false;
}

// The one region of a payload that the peer may map and READ, and copies quicker then; or none.
RKey Requester::region_to_map(std::span<const ScatterGather> sges) const {
  const QueuePairAttributes& a = link_.qp.attributes();
  if (sges.size() != 1 || !includes(a.access, Access::RemoteRead) || a.max_dest_rd_atomic == 0) return {};
  const core::MemoryRegion* const region = link_.memory.region(sges[0].lkey);
  const bool may = region != nullptr && region->file >= 0 && includes(region->access, Access::RemoteRead);
  return may ? region->rkey : RKey{};
}

RequestHead Requester::make_head(const SendWqe& wqe, Placement placement) {
  RequestHead head = head_of(wqe);
  head.number = state_.current - state_.first;
  head.placement = placement;
  if (!answers_.is_only_owed()) return head;
  head.acknowledges = true;
  head.acknowledged = static_cast<std::uint16_t>(answers_.number());
  answers_.settle();
  return head;
}

bool Requester::write_record(SendWqe& wqe, const Cut& cut, std::byte* to) {
  if (cut.pieces != 0) return write_names(wqe, cut, to);
  if (!copy_payload(wqe, cut, to + cut.head)) return false;
  if (state_.began)
    emit(Continuation{.number = state_.current - state_.first}, to);
  else
    emit(make_head(wqe, Placement::InRecord), to);
  return true;
}

bool Requester::write_names(SendWqe& wqe, const Cut& cut, std::byte* to) {
  PieceSet named;
  if (!name_payload(cut, named)) return false;
  ++wqe.packets;
  if (state_.began)
    emit(Continuation{.number = state_.current - state_.first, .placement = Placement::InMemory, .pieces = named}, to);
  else
    emit(Request{make_head(wqe, Placement::InMemory), named}, to);
  return true;
}

Written Requester::write(Instant now, std::uint32_t limit) {
  Written written;
  for (std::uint32_t bytes = 0; bytes < limit && ready();) {
    SendWqe& wqe = *next_request();
    if (!wqe.started && !begin(wqe)) break;
    state_.waits = false;
    if (const PeerRegion* const region = reach(wqe)) {
      const Way way = way_of(wqe);
      state_.waits = way == Way::Wait;
      if (state_.waits) break;
      if (way == Way::Direct) {
        bytes += copy_directly(wqe, *region, limit);
        continue;
      }
    }
    const Cut cut = cut_of(wqe);
    std::byte* to = link_.reserve(cut.kind, cut.bytes());
    if (to == nullptr) {
      written.blocked = true;
      break;
    }
    if (!put_record(wqe, cut, to)) break;
    await_peer(now);
    bytes += cut.bytes();
    written.anything = true;
  }
  return written;
}

bool Requester::is_short(const SendWqe& wqe) const {
  constexpr std::uint32_t kShortBytes = 256;
  const bool is_send = wqe.opcode == SendOpcode::Send || wqe.opcode == SendOpcode::SendWithImmediate;
  const bool waits = wqe.started || (has_flag(wqe.flags, SendFlags::Fence) && state_.reads_out != 0);
  return is_send && !waits && wqe.length < std::min(kShortBytes, link_.config.pull_from_bytes);
}

// Inline bytes are the caller's own.
bool Requester::load_short(const SendRequest& request, std::uint32_t length, std::byte* to) const {
  if (length == 0) return true;
  const ScatterGather& sge = request.local[0];
  if (!has_flag(request.flags, SendFlags::Inline)) {
    const std::byte* const from = link_.memory.find_local(sge.lkey, link_.pd(), sge.address, length, Access::None);
    return from != nullptr && core::dma_read(to, {from, length});
  }
  const auto* const from = reinterpret_cast<const std::byte*>(sge.address);
  length == 8 ? std::memcpy(to, from, 8) : std::memcpy(to, from, length);  // mostly 8
  return true;
}

bool Requester::put_short(const SendRequest& request) {
  if (is_held_up()) return false;
  if (has_flag(request.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  const auto put = [&](std::uint32_t length) {
    if (length > ShortSend::kMostBytes || length >= link_.config.pull_from_bytes) return false;
    std::array<std::uint64_t, ShortSend::kWords> words;
    if (length % 8 != 0) words[2 + length / 8] = 0;  // the rest of it goes, too
    if (!load_short(request, length, reinterpret_cast<std::byte*>(&words[2]))) return false;
    ShortSend send{state_.current - state_.first, length, answers_.is_only_owed(), 0};
    if (send.acknowledges) send.acknowledged = static_cast<std::uint16_t>(answers_.number());
    words[0] = send.first_word();
    words[1] = send.second_word();
    const auto kind = static_cast<std::uint16_t>(RecordKind::Send);
    return link_.channel->out.try_put(kind, ShortSend::kHeadBytes + length, words);
  };
  if (!link_.qp.send_queue().post_started(state_.current, request, put)) return false;
  if (answers_.is_only_owed()) answers_.settle();
  ++state_.current;
  return true;
}

bool Requester::write_short() {
  core::SendQueue& queue = link_.qp.send_queue();
  if (is_held_up()) return false;
  if (queue.posted() - state_.current != 1) return false;
  SendWqe& wqe = queue.at(state_.current);
  if (!is_short(wqe)) return false;
  const Cut cut{kind_of(wqe.opcode), head_bytes(wqe.opcode), wqe.length, 0};
  std::byte* const to = cut.bytes() > link_.max_record_bytes ? nullptr : link_.reserve(cut.kind, cut.bytes());
  if (to == nullptr) return false;
  wqe.started = true;
  put_record(wqe, cut, to);
  return true;
}

bool Requester::put_record(SendWqe& wqe, const Cut& cut, std::byte* to) {
  if (write_record(wqe, cut, to)) return advance(wqe, cut), true;
  link_.discard(to, cut.bytes());
  fail(CompletionStatus::LocalProtectionError);
  return false;
}

void Requester::await_peer(Instant now) {
  if (state_.period_end.is_never())
    state_.begin_period(now, link_.qp.attributes().timeout, link_.channel->out.consumed());
}

void Requester::advance(const SendWqe& wqe, const Cut& cut) {
  state_.written += cut.payload;
  state_.pulled = cut.pieces != 0;
  state_.began = carries_payload(wqe.opcode) && state_.written != wqe.length;
  if (state_.began) return;
  if (wqe.is_read_or_atomic()) ++state_.reads_out;
  state_.written = 0;
  ++state_.current;
}

}  // namespace verbena::local
