// SPDX-License-Identifier: Apache-2.0
// WRITEs and READs that this side carries out by itself, in memory that the peer granted.
#include <algorithm>

#include "soft/core/dma.h"
#include "soft/core/rights.h"
#include "soft/local/requester.h"

namespace verbena::local {

using core::SendWqe;

namespace {

// A turn copies no more at once: others want the device, and the peer its memory. What else a turn does is little
// beside it, and memcpy() is quicker at it than at more.
constexpr std::uint32_t kMaxDirectBytes = 1 << 19;
constexpr std::uint32_t kMostCopies = 64;
constexpr std::uint32_t kMaxFetchedBytes = 1 << 20;  // by the kernel, of which one call is quicker than two
// Of what is carried out without being posted: who asks for it holds the device as long.
constexpr std::size_t kMostBytesNow = 1 << 20;
// So many short requests go through the ring though they could go directly, rather than wait for what is
// before them.
constexpr std::uint32_t kMostDetours = 64;
constexpr std::uint32_t kWorthWaiting = 4096;

// Longer ones are stored past the cache, all but their last turn: half of a third-level cache is taken by where they
// come from.
constexpr std::uint32_t kMostCached = 16 << 20;

// Addresses that are aligned may stand for memory that is not.
bool is_word(const PeerRegion& region, std::uint64_t address) {
  const auto at = reinterpret_cast<std::uintptr_t>(region.base) + (address - region.iova);
  return address % 8 == 0 && at % 8 == 0;
}

}  // namespace

// The region with that key, when those bytes of it are reached directly.
[[gnu::always_inline]] inline const PeerRegion* Requester::granted(RKey rkey, std::uint64_t address,
                                                                   std::uint64_t bytes, Access wanted) {
  const PeerRegion* const region = bytes != 0 ? link_.granted(rkey) : nullptr;
  const bool reached = region != nullptr && region->covers(address, bytes) && includes(region->access, wanted) &&
                       (region->base != nullptr || wanted == Access::RemoteRead);
  return reached ? region : nullptr;
}

// Where the request goes, when it can go there directly.
const PeerRegion* Requester::reach(const SendWqe& wqe) {
  if (state_.began && !state_.direct) return nullptr;
  if (wqe.opcode != SendOpcode::RdmaWrite && !wqe.is_read_or_atomic()) return nullptr;
  const PeerRegion* region =
      granted(wqe.rkey, wqe.remote_address, wqe.length, core::right_for(wqe.opcode));
  if (region != nullptr && wqe.is_atomic() && !is_word(*region, wqe.remote_address)) region = nullptr;
  if (region == nullptr && state_.direct) begin_again();
  return region;
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
  std::uint32_t bytes = std::min(wqe.length - state_.written, kMaxDirectBytes);
  if (region.base == nullptr)
    bytes = fetch(region);
  else if (wqe.is_atomic() ? update_word(wqe, region) : copy_part(wqe, region, bytes))
    advance_directly(wqe, bytes);
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
  const bool past_cache = wqe.length > kMostCached && !last;
  bool copied = false;
  if (writes)
    copied = past_cache ? core::dma_write_past_cache(region.base + at, pieces.span())
                        : core::dma_write(region.base + at, pieces.span(), last);
  else
    copied = load(pieces, region.base + at, past_cache);
  // What cannot be copied, the peer's memory or ours, is found out by whom it concerns through the ring.
  return claimer.release(region.slot, region.rkey) && copied ? true : lose(region);
}

// Atomic with whatever else changes the word. Once it is changed nothing is tried again: of a region that was taken
// back meanwhile the answer is what its owner would say.
bool Requester::update_word(const SendWqe& wqe, const PeerRegion& region) {
  core::PieceList answer;
  if (!core::find_pieces(link_.memory, link_.pd(), link_.qp.send_queue().sges(state_.current), 0, wqe.length,
                         Access::LocalWrite, answer)) {
    fail(CompletionStatus::LocalProtectionError);
    return false;
  }
  Claimer& claimer = *link_.channel->claimer;
  if (!claimer.claim(region.slot, region.rkey)) return lose(region);
  std::byte* const word = region.base + (wqe.remote_address - region.iova);
  const auto before = wqe.opcode == SendOpcode::CompareAndSwap
                          ? core::dma_compare_swap(word, wqe.compare, wqe.swap_or_add)
                          : core::dma_fetch_add(word, wqe.swap_or_add);
  const bool stands = claimer.release(region.slot, region.rkey);
  if (!before) return lose(region);
  if (!stands) {
    lose(region);
    fail(CompletionStatus::RemoteAccessError);
    return false;
  }
  const bool told = core::store(answer, std::as_bytes(std::span{&*before, 1}), true);
  if (!told) fail(CompletionStatus::LocalProtectionError);
  return told;
}

template <class Short, class Copy>
bool Requester::copy_now(SendOpcode opcode, const Short& request, Copy copy) {
  const core::SendQueue& queue = link_.qp.send_queue();
  const std::size_t bytes = request.bytes.size();
  if (bytes > kMostBytesNow || queue.retired() != queue.posted()) return false;  // O-1
  const PeerRegion* const region = granted(request.rkey, request.remote_address, bytes, core::right_for(opcode));
  if (region == nullptr) return false;
  Claimer& claimer = *link_.channel->claimer;
  if (!claimer.claim(region->slot, region->rkey)) return lose(*region);
  const bool copied = copy(*region, request.remote_address - region->iova);
  if (!claimer.release(region->slot, region->rkey) || !copied) return lose(*region);
  count_direct(opcode, static_cast<std::uint32_t>(bytes));
  return true;
}

bool Requester::do_now(const ShortWrite& write) {
  return copy_now(SendOpcode::RdmaWrite, write, [&](const PeerRegion& region, std::uint64_t at) {
    return core::dma_write(region.base + at, write.bytes, true);
  });
}

bool Requester::do_now(const ShortRead& read) {
  if (link_.qp.attributes().max_rd_atomic == 0) return false;
  return copy_now(SendOpcode::RdmaRead, read, [&](const PeerRegion& region, std::uint64_t at) {
    const std::size_t bytes = read.bytes.size();
    if (region.base != nullptr)
      return core::dma_write(read.bytes.data(), std::span{region.base + at, bytes}, false);
    const Piece from{0, static_cast<std::uint32_t>(bytes), region.address + at};
    const core::Piece to{read.bytes.data(), bytes};
    return link_.channel->peer_memory->pull({&from, 1}, {&to, 1}) == Pulled::Whole;
  });
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
  const RKey rkey = region.rkey;
  link_.peer_regions->drop(rkey, *link_.channel->regions);
  begin_again();
  return false;
}

void Requester::begin_again() {
  state_.written = 0;
  state_.began = state_.direct = false;
}

bool Requester::load(const core::PieceList& pieces, const std::byte* there, bool past_cache) {
  for (const core::Piece& piece : pieces.span()) {
    auto* const to = const_cast<std::byte*>(piece.data);
    const core::Piece from{there, piece.size};
    if (!(past_cache ? core::dma_write_past_cache(to, {&from, 1}) : core::dma_write(to, {&from, 1}, false)))
      return false;
    there += piece.size;
  }
  return true;
}

// READs of memory that is not mapped, which the kernel copies in one call: that and the cookie take as long as copying
// several KiB.
struct Requester::Fetch {
  std::array<Piece, kMaxFetches> from;
  core::PieceList to;
  std::size_t requests = 0;
  std::uint32_t bytes = 0;
};

// From `offset` on, at most until the turn is over. False: where it goes is not there, or in too many pieces beside
// what is there already; the first request always has room.
bool Requester::add_to(Fetch& fetch, std::uint32_t index, std::uint32_t offset, const PeerRegion& region) {
  const SendWqe& wqe = link_.qp.send_queue().at(index);
  const std::uint32_t bytes = std::min(wqe.length - offset, kMaxFetchedBytes - fetch.bytes);
  core::PieceList pieces;
  if (!core::find_pieces(link_.memory, link_.pd(), link_.qp.send_queue().sges(index), offset, bytes,
                         Access::LocalWrite, pieces))
    return false;
  if (fetch.to.count + pieces.count > fetch.to.pieces.size()) return false;
  std::ranges::copy(pieces.span(), fetch.to.pieces.begin() + fetch.to.count);
  fetch.to.count += pieces.count;
  fetch.from[fetch.requests++] = {0, bytes, region.address + (wqe.remote_address - region.iova) + offset};
  fetch.bytes += bytes;
  return true;
}

// Whether it may be done in the call that does what is before it, and whole.
bool Requester::may_follow(const Fetch& fetch, const SendWqe& wqe, const PeerRegion& region) const {
  return fetch.requests != kMaxFetches && link_.qp.state() == QueuePairState::Rts &&
         wqe.opcode == SendOpcode::RdmaRead && wqe.rkey == region.rkey && wqe.length != 0 &&
         wqe.length <= kMaxFetchedBytes - fetch.bytes && region.covers(wqe.remote_address, wqe.length);
}

// The request that is next, and those behind it that may follow. Says how many bytes that were.
std::uint32_t Requester::fetch(const PeerRegion& region) {
  core::SendQueue& queue = link_.qp.send_queue();
  Fetch fetch;
  std::uint32_t index = state_.current;
  if (!add_to(fetch, index, state_.written, region)) {
    fail(CompletionStatus::LocalProtectionError);
    return 0;
  }
  const bool whole = fetch.bytes == queue.at(index).length - state_.written;
  while (whole && ++index != queue.posted() && may_follow(fetch, queue.at(index), region))
    if (!add_to(fetch, index, 0, region)) break;
  Claimer& claimer = *link_.channel->claimer;
  if (!claimer.claim(region.slot, region.rkey)) return lose(region), 0;
  // A peer that is gone had perhaps published something: the socket tells of its end.
  const bool copied =
      link_.channel->peer_memory->pull({fetch.from.data(), fetch.requests}, fetch.to.span()) == Pulled::Whole;
  if (!claimer.release(region.slot, region.rkey) || !copied) return lose(region), fetch.bytes;
  for (std::size_t i = 0; i < fetch.requests && ready(); ++i)
    advance_directly(queue.at(state_.current), fetch.from[i].bytes);
  return fetch.bytes;
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
  count_direct(wqe.opcode, wqe.length);
  link_.qp.complete_oldest_send(CompletionStatus::Success, wqe.is_read_or_atomic() ? wqe.length : 0);
}

inline void Requester::count_direct(SendOpcode opcode, std::uint32_t bytes) {
  link_.counters.count_sent(opcode, bytes);
  ++link_.counters.direct_requests;
  link_.counters.direct_bytes += bytes;
}

}  // namespace verbena::local
