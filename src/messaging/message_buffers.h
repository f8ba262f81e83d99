// SPDX-License-Identifier: Apache-2.0
// A sender's own memory for messages, in slots of the longest message's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "verbena/device/memory_region.h"
#include "verbena/device/protection_domain.h"

namespace verbena::messaging {

class MessageBuffers {
 public:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;

  // So many, a line apart. Nothing is allocated yet: who only lends needs none.
  void plan(std::uint32_t bytes, std::uint32_t count, Access access) {
    stride_ = (std::size_t{bytes} + 63) / 64 * 64;
    count_ = count;
    access_ = access;
    free_.reserve(count);
  }
  Result<void> allocate(ProtectionDomain& domain) {
    auto memory = domain.allocate_memory(stride_ * count_, access_);
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    for (std::uint32_t i = count_; i-- > 0;) free_.push_back(i);
    return {};
  }
  bool is_allocated() const { return !memory_.empty(); }
  // kNoSlot when none is free.
  std::uint32_t take() {
    if (free_.empty()) return kNoSlot;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  bool all_taken() const { return is_allocated() && free_.empty(); }
  // kNoSlot is nothing to give back.
  void give_back(std::uint32_t slot) {
    if (slot != kNoSlot) free_.push_back(slot);
  }

  const MemoryRegion& memory() const { return memory_; }
  std::uint64_t offset(std::uint32_t slot) const { return std::uint64_t{slot} * stride_; }
  std::byte* at(std::uint32_t slot) const { return memory_.data() + offset(slot); }
  ScatterGather local(std::uint32_t slot, std::uint32_t bytes) const { return memory_.local(offset(slot), bytes); }

 private:
  MemoryRegion memory_;
  std::size_t stride_ = 0;
  std::uint32_t count_ = 0;
  Access access_ = Access::None;
  std::vector<std::uint32_t> free_;
};

}  // namespace verbena::messaging
