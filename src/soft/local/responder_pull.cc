// SPDX-License-Identifier: Apache-2.0
// Payload that is copied out of the peer's memory by the responder, which owns where it goes.
#include <algorithm>
#include <array>

#include "soft/core/dma.h"
#include "soft/local/responder.h"

namespace verbena::local {

namespace {

constexpr std::size_t kWordBytes = 8;

}  // namespace

Pulled Responder::fetch(std::span<const Piece> from, std::span<const core::Piece> to) {
  const bool copied = from.size() == 1 && from[0].within != 0 && copy_granted(from[0], to);
  return copied ? Pulled::Whole : link_.channel->peer_memory->pull(from, to);
}

// Memory of the peer's that is mapped here, without the kernel. It counts if the grant stands when it is done.
// Otherwise the kernel copies it again, or says what is in the way. There is no claim: the owner waits for no reader.
bool Responder::copy_granted(const Piece& from, std::span<const core::Piece> to) {
  const RKey rkey{from.within};
  const PeerRegion* const region = link_.granted_payload(rkey, received_ == 0);
  const std::byte* at = region != nullptr ? region->mapped(from.address, from.bytes) : nullptr;
  if (at == nullptr) return false;
  Claimer& claimer = *link_.channel->claimer;
  bool copied = claimer.stands(region->slot, rkey);
  for (const core::Piece& piece : to) {
    copied = copied && core::dma_write(const_cast<std::byte*>(piece.data), {at, piece.size}, false);
    at += piece.size;
  }
  copied = copied && claimer.still_stands(region->slot, rkey);
  if (!copied) link_.peer_regions->drop(rkey, *link_.channel->regions);
  return copied;
}

// O-4: the last word comes into a private one, and is published after all else.
Responder::Verdict Responder::pull(core::PieceList pieces, std::span<const Piece> from, std::uint32_t bytes,
                                   bool last) {
  pulled_ += bytes;
  std::array<std::byte, kWordBytes> word;
  std::array<core::Piece, core::kMaxSegments + 1> to;
  std::copy_n(pieces.pieces.begin(), pieces.count, to.begin());
  std::size_t count = pieces.count;
  std::span<const std::byte> end;
  std::byte* end_at = nullptr;
  if (last) {
    core::Piece& piece = to[count - 1];
    end = std::span(word).first(std::min(piece.size, kWordBytes));
    piece.size -= end.size();
    end_at = const_cast<std::byte*>(piece.data) + piece.size;
    to[count++] = {end.data(), end.size()};
  }
  switch (fetch(from, {to.data(), count})) {
    case Pulled::PeerGone:
      return Verdict::PeerGone;
    case Pulled::Fault:
      return pull_by_parts(pieces, from, last);
    case Pulled::Whole:
      break;
  }
  return !last || core::dma_write(end_at, end, true) ? Verdict::Continue : Verdict::MemoryFault;
}

// Through a buffer of our own: shows whose memory is not there.
Responder::Verdict Responder::pull_by_parts(const core::PieceList& pieces, std::span<const Piece> from, bool last) {
  std::array<std::byte, 4096> part;
  std::size_t target = 0, offset = 0;  // in pieces
  for (Piece source : from) {
    while (source.bytes != 0) {
      const core::Piece& piece = pieces.pieces[target];
      const auto size = static_cast<std::uint32_t>(
          std::min({std::size_t{source.bytes}, piece.size - offset, part.size()}));
      const Piece one{0, size, source.address};
      const core::Piece buffer{part.data(), size};
      const Pulled pulled = link_.channel->peer_memory->pull({&one, 1}, {&buffer, 1});
      if (pulled != Pulled::Whole) return pulled == Pulled::Fault ? Verdict::PeerFault : Verdict::PeerGone;
      source.address += size;
      source.bytes -= size;
      const bool end = target + 1 == pieces.count && offset + size == piece.size;
      if (!core::dma_write(const_cast<std::byte*>(piece.data) + offset, {part.data(), size}, last && end))
        return Verdict::MemoryFault;
      offset += size;
      if (offset == piece.size) {
        ++target;
        offset = 0;
      }
    }
  }
  return Verdict::Continue;
}

}  // namespace verbena::local
