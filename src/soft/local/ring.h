// SPDX-License-Identifier: Apache-2.0
// A ring of records of any length between two processes: one produces, one consumes.
//
//   | head line | data: capacity bytes ...                                          |
//     consumer    record: 8-byte header (that it is there, kind, length), payload, to 8
//
// Every shared word has one writer: head is the consumer's, all else the producer's. Positions run freely; a position
// modulo the capacity is an offset into the data. A record is never split: padding (kind 0) fills what is left at the
// wrap. A batch begins and ends on a Memory::kLine. Its records become visible together, by one release store of the
// first header: before, there was 0, at which the consumer waits, and there is 0 behind the batch. So a short record
// and the news of it are one line. Whoever dies leaves a whole batch or nothing of it.
//
// The 0 behind a batch is mostly there: who published clears where the next batch would end, were it as long.
//
// What the other side wrote is hostile input: read once, checked against what this side knows by itself. A violation
// is Corrupt, for good; it ends this ring and touches nothing else.
//
// The algorithm is written over `Memory`, the shared accesses it makes, so that a model can run it step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/assert.h"
#include "soft/local/ring_memory.h"

namespace verbena::local {

inline constexpr std::uint32_t kRecordHeaderBytes = 8;
inline constexpr std::uint16_t kPaddingKind = 0;

enum class RingState : std::uint8_t { Open, Corrupt };

struct RecordHeader {
  std::uint32_t payload_bytes = 0;
  std::uint16_t kind = kPaddingKind;

  static constexpr RecordHeader of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint16_t>(word >> 32)};
  }
  // Never 0.
  constexpr std::uint64_t word() const {
    constexpr std::uint64_t kThere = std::uint64_t{1} << 48;
    return kThere | std::uint64_t{kind} << 32 | payload_bytes;
  }
  // Bytes in the ring, header and rounding included.
  constexpr std::uint64_t size() const { return kRecordHeaderBytes + ((std::uint64_t{payload_bytes} + 7) & ~7ull); }
};

// The longest payload that always finds room in an empty ring, wherever its ends stand.
constexpr std::uint32_t max_payload_bytes(std::uint32_t capacity, std::uint32_t line_bytes = RingMemory::kLine) {
  return capacity / 2 - line_bytes - kRecordHeaderBytes;
}

// Where a batch may begin.
template <class Memory>
constexpr std::uint64_t line_end_of(std::uint64_t position) {
  return (position + Memory::kLine - 1) & ~std::uint64_t{Memory::kLine - 1};
}

// That are put at once.
inline constexpr std::uint32_t kMostLines = 4;

// One thread at a time. Does not own the memory.
template <class Memory>
class BasicRingProducer {
 public:
  explicit BasicRingProducer(Memory memory) : memory_(memory) {}

  // Room for one record, not visible yet; the offset of its payload in the data. Nothing: the ring is full at this
  // moment, or corrupt. The payload is written before publish(), and never read.
  std::optional<std::uint32_t> try_reserve(std::uint16_t kind, std::uint32_t payload_bytes) {
    VERBENA_ASSERT(kind != kPaddingKind && payload_bytes <= max_payload_bytes(capacity(), Memory::kLine));
    if (state_ != RingState::Open) return std::nullopt;
    const RecordHeader header{payload_bytes, kind};
    if (!fits(payload_bytes)) {
      refresh();
      if (!fits(payload_bytes)) return std::nullopt;
    }
    if (const std::uint32_t padding = padding_before(header); padding != 0) pad(padding);
    const std::uint32_t at = offset_of(next_);
    put(header);
    return at + kRecordHeaderBytes;
  }

  // What was reserved last will not be written: padding stands in its place.
  void discard(std::uint32_t offset, std::uint32_t payload_bytes) {
    store_header(offset - kRecordHeaderBytes, RecordHeader{payload_bytes, kPaddingKind});
  }

  // Makes all that was reserved visible, at once.
  void publish() {
    if (next_ == tail_) return;
    if (const std::uint64_t slack = line_end(next_) - next_; slack != 0) pad(static_cast<std::uint32_t>(slack));
    if (cleared_ != next_) memory_.store_header(offset_of(next_), 0);
    memory_.publish_header(offset_of(tail_), first_);
    cleared_ = next_ + (next_ - tail_);
    tail_ = next_;
    if (cleared_ + Memory::kLine - head_ <= capacity())
      memory_.store_header(offset_of(cleared_), 0);
    else
      cleared_ = tail_;  // that is not free, as far as is known
  }

