// SPDX-License-Identifier: Apache-2.0
// The receiver of a shared ring (shared.h): puts in order what arrived, and passes over what the dead left.
//
// What a sender writes is hostile input: read once and checked, and a violation is that sender's Fault alone.
// But a ring whose payload and tail all its senders may write is one whose senders trust one another with its
// content: what holds whatever they write is that no view leaves the ring, and none overlaps another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "messaging/ring/memory.h"
#include "messaging/ring/reader.h"
#include "messaging/ring/release_table.h"
#include "messaging/ring/shared.h"

namespace verbena::ring {

// The tail and the cells as the receiver sees them in real memory. Each is read by one acquire load.
class SharedMemory {
 public:
  SharedMemory(const std::byte* tail, std::span<const std::byte> cells) : tail_(tail), cells_(cells) {}
  std::uint64_t load_tail() const { return load_word(tail_); }
  std::uint64_t load_cell(std::uint32_t sender, CellWord word) const {
    return load_word(cells_.subspan(std::size_t{sender} * kCellBytes + cell_offset(word), kWordBytes).data());
  }

 private:
  const std::byte* tail_;
  std::span<const std::byte> cells_;
};

struct SharedView {
  View view;
  std::uint32_t sender = 0;
};

// One thread at a time. Does not own the memory. Allocates once.
template <class Memory>
class BasicSharedReader {
 public:
  BasicSharedReader(const SharedGeometry& geometry, std::uint32_t max_senders, Memory memory)
      : geometry_(geometry),
        memory_(std::move(memory)),
        table_(geometry.capacity, geometry.unit),
        arrived_(static_cast<std::size_t>(geometry.capacity / geometry.unit)),
        senders_(max_senders) {
    VERBENA_ASSERT(geometry.is_valid());
  }

  // A sender that begins; its cell is zero, and nobody writes to it yet.
  void add(std::uint32_t sender) { senders_[sender] = {.state = State::Live}; }

  // A completion of that sender: `immediate`, and how many bytes were written before it. What it says is
  // known by poll(). A fault is the sender's: fence it, and say so by handle_gone(). One that comes even
  // later is welcome as long as its place was not passed over.
  Fault handle_arrival(std::uint32_t sender, std::uint32_t immediate, std::uint32_t payload_bytes) {
    Sender& who = senders_[sender];
    const bool dropped = (immediate & kDropped) != 0;
    const std::uint64_t bytes = dropped ? memory_.load_cell(sender, CellWord::Dropped) : payload_bytes;
    if (bytes > geometry_.capacity) return Fault::Length;
    if (!dropped && bytes > geometry_.max_payload_bytes()) return Fault::Length;
    const std::uint64_t frame = dropped ? bytes : geometry_.frame_bytes(payload_bytes);
    if (frame == 0 || frame % geometry_.unit != 0) return Fault::Length;
    const std::uint64_t at = position() + units_ahead(immediate) * geometry_.unit;
    if (at + frame - table_.head() > geometry_.capacity) return Fault::Overrun;
    if (!dropped && geometry_.is_broken(at, frame)) return Fault::Place;
    if (is_there(at) || !is_reserved(at + frame)) return Fault::Place;
    arrival_at(at) = {at, static_cast<std::uint32_t>(frame / geometry_.unit), payload_bytes, sender, dropped};
    ++who.arrived;
    who.end = std::max(who.end, at + frame);
    arrived_end_ = std::max(arrived_end_, who.end);
    return Fault::None;
  }

  // That sender is fenced: nothing of it lands any more. From here on its number and its cell may be used
  // again.
  void handle_gone(std::uint32_t sender) {
    Sender& who = senders_[sender];
    VERBENA_ASSERT(who.state == State::Live);
    // What it began and did not finish may be a gap.
    who.state = State::Gone;
    if (memory_.load_cell(sender, CellWord::Begun) != who.arrived) start_search();
  }
  // What arrived waits for what is reserved in front of it.
  bool waits() { return arrived_end_ > position() && !is_there(position()); }
  // Somebody waits for room, and is not heard of meanwhile.
  bool somebody_waits() const {
    for (std::uint32_t i = 0; i < senders_.size(); ++i)
      if (senders_[i].state == State::Live && place_of_waiting(i)) return true;
    return false;
  }
  // What is in front may be of this sender, which lives as far as is known: it has begun more than arrived, and does
  // not wait for room itself.
  bool may_hold_up(std::uint32_t sender) {
    if (is_there(position()) || memory_.load_cell(sender, CellWord::Begun) == senders_[sender].arrived) return false;
    const auto place = place_of_waiting(sender);
    if (!place) return true;
    // It has room where all was let go of, and where there is room behind it.
    return *place == shared_immediate(geometry_, position()) && (table_.head() == position() || waits());
  }
  std::uint64_t arrived(std::uint32_t sender) const { return senders_[sender].arrived; }
  // What is in front may be of nobody: one of them moved the tail, and did not say so.
  void search() {
    if (!is_searching() && !is_there(position())) start_search();
  }
  // Something that arrived of it is still to be handed out.
  bool has_more_of(std::uint32_t sender) const { return senders_[sender].end > position(); }

