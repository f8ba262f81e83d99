// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/writer.h"

#include <algorithm>
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

// Up to the end of the memory, and behind what is skipped there.
std::uint64_t Writer::count_room(std::uint32_t payload_bytes) const {
  if (fault_ != Fault::None) return 0;
  const std::uint64_t frame = geometry_.frame_bytes(payload_bytes), needed = frame + geometry_.guard_bytes();
  std::uint64_t count = 0, left = geometry_.capacity - (position_ - head_);
  for (int stretch = 0; stretch < 2; ++stretch) {
    const std::uint64_t at = head_ + geometry_.capacity - left;
    const std::uint64_t skip = geometry_.skip_before(at, frame);
    if (skip + needed > left) break;
    left -= skip;
    const std::uint64_t fit = (std::min(left, geometry_.room_at(at + skip)) - needed) / frame + 1;
    count += fit;
    left -= fit * frame;
  }
  return geometry_.max_messages == 0 ? count : std::min(count, geometry_.max_messages - messages_);
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

}  // namespace verbena::ring