  // One record of at most kMostLines, alone: reserved, written, and published, also in memory that may be gone. False:
  // it is to be reserved; or that memory is gone, and the ring is Corrupt.
  bool try_put(std::uint16_t kind, std::uint32_t payload_bytes, std::span<const std::uint64_t> words) {
    const RecordHeader header{payload_bytes, kind};
    const std::uint64_t size = header.size(), batch = line_end_of<Memory>(size), slack = batch - size;
    if (state_ != RingState::Open || next_ != tail_ || batch > kMostLines * Memory::kLine) return false;
    if (tail_ + batch + Memory::kLine - head_ > capacity()) return false;
    const std::uint32_t at = offset_of(tail_), behind = offset_of(tail_ + batch);
    if (batch > capacity() - at) return false;
    bool whole = true;
    for (std::uint32_t i = 0; i < payload_bytes; i += 8)
      whole = whole && memory_.try_store(at + kRecordHeaderBytes + i, words[i / 8]);
    if (slack != 0) {
      const RecordHeader padding{static_cast<std::uint32_t>(slack) - kRecordHeaderBytes, kPaddingKind};
      whole = whole && memory_.try_store(at + static_cast<std::uint32_t>(size), padding.word());
    }
    if (cleared_ != tail_ + batch) whole = whole && memory_.try_store(behind, 0);
    whole = whole && memory_.try_store(at, header.word());
    next_ = tail_ += batch;
    cleared_ = tail_ + batch;
    if (cleared_ + Memory::kLine - head_ <= capacity())
      whole = whole && memory_.try_store(offset_of(cleared_), 0);
    else
      cleared_ = tail_;
    if (!whole) state_ = RingState::Corrupt;
    return whole;
  }

  // Whether a record finds room, as far as the consumer was seen to have come.
  bool fits(std::uint32_t payload_bytes) const {
    const RecordHeader header{payload_bytes, 1};
    return line_end(next_ + padding_before(header) + header.size()) + Memory::kLine - head_ <= capacity();
  }
  // Looks how far the consumer has come.
  void refresh() {
    const std::uint64_t head = memory_.load_head();
    // It goes forwards, and no further than what is visible.
    if (head - head_ > tail_ - head_ || head % kRecordHeaderBytes != 0)
      state_ = RingState::Corrupt;
    else
      head_ = head;
  }
  std::uint64_t consumed() const { return head_; }
  bool anything_reserved() const { return next_ != tail_; }

  RingState state() const { return state_; }
  std::uint32_t capacity() const { return memory_.capacity(); }
  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  bool operator==(const BasicRingProducer&) const = default;

 private:
  static constexpr std::uint64_t line_end(std::uint64_t position) { return line_end_of<Memory>(position); }
  std::uint32_t offset_of(std::uint64_t position) const {
    return static_cast<std::uint32_t>(position & (capacity() - 1));
  }
  void pad(std::uint32_t bytes) { put({bytes - kRecordHeaderBytes, kPaddingKind}); }
  void put(const RecordHeader& header) {
    store_header(offset_of(next_), header);
    next_ += header.size();
  }
  // The first of a batch is stored with all of it.
  void store_header(std::uint32_t offset, const RecordHeader& header) {
    if (offset == offset_of(tail_))
      first_ = header.word();
    else
      memory_.store_header(offset, header.word());
  }
  // A record is never split.
  std::uint32_t padding_before(const RecordHeader& header) const {
    const std::uint32_t left = capacity() - offset_of(next_);
    return header.size() > left ? left : 0;
  }

  Memory memory_;
  std::uint64_t next_ = 0;  // end of what is reserved
  std::uint64_t tail_ = 0;  // end of what is visible
  std::uint64_t head_ = 0;  // the consumer's, as last seen
  std::uint64_t first_ = 0;    // header of what was reserved first
  std::uint64_t cleared_ = 0;  // there is 0 there, if it is behind tail_
  RingState state_ = RingState::Open;
};

// A record that is there to be read: its payload at [offset, offset + payload_bytes) of the data.
struct Record {
  std::uint16_t kind = kPaddingKind;
  std::uint32_t offset = 0;
  std::uint32_t payload_bytes = 0;

  bool operator==(const Record&) const = default;
};

// One thread at a time. Does not own the memory.
template <class Memory>
class BasicRingConsumer {
 public:
  explicit BasicRingConsumer(Memory memory) : memory_(memory) {}

