// SPDX-License-Identifier: Apache-2.0
// Cells of a node's memory that many queue pairs update with atomics, and the proof that none was lost or
// doubled.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "sim/memory.h"
#include "sim/verdict.h"

namespace verbena::sim {

class SharedCells {
 public:
  static constexpr std::uint32_t kLanesPerCell = 4;  // 16 bits each
  static constexpr std::uint32_t kCounterCells = 7;
  static constexpr std::uint64_t kRegisterOffset = kCounterCells * 8;
  static constexpr std::uint64_t kBytes = kRegisterOffset + 8;

  explicit SharedCells(const Area& area) : area_(area) { std::memset(area_.base, 0, kBytes); }

  Area& area() { return area_; }
  static std::uint64_t counter_offset(std::uint32_t lane) { return lane / kLanesPerCell * 8; }
  static std::uint32_t counter_shift(std::uint32_t lane) { return lane % kLanesPerCell * 16; }
  static std::uint64_t lane_of(std::uint64_t value, std::uint32_t lane) {
    return value >> counter_shift(lane) & 0xffff;
  }
  std::uint64_t value_at(std::uint64_t offset) const {
    std::uint64_t value;
    std::memcpy(&value, area_.base + offset, 8);
    return value;
  }

  // A compare-and-swap on the register that found `original`; swaps are unique values.
  void note_swap(std::uint64_t original, std::uint64_t compare, std::uint64_t swap) {
    seen_.push_back(original);
    if (original == compare) certain_.push_back({compare, swap});
  }
  // One of which nobody knows whether it happened.
  void note_possible_swap(std::uint64_t compare, std::uint64_t swap) { possible_.push_back({compare, swap}); }

  // The register went from 0 to its value through every certain swap once, and through possible ones.
  void check(Verdict& verdict) const;

 private:
  struct Swap {
    std::uint64_t from, to;
  };
  Area area_;
  std::vector<Swap> certain_, possible_;
  std::vector<std::uint64_t> seen_;
};

}  // namespace verbena::sim
