// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/writer.h"

#include <cstring>
#include <utility>

#include "base/assert.h"

namespace verbena::ring {

namespace {

constexpr std::uint64_t kMostJoined = 64u << 10;  // a longer one would only come later

}  // namespace

bool join(RemoteWrite& first, const RemoteWrite& second) {
  const auto can = [](const RemoteWrite& write) {
    return write.source == RemoteWrite::Source::Image && !write.immediate;
  };
  if (!can(first) || !can(second)) return false;
  if (first.zero_bytes != second.zero_bytes) return false;
  if (std::uint64_t{first.bytes} + second.bytes > kMostJoined) return false;
  if (first.zero_bytes != 0) {  // downwards: the zeros of the first are where the word of the second stands
    if (second.image_offset + second.bytes != first.image_offset) return false;
    first.bytes += second.bytes;
    first.offset = second.offset;
    first.image_offset = second.image_offset;
    return true;
  }
  const std::uint64_t end = first.image_offset + first.bytes;  // what fills the frame's last unit goes along
  if (second.image_offset < end || second.image_offset - end >= kUnitBytes) return false;
  first.bytes = static_cast<std::uint32_t>(second.image_offset + second.bytes - first.image_offset);
  return true;
}

Writer::Writer(const Geometry& geometry, std::span<std::byte> image)
    : geometry_(geometry),
      max_payload_bytes_(geometry.max_payload_bytes()),
      image_(image),
      ends_(geometry.max_messages) {
  VERBENA_ASSERT(geometry.is_valid() && image.size() >= geometry.memory_bytes());
}

// The one result is filled in where the caller will have it, as in WriteList::add().
std::optional<Reservation> Writer::try_reserve(std::uint32_t payload_bytes) const {
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

std::span<std::byte> Writer::payload(const Reservation& reservation) const {
  return image_.subspan(reservation.payload_offset, reservation.payload_bytes);
}

const WriteList& Writer::commit(const Reservation& reservation) {
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

// The reader goes on behind the end once it sees the skip: with nothing published later, the frame is there by then.
void Writer::add_skip() {
  writes_.add() = {.source = RemoteWrite::Source::Word,
                   .offset = geometry_.word_offset(position_),
                   .bytes = kWordBytes,
                   .word = skip_word()};
  if (geometry_.commit == Commit::Offset) std::swap(writes_.writes[0], writes_.writes[1]);
}

RemoteWrite Writer::publish_tail() {
  published_ = position_;
  return RemoteWrite{.source = RemoteWrite::Source::Word,
                     .target = RemoteWrite::Target::Tail,
                     .bytes = kWordBytes,
                     .word = position_};
}

Fault Writer::handle_head(std::uint64_t head) {
  if (fault_ != Fault::None) return fault_;
  if (head - head_ > position_ - head_ || head % geometry_.unit != 0) return fault_ = Fault::Head;
  head_ = head;
  while (messages_ != 0 && ends_[oldest_] <= head_) {
    oldest_ = (oldest_ + 1) % ends_.size();
    --messages_;
  }
  return Fault::None;
}

void Writer::put(std::uint64_t offset, std::uint64_t word) {
  std::memcpy(image_.subspan(offset, kWordBytes).data(), &word, kWordBytes);
}

void Writer::count_message() {
  if (!ends_.empty()) ends_[(oldest_ + messages_++) % ends_.size()] = position_;
}

}  // namespace verbena::ring