  // The next record, which stays the next one until pop(); null when there is none. Its header was read once and its
  // bounds hold; the bytes of the payload are the producer's and may change at any time.
  const Record* peek() {
    if (peeked_.kind != kPaddingKind) return &peeked_;
    while (state_ == RingState::Open) {
      const std::uint64_t word = memory_.load_header(offset_of(position_));
      if (word == 0) return nullptr;
      const RecordHeader header = RecordHeader::of(word);
      if (!is_whole(header, word)) {
        state_ = RingState::Corrupt;
      } else if (header.kind == kPaddingKind) {
        position_ += header.size();
      } else {
        peeked_.kind = header.kind;
        peeked_.offset = offset_of(position_) + kRecordHeaderBytes;
        peeked_.payload_bytes = header.payload_bytes;
        memory_.expect(offset_of(line_end_of<Memory>(position_ + header.size())));
        return &peeked_;
      }
    }
    return nullptr;
  }

  // The same for a record of that kind which fits into `words`, and is copied there; also of memory that may be gone.
  // Null: there is none, or peek() is to be asked.
  const Record* peek_short(std::uint16_t kind, std::span<std::uint64_t> words) {
    if (peeked_.kind != kPaddingKind || state_ != RingState::Open) return nullptr;
    std::uint64_t word = 0;
    if (!memory_.try_load(offset_of(position_), word)) return nullptr;
    const RecordHeader header = RecordHeader::of(word);
    if (header.kind != kind || header.payload_bytes > words.size_bytes() || !is_whole(header, word)) return nullptr;
    const std::uint32_t offset = offset_of(position_) + kRecordHeaderBytes;
    for (std::uint32_t i = 0; i < header.payload_bytes; i += 8)
      if (!memory_.try_load(offset + i, words[i / 8])) return nullptr;
    peeked_ = {header.kind, offset, header.payload_bytes};
    memory_.expect(offset_of(line_end_of<Memory>(position_ + header.size())));
    return &peeked_;
  }

  // Whether padding follows, as it does where a batch ends in a line: it is passed. Looks at no other line.
  bool pass_padding() {
    if (state_ != RingState::Open || position_ % Memory::kLine == 0) return false;
    std::uint64_t word = 0;
    if (!memory_.try_load(offset_of(position_), word)) return false;
    const RecordHeader header = RecordHeader::of(word);
    if (header.kind != kPaddingKind || !is_whole(header, word)) return false;
    position_ += header.size();
    return true;
  }

  // Goes on behind the record that peek() showed. It stays readable until release().
  void pop() {
    VERBENA_ASSERT(peeked_.kind != kPaddingKind);
    position_ += RecordHeader{peeked_.payload_bytes, peeked_.kind}.size();
    peeked_ = {};
  }

  // Gives the producer back the room of all that was popped. Called after every turn, also one that found nothing:
  // padding is room too.
  void release() {
    if (released_ == position_) return;
    released_ = position_;
    memory_.store_head(released_);
  }

  // The same, also in memory that may be gone: false then, and it is Corrupt.
  bool try_release() {
    if (released_ == position_) return true;
    if (!memory_.try_store_head(position_)) {
      state_ = RingState::Corrupt;
      peeked_ = {};
      return false;
    }
    released_ = position_;
    return true;
  }

  std::uint64_t released() const { return released_; }
  // A short look, also at memory that may be gone: nothing is there, not even padding.
  bool looks_empty() const {
    std::uint64_t word = 1;
    return memory_.try_load(offset_of(position_), word) && word == 0;
  }

  RingState state() const { return state_; }
  std::uint32_t capacity() const { return memory_.capacity(); }
  Memory& memory() { return memory_; }
  bool operator==(const BasicRingConsumer&) const = default;

 private:
  std::uint32_t offset_of(std::uint64_t position) const {
    return static_cast<std::uint32_t>(position & (capacity() - 1));
  }
  // The producer never writes over what was not released, and keeps a line for the end.
  bool is_whole(const RecordHeader& header, std::uint64_t word) const {
    const std::uint64_t room = capacity() - Memory::kLine - (position_ - released_);
    const std::uint64_t unbroken = capacity() - offset_of(position_);
    return header.word() == word && header.size() <= room && header.size() <= unbroken;
  }

  Memory memory_;
  std::uint64_t position_ = 0;  // next to read
  std::uint64_t released_ = 0;
  Record peeked_;
  RingState state_ = RingState::Open;
};

using RingProducer = BasicRingProducer<RingMemory>;
using RingConsumer = BasicRingConsumer<RingMemory>;

}  // namespace verbena::local
