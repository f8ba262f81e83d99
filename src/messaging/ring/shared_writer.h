// SPDX-License-Identifier: Apache-2.0
// One of the many senders of a shared ring (shared.h): what to WRITE where, what to add, whom to wait for.
#pragma once

#include <cstdint>
#include <optional>

#include "messaging/ring/shared.h"

namespace verbena::ring {

// One thread at a time.
//
//   begin() -> WRITE of the word to CellWord::Begun; fetch-and-add of frame bytes on the tail ->
//   handle_position() Ready: WRITE of the payload with the immediate -> finish() Broken: WRITE of the word to
//   CellWord::Dropped with the immediate -> finish(), and from the beginning Wait: WRITE of the word to
//   CellWord::Waiting, once; READ of the head -> handle_head(), until it is one of the others
class SharedWriter {
 public:
  enum class Step : std::uint8_t { Idle, Asked, Wait, Ready, Broken };

  // `senders`: at most so many share the ring.
  SharedWriter(const SharedGeometry& geometry, std::uint64_t senders);

  // Begins a reservation; Idle. What to WRITE to the cell.
  std::uint64_t begin(std::uint32_t payload_bytes);
  // The addend.
  std::uint64_t frame_bytes() const { return frame_; }
  // What the tail was before.
  Fault handle_position(std::uint64_t position);
  // The receiver's head; in any step. In Wait it was read after the reservation, as requests are done in their order.
  Fault handle_head(std::uint64_t head);
  // Gives a reservation up that is Ready: from here on it is Broken.
  void drop();
  // What follows from the step was posted.
  void finish();

  Step step() const { return step_; }
  // Wait, Ready, Broken.
  std::uint64_t waiting_word() const { return begun_ << 32 | shared_immediate(geometry_, position_); }
  std::uint64_t offset() const { return geometry_.frames().place_of(position_); }
  std::uint64_t dropped_word() const { return frame_; }
  std::uint32_t immediate() const {
    return shared_immediate(geometry_, position_) | (step_ == Step::Broken ? kDropped : 0);
  }
  std::uint64_t position() const { return position_; }
  std::uint64_t head() const { return head_; }
  Fault fault() const { return fault_; }

 private:
  friend struct Inspect;
  void settle();

  SharedGeometry geometry_;
  std::uint64_t senders_;
  Step step_ = Step::Idle;
  std::uint64_t begun_ = 0;
  std::uint64_t frame_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t next_ = 0;  // no position of ours is before this
  std::uint64_t head_ = 0;
  Fault fault_ = Fault::None;
};

}  // namespace verbena::ring
