// SPDX-License-Identifier: Apache-2.0
// The side in whose memory the ring is: finds what a peer wrote, hands it out in order, takes it back in any
// order, and says how far the peer may write again.
//
// All that the peer writes is hostile input: read once, checked against what this side knows by itself.
// Payload is the peer's while it is read, too: nothing here looks at it. A violation is a Fault, for good.
//
// The algorithm is written over `Memory`, its shared loads, so that a model can run it step by step.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "messaging/ring/geometry.h"
#include "messaging/ring/memory.h"
#include "messaging/ring/release_table.h"

namespace verbena::ring {

// A message in the ring, until it is let go of.
struct View {
  std::uint64_t position = 0;
  std::uint64_t offset = 0;  // of the payload, in the ring
  std::uint32_t bytes = 0;

  bool operator==(const View&) const = default;
};

// One thread at a time. Does not own the memory.
template <class Memory>
class BasicReader {
 public:
  BasicReader(const Geometry& geometry, Memory memory)
      : geometry_(geometry),
        max_payload_bytes_(geometry.max_payload_bytes()),
        memory_(std::move(memory)),
        table_(geometry.capacity, geometry.unit) {
    VERBENA_ASSERT(geometry.is_valid());
  }

  // The next message, by what stands in memory. Not for Commit::Immediate.
  std::optional<View> poll() {
    while (fault_ == Fault::None) {
      const std::uint64_t word = next_word();
      if (word == 0) return std::nullopt;
      if (word == skip_word())
        skip();
      else
        return accept(word);
    }
    return std::nullopt;
  }
  // The next message, by the immediate of a completion. Nothing: a fault.
  std::optional<View> handle_immediate(std::uint32_t immediate) {
    if (fault_ != Fault::None) return std::nullopt;
    if (immediate > max_payload_bytes_) return fail(Fault::Length);
    const std::uint64_t frame = geometry_.frame_bytes(immediate);
    const std::uint64_t passed = geometry_.skip_before(position(), frame);
    if (passed + frame > free()) return fail(Fault::Overrun);
    if (passed != 0) pass_over(passed);
    return take(immediate, frame);
  }

  void release(const View& view) { table_.release(view.position); }

  // How far all was let go of.
  std::uint64_t head() const { return table_.head(); }
  // The peer may wait for it: time to tell.
  bool acknowledgement_due() const {
    return head() - told_ >= geometry_.acknowledged_bytes() ||
           (geometry_.max_messages != 0 &&
            table_.passed() - told_passed_ >= geometry_.acknowledged_messages());
  }
  // What to tell. From here on the peer may write up to there.
  std::uint64_t acknowledge() {
    told_ = head();
    told_passed_ = table_.passed();
    return told_;
  }

  std::uint64_t position() const { return table_.end(); }
  Fault fault() const { return fault_; }
  const Geometry& geometry() const { return geometry_; }
  Memory& memory() { return memory_; }

 private:
  friend struct Inspect;
  // Bytes from here on that the peer had leave to write.
  std::uint64_t free() const { return geometry_.capacity - (position() - told_); }

  // Of the next frame; 0 when it is not there.
  std::uint64_t next_word() {
    if (geometry_.commit == Commit::Offset) {
      if (position() == available_ && !refresh()) return 0;
      const std::uint64_t word = memory_.load(geometry_.word_offset(position()));
      if (word == 0) fail(Fault::Mark);
      return word;
    }
    return memory_.load(geometry_.word_offset(position()));
  }
  bool refresh() {
    const std::uint64_t tail = memory_.load_tail();
    if (tail == available_) return false;
    if (tail - told_ > geometry_.capacity || tail - told_ < available_ - told_ ||
        tail % geometry_.unit != 0) {
      fail(Fault::Tail);
      return false;
    }
    available_ = tail;
    return true;
  }
  // From here on to where the peer said that it wrote, or may have written.
  std::uint64_t visible() const {
    return geometry_.commit == Commit::Offset ? available_ - position() : free();
  }
  void skip() {
    const std::uint64_t bytes = geometry_.room_at(position());
    if (geometry_.doubled || bytes == geometry_.capacity || bytes > visible())
      fail(Fault::Skip);
    else
      pass_over(bytes);
  }
  void pass_over(std::uint64_t bytes) {
    const std::uint64_t at = position();
    table_.take(at, bytes);
    table_.release(at);
  }
  std::optional<View> accept(std::uint64_t word) {
    const auto payload_bytes = static_cast<std::uint32_t>(word);
    if (word != message_word(payload_bytes)) return fail(Fault::Mark);
    if (payload_bytes > max_payload_bytes_) return fail(Fault::Length);
    const std::uint64_t frame = geometry_.frame_bytes(payload_bytes);
    const std::uint64_t with_guard = frame + geometry_.guard_bytes();
    if (with_guard > geometry_.room_at(position())) return fail(Fault::Length);
    if (with_guard > visible())
      return fail(geometry_.commit == Commit::Offset ? Fault::Length : Fault::Overrun);
    return take(payload_bytes, frame);
  }
  View take(std::uint32_t payload_bytes, std::uint64_t frame) {
    const std::uint64_t at = position();
    table_.take(at, frame);
    return {at, geometry_.payload_offset(at, payload_bytes), payload_bytes};
  }
  std::nullopt_t fail(Fault fault) {
    fault_ = fault;
    return std::nullopt;
  }

  Geometry geometry_;
  std::uint32_t max_payload_bytes_;  // asked for with each message
  Memory memory_;
  ReleaseTable table_;
  std::uint64_t available_ = 0;  // the peer's tail, as last seen
  std::uint64_t told_ = 0;       // the head, as last told
  std::uint64_t told_passed_ = 0;
  Fault fault_ = Fault::None;
};

using Reader = BasicReader<RingMemory>;

}  // namespace verbena::ring
