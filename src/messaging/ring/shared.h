// SPDX-License-Identifier: Apache-2.0
// One ring for many senders, which reserve in it by fetch-and-add.
//
// A sender (1) WRITEs into a cell of its own at the receiver how many reservations it has begun, (2) adds the
// bytes of its message to the ring's tail, one word there, which tells it its position, (3) waits, where the
// ring is that full, until the head it READs leaves room, having WRITten to its cell where it waits, and (4)
// WRITEs the message with an immediate, its position. The receiver learns sender and length from the
// completion: nothing in the ring is read but payload. One reservation of a sender is open at a time; its
// WRITEs and its fetch-and-add are on one queue pair.
//
// Death. A sender that dies between (2) and (4) leaves a gap that nobody fills. The receiver fences it: its
// queue pair is out of service, so nothing of it lands any more. Then the receiver looks at the tail and
// after it at the counters of the others. What they had begun by then either arrives, or waits further on, or
// belongs to one that is fenced as well; once that is so for all, a gap below that tail is nobody's who
// lives, and is passed over (see doc/adr/0019-a-sender-that-dies.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "messaging/ring/geometry.h"

namespace verbena::ring {

inline constexpr std::uint32_t kCellBytes = 64;
inline constexpr std::uint64_t kMaxPosition = std::uint64_t{1} << 62;  // nobody gets there

// The words of a sender's cell: one line for each sender, zero at first.
enum class CellWord : std::uint8_t {
  Begun = 0,    // reservations
  Waiting = 1,  // number of the one that waits for room (32 bits), and its place as in the immediate
  Dropped = 2,  // bytes of the one that is given up, see SharedWriter::drop()
};
constexpr std::uint32_t cell_offset(CellWord word) { return static_cast<std::uint32_t>(word) * kWordBytes; }

struct SharedGeometry {
  std::uint64_t capacity = 0;  // as in Geometry
  bool doubled = false;
  std::uint32_t unit = kUnitBytes;

  // Frames stand as those of a ring with immediates do: payload alone.
  constexpr Geometry frames() const { return {capacity, Commit::Immediate, doubled, 0, unit}; }
  constexpr bool is_valid() const { return frames().is_valid() && capacity / unit < std::uint64_t{1} << 30; }
  constexpr std::uint64_t frame_bytes(std::uint32_t payload_bytes) const {
    return frames().frame_bytes(payload_bytes);
  }
  // A sender that waits alone sees room as soon as all is let go of: the head is never told late here.
  constexpr std::uint32_t max_payload_bytes() const { return frames().max_payload_bytes(); }
  // No honest tail is further in front of the head: each sender has one reservation open, and those that died while
  // the head stood still may have left some each. However many senders there are said to be, no more than positions go.
  constexpr std::uint64_t max_ahead(std::uint64_t senders) const {
    const std::uint64_t one = capacity * 64;
    return one * std::min(senders + 1, kMaxPosition / one);
  }
  // A plain ring does not hold that in one piece: it is dropped, and reserved anew.
  constexpr bool is_broken(std::uint64_t position, std::uint64_t frame) const {
    return frame > frames().room_at(position);
  }
};

// The immediate: where it stands, in units, and whether it was dropped. Positions are known from their last
// 31 bits, as all that can arrive lies within one lap.
inline constexpr std::uint32_t kDropped = 1u << 31;
constexpr std::uint32_t shared_immediate(const SharedGeometry& geometry, std::uint64_t position) {
  return static_cast<std::uint32_t>(position / geometry.unit) & ~kDropped;
}

}  // namespace verbena::ring
