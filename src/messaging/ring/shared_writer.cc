// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/shared_writer.h"

#include "base/assert.h"

namespace verbena::ring {

SharedWriter::SharedWriter(const SharedGeometry& geometry, std::uint64_t senders)
    : geometry_(geometry), senders_(senders) {
  VERBENA_ASSERT(geometry.is_valid());
}

std::uint64_t SharedWriter::begin(std::uint32_t payload_bytes) {
  VERBENA_ASSERT(step_ == Step::Idle && payload_bytes <= geometry_.max_payload_bytes());
  frame_ = geometry_.frame_bytes(payload_bytes);
  step_ = Step::Asked;
  return ++begun_;
}

Fault SharedWriter::handle_position(std::uint64_t position) {
  VERBENA_ASSERT(step_ == Step::Asked);
  if (fault_ != Fault::None) return fault_;
  // It goes forwards. How far ahead of the head it is shows when the head is read again; past kMaxPosition nobody gets.
  if (position < next_ || position % geometry_.unit != 0 || position >= kMaxPosition) return fault_ = Fault::Place;
  if (position < head_) return fault_ = Fault::Head;  // it was told to be where nobody had reserved
  position_ = position;
  next_ = position + frame_;
  settle();
  return Fault::None;
}

Fault SharedWriter::handle_head(std::uint64_t head) {
  if (fault_ != Fault::None) return fault_;
  // Nor does it pass a reservation that is open.
  const bool open = step_ != Step::Idle && step_ != Step::Asked;
  if (head < head_ || head % geometry_.unit != 0 || head >= kMaxPosition || (open && head > position_))
    return fault_ = Fault::Head;
  const bool waits = step_ == Step::Wait;
  if (waits && position_ + frame_ - head > geometry_.max_ahead(senders_)) return fault_ = Fault::Tail;
  head_ = head;
  if (waits) settle();
  return Fault::None;
}

void SharedWriter::drop() {
  VERBENA_ASSERT(step_ == Step::Ready);
  step_ = Step::Broken;
}

void SharedWriter::finish() {
  VERBENA_ASSERT(step_ == Step::Ready || step_ == Step::Broken);
  step_ = Step::Idle;
}

void SharedWriter::settle() {
  if (position_ + frame_ > head_ + geometry_.capacity)
    step_ = Step::Wait;
  else
    step_ = geometry_.is_broken(position_, frame_) ? Step::Broken : Step::Ready;
}

}  // namespace verbena::ring