  // The next message.
  std::optional<SharedView> poll() {
    while (fault_ == Fault::None) {
      const std::uint64_t at = position();
      if (!is_there(at)) {
        if (!pass_gap()) return std::nullopt;
        continue;
      }
      const Arrival arrival = std::exchange(arrival_at(at), {});
      table_.take(at, std::uint64_t{arrival.units} * geometry_.unit);
      if (!arrival.dropped) {
        const std::uint64_t offset = geometry_.frames().payload_offset(at, arrival.payload_bytes);
        return SharedView{{at, offset, arrival.payload_bytes}, arrival.sender};
      }
      table_.release(at);
    }
    return std::nullopt;
  }

  void release(const View& view) { table_.release(view.position); }
  // To be stored where senders READ it, after each release and each poll.
  std::uint64_t head() const { return table_.head(); }
  std::uint64_t position() const { return table_.end(); }
  // Somebody died with a reservation that was not there, and what was reserved by then is not sorted out.
  bool is_searching() const { return position() < search_end_; }
  // The ring's, for good: its tail is none that its senders may have made.
  Fault fault() const { return fault_; }

 private:
  friend struct Inspect;
  enum class State : std::uint8_t { None, Live, Gone };
  struct Sender {
    State state = State::None;
    std::uint64_t arrived = 0;  // reservations
    std::uint64_t end = 0;      // of what arrived of it
    std::uint64_t due = 0;      // reservations that were begun when the search started
  };
  struct Arrival {
    std::uint64_t position = 0;
    std::uint32_t units = 0;  // 0: none begins there
    std::uint32_t payload_bytes = 0;
    std::uint32_t sender = 0;
    bool dropped = false;
  };

  Arrival& arrival_at(std::uint64_t position) {
    return arrived_[static_cast<std::size_t>(geometry_.frames().place_of(position) / geometry_.unit)];
  }

  // Where a sender waits with the reservation that it began last.
  std::optional<std::uint32_t> place_of_waiting(std::uint32_t sender) const {
    const std::uint64_t begun = senders_[sender].arrived + 1;
    const std::uint64_t waits = memory_.load_cell(sender, CellWord::Waiting);
    if (waits >> 32 != (begun & 0xffffffff) || memory_.load_cell(sender, CellWord::Begun) != begun) return std::nullopt;
    return static_cast<std::uint32_t>(waits) & ~kDropped;
  }

  // Somebody has moved the tail so far. One that is none of theirs says nothing.
  bool is_reserved(std::uint64_t end) {
    if (end > tail_) tail_ = memory_.load_tail();
    return end <= tail_ || tail_ < position();
  }

  // From here on to where a sender says that it is.
  std::uint64_t units_ahead(std::uint32_t place) const {
    return (place - shared_immediate(geometry_, position())) & ~kDropped;
  }
  // What overlapped what was handed out is of another lap, and nothing.
  bool is_there(std::uint64_t position) {
    const Arrival& arrival = arrival_at(position);
    return arrival.units != 0 && arrival.position == position;
  }

  // The tail first: whoever moved it before had said so in its cell.
  void start_search() {
    const std::uint64_t tail = memory_.load_tail();
    const std::uint64_t most = table_.head() + geometry_.max_ahead(senders_.size());
    if (tail < position() || tail > most || tail % geometry_.unit != 0) {
      fault_ = Fault::Tail;
      return;
    }
    search_end_ = tail;
    for (std::uint32_t i = 0; i < senders_.size(); ++i)
      if (senders_[i].state == State::Live) senders_[i].due = memory_.load_cell(i, CellWord::Begun);
  }

  // Nothing is here. True when a gap was passed over.
  bool pass_gap() {
    const std::uint64_t at = position();
    if (at >= search_end_) return false;
    std::uint64_t end = std::min(search_end_, table_.head() + geometry_.capacity);
    for (std::uint32_t i = 0; i < senders_.size(); ++i) {
      const Sender& who = senders_[i];
      if (who.state != State::Live || who.arrived >= who.due) continue;
      // All before it has been handled, and where it waits is said of none but itself.
      const std::uint64_t waits = memory_.load_cell(i, CellWord::Waiting);
      if (who.arrived + 1 != who.due || waits >> 32 != (who.due & 0xffffffff)) return false;
      end = std::min(end, at + units_ahead(static_cast<std::uint32_t>(waits)) * geometry_.unit);
    }
    std::uint64_t to = at;
    while (to != end && !is_there(to)) to += geometry_.unit;
    if (to == at) return false;
    table_.take(at, to - at);
    table_.release(at);
    return true;
  }

  SharedGeometry geometry_;
  Memory memory_;
  ReleaseTable table_;
  std::vector<Arrival> arrived_;
  std::vector<Sender> senders_;
  std::uint64_t arrived_end_ = 0;  // of what arrived
  std::uint64_t tail_ = 0;         // when it was last looked at
  std::uint64_t search_end_ = 0;  // gaps in front of it are looked for
  Fault fault_ = Fault::None;
};

using SharedReader = BasicSharedReader<SharedMemory>;

}  // namespace verbena::ring
