// SPDX-License-Identifier: Apache-2.0
// Where frames stand in a ring that a peer fills by one-sided WRITEs.
//
// A position counts bytes since the beginning and never wraps; modulo the capacity it is a place. A frame
// takes whole units, so that what is being read shares no cache line with what is being written. Three ways
// to say "it is there":
//
//   Immediate   | payload ...              |   WRITE with immediate: the length. Nothing in memory says more.
//   Offset      | word | payload ...       |   WRITE; then a WRITE of the tail, the position behind all that is there
//   Reversed    | 0 | ... payload .. | word|   one WRITE into a ring that grows downwards. Its last word, at its
//                 |<-- frame ------------->|   highest address, says that it is there; its first, below the frame,
//                                              clears the place of the next frame's word. Needs O-4.
//
// A frame is not split. In a plain ring one that does not fit in front of the end begins behind it, and what
// is left over is skipped; in a doubled one the same memory is mapped twice in a row, and it runs on into the
// second mapping.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

namespace verbena::ring {

enum class Commit : std::uint8_t { Immediate, Offset, Reversed };

inline constexpr std::uint32_t kUnitBytes = 64;
inline constexpr std::uint32_t kWordBytes = 8;
inline constexpr std::uint64_t kMaxWriteBytes = std::uint64_t{1} << 31;  // what devices take in one request

struct Geometry {
  std::uint64_t capacity = 0;  // bytes, a power of two, at least 16 units
  Commit commit = Commit::Offset;
  bool doubled = false;
  std::uint32_t max_messages =
      0;  // not acknowledged at once, as there are receives for immediates; 0: no limit
  std::uint32_t unit = kUnitBytes;

  constexpr bool is_valid() const {
    return std::has_single_bit(unit) && unit >= kWordBytes && std::has_single_bit(capacity) &&
           capacity >= 16 * std::uint64_t{unit} && capacity <= std::uint64_t{1} << 36;
  }
  // Bytes of memory that frames are addressed in.
  constexpr std::uint64_t memory_bytes() const { return doubled ? 2 * capacity : capacity; }
  constexpr std::uint32_t word_bytes() const { return commit == Commit::Immediate ? 0 : kWordBytes; }
  // Bytes of the ring a message takes; at least one unit, so that even empty ones have a place of their own.
  constexpr std::uint64_t frame_bytes(std::uint32_t payload_bytes) const {
    return std::max<std::uint64_t>(unit, round_up(std::uint64_t{payload_bytes} + word_bytes(), unit));
  }
  // Behind each frame a place for the word of the next is free before the frame is written.
  constexpr std::uint64_t guard_bytes() const { return commit == Commit::Reversed ? unit : 0; }
  // From there on to where a frame must end at the latest.
  constexpr std::uint64_t room_at(std::uint64_t position) const {
    return doubled ? capacity : capacity - place_of(position);
  }
  constexpr std::uint64_t skip_before(std::uint64_t position, std::uint64_t frame) const {
    const std::uint64_t room = room_at(position);
    return frame + guard_bytes() <= room ? 0 : room;
  }
  // The head is told after this much was freed, or this many messages.
  constexpr std::uint64_t acknowledged_bytes() const { return capacity / 8; }
  constexpr std::uint32_t acknowledged_messages() const { return std::max(1u, max_messages / 4); }
  // The longest message that finds room as soon as the reader let go of all others, wherever it begins,
  // though up to acknowledged_bytes() of that was not told. One WRITE brings it, with its word and what is cleared.
  constexpr std::uint32_t max_payload_bytes() const {
    const std::uint64_t free = capacity - acknowledged_bytes();
    const std::uint64_t with_guard = doubled ? free : (free + unit) / 2 / unit * unit;
    return static_cast<std::uint32_t>(std::min(with_guard, kMaxWriteBytes) - guard_bytes() - word_bytes());
  }
  // Offset in the memory of a frame's lowest byte.
  constexpr std::uint64_t frame_offset(std::uint64_t position, std::uint64_t frame) const {
    return commit == Commit::Reversed ? memory_bytes() - place_of(position) - frame : place_of(position);
  }
  // Of the word of the frame at `position`, whose size need not be known.
  constexpr std::uint64_t word_offset(std::uint64_t position) const {
    return commit == Commit::Reversed ? memory_bytes() - place_of(position) - kWordBytes : place_of(position);
  }
  constexpr std::uint64_t payload_offset(std::uint64_t position, std::uint32_t payload_bytes) const {
    if (commit == Commit::Reversed) return word_offset(position) - round_up(payload_bytes, kWordBytes);
    return place_of(position) + word_bytes();
  }
  constexpr std::uint64_t place_of(std::uint64_t position) const { return position & (capacity - 1); }

  static constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) {
    return (bytes + to - 1) & ~(to - 1);
  }
  bool operator==(const Geometry&) const = default;
};

// What a peer did that no peer may. It is for good: the ring moves no more.
enum class Fault : std::uint8_t {
  None,
  Head,     // a head that goes back, beyond what was written, or between frames
  Tail,     // a tail likewise
  Mark,     // a word that is neither a message nor a skip
  Length,   // a message that is longer than the ring allows or than what is there
  Skip,     // a skip where nothing is to be skipped
  Overrun,  // a message over what was not released
  Place,    // a reservation that is not there, twice there, or between units
  Grant,    // a grant out of turn, or of no use
};
std::string_view to_string(Fault fault);

// The word of a frame. Never 0, which says that nothing is there.
inline constexpr std::uint32_t kMessageMark = 0x4d425256;
inline constexpr std::uint32_t kSkipMark = 0x53425256;
constexpr std::uint64_t message_word(std::uint32_t payload_bytes) {
  return std::uint64_t{kMessageMark} << 32 | payload_bytes;
}
constexpr std::uint64_t skip_word() { return std::uint64_t{kSkipMark} << 32; }

}  // namespace verbena::ring
