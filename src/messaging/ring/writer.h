// SPDX-License-Identifier: Apache-2.0
// The side that fills a ring in a peer's memory: what to write where, and when there is room.
//
// It writes a frame into an image, memory of its own laid out like the peer's, and says which WRITEs bring it
// there. Frames that are on their way stand in different places of the image; none changes before the head
// has passed it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.h"
#include "messaging/ring/geometry.h"

namespace verbena::ring {

struct Reservation {
  std::uint64_t position = 0;
  std::uint64_t skip = 0;            // bytes in front of it that are passed over
  std::uint64_t frame = 0;           // bytes it takes
  std::uint64_t payload_offset = 0;  // in the image and in the ring
  std::uint32_t payload_bytes = 0;
};

// One WRITE, of `zero_bytes` zeros followed by image bytes, or of `word` alone, which is not in the image.
struct RemoteWrite {
  enum class Source : std::uint8_t { Image, Word };
  enum class Target : std::uint8_t { Ring, Tail };  // Tail: the eight bytes where the reader looks for it

  Source source = Source::Image;
  Target target = Target::Ring;
  std::uint64_t offset = 0;  // in the target
  std::uint64_t image_offset = 0;
  std::uint32_t zero_bytes = 0;
  std::uint32_t bytes = 0;  // of the image, behind the zeros; of a word 8
  std::uint64_t word = 0;
  std::optional<std::uint32_t> immediate{};
};

// Makes `first` do what both do, one after the other, where their frames lie side by side; false: they stay two. In a
// reversed ring the older frame's word is still the last to be placed.
bool join(RemoteWrite& first, const RemoteWrite& second);

// In this order, on one queue pair.
struct WriteList {
  std::array<RemoteWrite, 2> writes{};
  std::uint8_t count = 0;

  std::span<const RemoteWrite> view() const& { return {writes.data(), count}; }
  void view() const&& = delete;
  void clear() { count = 0; }
  // To be filled in where it stands: a copy would wait for what was just stored.
  RemoteWrite& add() { return writes[count++] = RemoteWrite{}; }
};

// One thread at a time. The image, of memory_bytes() even where the peer's memory is mapped twice, outlives
// it.
class Writer {
 public:
  Writer(const Geometry& geometry, std::span<std::byte> image);

  // Room for a message, or nothing at this moment. It is taken by commit(); until then it is as if it were
  // not there. The message has at most max_payload_bytes().
  std::optional<Reservation> try_reserve(std::uint32_t payload_bytes) const;
  // How many messages of that length find room now, one after the other.
  std::uint64_t count_room(std::uint32_t payload_bytes) const;
  std::span<std::byte> payload(const Reservation& reservation) const;
  // The last reservation, whose payload is in the image by now. What is to be written stands until the next one.
  const WriteList& commit(const Reservation& reservation);
  // With Commit::Offset, behind all WRITEs of the messages it makes visible; otherwise, and with nothing new,
  // none.
  std::optional<RemoteWrite> publish() {
    if (geometry_.commit != Commit::Offset || published_ == position_) return std::nullopt;
    return publish_tail();
  }

  // The reader's head, as it came from the peer.
  Fault handle_head(std::uint64_t head);

  std::uint64_t position() const { return position_; }
  std::uint64_t head() const { return head_; }
  Fault fault() const { return fault_; }
  const Geometry& geometry() const { return geometry_; }

 private:
  friend struct Inspect;
  void put(std::uint64_t offset, std::uint64_t word);
  bool too_many() const { return geometry_.max_messages != 0 && messages_ == geometry_.max_messages; }
  void count_message();
  void add_skip();
  RemoteWrite publish_tail();

  Geometry geometry_;
  std::uint32_t max_payload_bytes_;
  std::span<std::byte> image_;
  std::uint64_t position_ = 0;   // where the next frame begins, or the skip before it
  std::uint64_t head_ = 0;       // the reader's, as last told
  std::uint64_t published_ = 0;  // the tail that was written last
  WriteList writes_;             // of the last commit
  Fault fault_ = Fault::None;
  // With a limit of messages: where those on their way end, oldest first from oldest_ on, in a circle.
  std::vector<std::uint64_t> ends_;
  std::size_t oldest_ = 0;
  std::size_t messages_ = 0;
};

// ---- Inline: each message goes through both, and what the first finds out the second need not.

// The one result is filled in where the caller will have it, as in WriteList::add().
[[gnu::always_inline]] inline std::optional<Reservation> Writer::try_reserve(std::uint32_t payload_bytes) const {
  VERBENA_ASSERT(payload_bytes <= max_payload_bytes_);
  std::optional<Reservation> place;
  if (fault_ != Fault::None || too_many()) return place;
  const std::uint64_t frame = geometry_.frame_bytes(payload_bytes);
  const std::uint64_t skip = geometry_.skip_before(position_, frame);
  if (skip + frame + geometry_.guard_bytes() > geometry_.capacity - (position_ - head_)) return place;
  place.emplace();
  place->position = position_ + skip;
  place->skip = skip;
  place->frame = frame;
  place->payload_offset = geometry_.payload_offset(place->position, payload_bytes);
  place->payload_bytes = payload_bytes;
  return place;
}

inline std::span<std::byte> Writer::payload(const Reservation& reservation) const {
  return image_.subspan(reservation.payload_offset, reservation.payload_bytes);
}

[[gnu::always_inline]] inline const WriteList& Writer::commit(const Reservation& reservation) {
  const std::uint64_t frame = reservation.frame;
  VERBENA_ASSERT(reservation.position == position_ + reservation.skip && !too_many());
  const std::uint64_t at = geometry_.frame_offset(reservation.position, frame);
  writes_.clear();
  RemoteWrite& write = writes_.add();
  write.offset = write.image_offset = at;
  switch (geometry_.commit) {
    case Commit::Immediate:
      write.bytes = reservation.payload_bytes;
      write.immediate = reservation.payload_bytes;
      break;
    case Commit::Offset:
      put(at, message_word(reservation.payload_bytes));
      write.bytes = reservation.payload_bytes + kWordBytes;
      break;
    case Commit::Reversed:
      put(at + frame - kWordBytes, message_word(reservation.payload_bytes));
      // The zeros are not the image's: there the next frame's word may stand before this WRITE has left.
      write.offset -= kWordBytes;
      write.zero_bytes = kWordBytes;
      write.bytes = static_cast<std::uint32_t>(frame);
      break;
  }
  if (reservation.skip != 0 && geometry_.commit != Commit::Immediate) add_skip();
  position_ = reservation.position + frame;
  count_message();
  return writes_;
}

inline void Writer::put(std::uint64_t offset, std::uint64_t word) {
  std::memcpy(image_.subspan(offset, kWordBytes).data(), &word, kWordBytes);
}

inline void Writer::count_message() {
  if (!ends_.empty()) ends_[(oldest_ + messages_++) % ends_.size()] = position_;
}

}  // namespace verbena::ring
