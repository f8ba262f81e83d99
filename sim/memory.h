// SPDX-License-Identifier: Apache-2.0
// A node's memory: areas with red zones between them. Whatever is outside an area must never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.h"
#include "sim/pattern.h"
#include "soft/core/memory_table.h"

namespace verbena::sim {

// A piece of a node's memory, registered with its device.
struct Area {
  std::byte* base = nullptr;
  std::uint64_t size = 0;
  core::MemoryRegion region;

  std::uint64_t va(std::uint64_t offset) const { return region.iova + offset; }
  std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t length) const {
    return {base + offset, length};
  }
};

class Memory {
 public:
  static constexpr std::uint64_t kRedZone = 64;

  explicit Memory(std::uint64_t bytes)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(bytes + kAlign)), size_(bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.get());
    base_ = bytes_.get() + (kAlign - at % kAlign) % kAlign;
    red_.fill({base_, kRedZone});
    used_ = kRedZone;
  }
  // `size` bytes, 8-aligned, a red zone behind. The content is unset.
  Area take(std::uint64_t size) {
    const std::uint64_t end = (used_ + size + 7) & ~std::uint64_t{7};
    VERBENA_ASSERT(end + kRedZone <= size_);
    Area area;
    area.base = base_ + used_;
    area.size = size;
    gaps_.push_back({used_ + size, end + kRedZone - used_ - size});
    red_.fill({base_ + gaps_.back().offset, gaps_.back().length});
    used_ = end + kRedZone;
    return area;
  }
  static std::uint64_t cost(std::uint64_t size) { return size + kRedZone + 8; }

  bool red_zones_intact() const {
    if (!red_.equals({base_, kRedZone})) return false;
    for (const Gap& gap : gaps_)
      if (!red_.equals({base_ + gap.offset, gap.length})) return false;
    return true;
  }

 private:
  static constexpr std::uint64_t kAlign = 64;
  struct Gap {
    std::uint64_t offset, length;
  };
  std::unique_ptr<std::byte[]> bytes_;
  std::byte* base_ = nullptr;
  std::uint64_t size_, used_ = 0;
  std::vector<Gap> gaps_;
  Pattern red_{0x4ed'4ed};
};

// Buffers inside an area, given out and taken back in the same order. Eight guard bytes stand behind each.
class BufferRing {
 public:
  static constexpr std::uint32_t kGuard = 8;
  static constexpr std::uint32_t kNone = 0xffffffff;

  void reset(const Area& area) {
    area_ = area;
    head_ = tail_ = 0;
  }
  // Offset of `length` bytes in one piece, or kNone. mark() afterwards names the end of what is in use.
  std::uint32_t take(std::uint32_t length) {
    const std::uint64_t need = length + kGuard;
    std::uint64_t at = head_ % area_.size;
    std::uint64_t skip = 0;
    if (at + need > area_.size) {
      skip = area_.size - at;
      at = 0;
    }
    if (head_ + skip + need - tail_ > area_.size) return kNone;
    head_ += skip + need;
    guard_.fill(area_.bytes(at + length, kGuard), at);
    return static_cast<std::uint32_t>(at);
  }
  std::uint64_t mark() const { return head_; }
  // Gives back what was taken since `mark`, the newest.
  void undo(std::uint64_t mark) { head_ = mark; }
  // Gives back everything taken before `mark`, the oldest.
  void release(std::uint64_t mark) { tail_ = mark; }
  bool guard_intact(std::uint32_t offset, std::uint32_t length) const {
    return guard_.equals(area_.bytes(std::uint64_t{offset} + length, kGuard), offset);
  }
  const Area& area() const { return area_; }

 private:
  Area area_;
  std::uint64_t head_ = 0, tail_ = 0;
  Pattern guard_{0x6a4d};
};

}  // namespace verbena::sim
