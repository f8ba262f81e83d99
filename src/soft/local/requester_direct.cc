// SPDX-License-Identifier: Apache-2.0
// WRITEs and READs that this side carries out by itself, in memory that the peer granted.
#include <algorithm>
#include <array>

#include "soft/core/dma.h"
#include "soft/local/requester.h"

namespace verbena::local {

using core::SendWqe;

namespace {

// A turn copies no more at once: others want the device, and the peer its memory.
constexpr std::uint32_t kMaxDirectBytes = 1 << 20;
constexpr std::uint32_t kMostCopies = 64;
// So many short requests go through the ring though they could go directly, rather than wait for what is
// before them.
constexpr std::uint32_t kMostDetours = 64;
constexpr std::uint32_t kWorthWaiting = 4096;

}  // namespace

// Where the request goes, when it can go there directly.
const PeerRegion* Requester::reach(const SendWqe& wqe) {
  RegionSource* const source = link_.channel->regions;
  if (source == nullptr || wqe.length == 0 || (state_.began && !state_.direct)) return nullptr;
  const bool writes = wqe.opcode == SendOpcode::RdmaWrite;
  if (!writes && wqe.opcode != SendOpcode::RdmaRead) return nullptr;
  if (link_.peer_regions == nullptr) link_.peer_regions = std::make_unique<PeerRegions>();
  const PeerRegion* const region = link_.peer_regions->find(wqe.rkey, *source);
  const bool granted = region != nullptr && !link_.peer_leaves && region->covers(wqe.remote_address, wqe.length) &&
                       includes(region->access, writes ? Access::RemoteWrite : Access::RemoteRead) &&
                       (region->base != nullptr || !writes);
  if (granted) return region;
  if (state_.direct) begin_again();
  return nullptr;
}

Requester::Way Requester::way_of(const SendWqe& wqe) {
  if (state_.current == link_.qp.send_queue().retired()) return Way::Direct;
  // O-1: nothing overtakes what the peer has not executed yet.
  if (wqe.length >= kWorthWaiting || state_.detours == kMostDetours) return Way::Wait;
  ++state_.detours;
  return Way::Ring;
}

// Says how much of a turn's limit that was. Afterwards the request is done, or done in part, or has failed,
// or must go through the ring.
std::uint32_t Requester::copy_directly(const SendWqe& wqe, const PeerRegion& region, std::uint32_t limit) {
  const std::uint32_t bytes = std::min(wqe.length - state_.written, kMaxDirectBytes);
  if (copy_part(wqe, region, bytes)) advance_directly(wqe, bytes);
  return static_cast<std::uint32_t>(std::uint64_t{bytes} * limit / kMaxDirectBytes) + limit / kMostCopies;
}

bool Requester::copy_part(const SendWqe& wqe, const PeerRegion& region, std::uint32_t bytes) {
  const bool writes = wqe.opcode == SendOpcode::RdmaWrite;
  core::PieceList pieces;
  if (has_flag(wqe.flags, SendFlags::Inline)) {
    pieces.pieces[pieces.count++] = {link_.qp.send_queue().inline_data(state_.current).data(), bytes};
  } else if (!core::find_pieces(link_.memory, link_.pd(), link_.qp.send_queue().sges(state_.current),
                                state_.written, bytes, writes ? Access::None : Access::LocalWrite, pieces)) {
    fail(CompletionStatus::LocalProtectionError);
    return false;
  }
  Claimer& claimer = *link_.channel->claimer;
  if (!claimer.claim(region.slot, region.rkey)) return lose(region);
  const std::uint64_t at = wqe.remote_address - region.iova + state_.written;
  const bool last = state_.written + bytes == wqe.length;
  const bool copied = region.base == nullptr ? fetch(pieces, region.address + at, bytes)
                      : writes               ? store(pieces, region.base + at, last)
                                             : load(pieces, region.base + at);
  // What cannot be copied, the peer's memory or ours, is found out by whom it concerns through the ring.
  return claimer.release(region.slot, region.rkey) && copied ? true : lose(region);
}

void Requester::look_for_revocations() {
  if (link_.peer_regions == nullptr || !link_.channel->claimer->must_look()) return;
  const Claimer& claimer = *link_.channel->claimer;
  link_.peer_regions->drop_unless(
      [&claimer](const PeerRegion& open) { return claimer.stands(open.slot, open.rkey); },
      *link_.channel->regions);
}

// The peer took it back, or it cannot be reached this way: what the peer itself says to the request counts.
bool Requester::lose(const PeerRegion& region) {
  const Key rkey = region.rkey;
  link_.peer_regions->drop(rkey, *link_.channel->regions);
  begin_again();
  return false;
}

void Requester::begin_again() {
  state_.written = 0;
  state_.began = state_.direct = false;
}

// The word that ends a message is stored at once (O-4), also where several pieces make it up.
bool Requester::store(const core::PieceList& pieces, std::byte* there, bool last) {
  constexpr std::size_t kWord = 8;
  std::array<std::byte, kWord> end;
  std::size_t left = 0;
  for (const core::Piece& piece : pieces.span()) left += piece.size;
  const std::size_t gathered = last && pieces.count > 1 && left >= kWord ? kWord : 0;
  std::byte* const tail = there + left - gathered;
  for (const core::Piece& piece : pieces.span()) {
    left -= piece.size;
    const std::size_t of_end = gathered > left ? std::min(gathered - left, piece.size) : 0;
    const std::size_t front = piece.size - of_end;
    if (!core::dma_write(there, {piece.data, front}, last && left == 0 && of_end == 0)) return false;
    if (of_end != 0 && !core::dma_read(end.data() + (kWord - left - of_end), {piece.data + front, of_end}))
      return false;
    there += front;
  }
  return gathered == 0 || core::dma_write(tail, end, true);
}

bool Requester::load(const core::PieceList& pieces, const std::byte* there) {
  for (const core::Piece& piece : pieces.span()) {
    if (!core::dma_write(const_cast<std::byte*>(piece.data), {there, piece.size}, false)) return false;
    there += piece.size;
  }
  return true;
}

// A peer that is gone had perhaps published something: the socket tells of its end.
bool Requester::fetch(const core::PieceList& pieces, std::uint64_t address, std::uint32_t bytes) {
  const Piece from{0, bytes, address};
  return link_.channel->peer_memory->pull({&from, 1}, pieces.span()) == Pulled::Whole;
}

// A copy that counts. The request is done with the last of them: nothing is before it, and no one else is
// asked.
void Requester::advance_directly(const SendWqe& wqe, std::uint32_t bytes) {
  state_.written += bytes;
  state_.direct = state_.began = state_.written != wqe.length;
  if (state_.began) return;
  state_.written = state_.detours = 0;
  ++state_.current;
  ++state_.first;  // the peer counts what comes by the ring
  link_.counters.count_sent(wqe.opcode, wqe.length);
  ++link_.counters.direct_requests;
  link_.counters.direct_bytes += wqe.length;
  link_.qp.complete_oldest_send(CompletionStatus::Success, wqe.is_read_or_atomic() ? wqe.length : 0);
}

}  // namespace verbena::local
