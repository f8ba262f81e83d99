// SPDX-License-Identifier: Apache-2.0
// Which frames of a ring were let go of. They may be in any order; the head passes those that are, in theirs.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace verbena::ring {

// One thread at a time. Allocates once: four bytes for each unit of the ring.
class ReleaseTable {
 public:
  ReleaseTable(std::uint64_t capacity, std::uint32_t unit)
      : shift_(static_cast<std::uint32_t>(std::countr_zero(unit))),
        mask_(capacity / unit - 1),
        entries_(static_cast<std::size_t>(capacity / unit)) {
    VERBENA_ASSERT(std::has_single_bit(unit));
  }

  // [position, position + bytes) is behind all that was taken before.
  void take(std::uint64_t position, std::uint64_t bytes) {
    VERBENA_ASSERT(position == end_ && bytes != 0);
    VERBENA_ASSERT(position + bytes - head_ <= std::uint64_t{entries_.size()} << shift_);
    entry(position) = static_cast<std::uint32_t>(bytes >> shift_) << 1;
    end_ += bytes;
  }
  // What begins there was taken, and not let go of before.
  void release(std::uint64_t position) {
    VERBENA_ASSERT(position - head_ < end_ - head_ && entry(position) != 0 && (entry(position) & 1) == 0);
    entry(position) |= 1;
    while (head_ != end_ && (entry(head_) & 1) != 0) {
      const std::uint64_t bytes = std::uint64_t{entry(head_) >> 1} << shift_;
      entry(head_) = 0;
      head_ += bytes;
      ++passed_;
    }
  }
  std::uint64_t head() const { return head_; }
  std::uint64_t end() const { return end_; }
  // Frames and skips the head has passed.
  std::uint64_t passed() const { return passed_; }

 private:
  friend struct Inspect;
  std::uint32_t& entry(std::uint64_t position) {
    return entries_[static_cast<std::size_t>(position >> shift_ & mask_)];
  }

  std::uint32_t shift_;  // of a unit, a power of two
  std::uint64_t mask_;
  std::uint64_t head_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t passed_ = 0;
  std::vector<std::uint32_t>
      entries_;  // at the first unit of each: units << 1 | released; 0: none begins there
};

}  // namespace verbena::ring
