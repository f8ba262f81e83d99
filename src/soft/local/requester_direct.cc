// SPDX-License-Identifier: Apache-2.0
// WRITEs and READs that this side carries out by itself, in memory that the peer granted.
#include "base/assert.h"
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
  const Copied copied = region.base != nullptr ? copy_mapped(pieces, region.base + at, writes, last)
                                               : fetch(pieces, region.address + at, bytes);
  if (!claimer.release(region.slot, region.rkey) || copied == Copied::Elsewhere) return lose(region);
  if (copied == Copied::Whole) return true;
  ++link_.counters.memory_faults;
  fail(CompletionStatus::LocalProtectionError);
  return false;
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

Requester::Copied Requester::copy_mapped(const core::PieceList& pieces, std::byte* there, bool writes,
                                         bool last) {
  std::size_t left = pieces.count;
  for (const core::Piece& piece : pieces.span()) {
    const bool publish = last && --left == 0;
    std::byte* const here = const_cast<std::byte*>(piece.data);
    if (!core::dma_write(writes ? there : here, {writes ? here : there, piece.size}, publish))
      return Copied::Fault;
    there += piece.size;
  }
  return Copied::Whole;
}

Requester::Copied Requester::fetch(const core::PieceList& pieces, std::uint64_t address,
                                   std::uint32_t bytes) {
  const Piece from{0, bytes, address};
  switch (link_.channel->peer_memory->pull({&from, 1}, pieces.span())) {
    case Pulled::Whole:
      return Copied::Whole;
    case Pulled::Fault:
      return Copied::Elsewhere;  // whose memory it was the ring will tell
    case Pulled::PeerGone:
      link_.peer_gone = true;
      return Copied::Elsewhere;
  }
  return Copied::Elsewhere;
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
