// SPDX-License-Identifier: Apache-2.0
// Memory that is mapped twice in a row: what is written behind the end stands at the beginning too, so that a
// ring in it has no end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "verbena/base/result.h"

namespace verbena::messaging {

//     | capacity | capacity, the same pages | extra |
//
// Zero at first. A process made by fork() does not have it. Regions that are registered over it end before it
// does. Threads: any, one at a time.
class DoubleMapping {
 public:
  DoubleMapping() = default;  // empty
  // `capacity`: whole pages. `extra_bytes`: plain memory behind both. Errors: InvalidArgument,
  // ResourceExhausted (no memory or no room for so much), PermissionDenied and others, as the system says.
  static Result<DoubleMapping> create(std::size_t capacity, std::size_t extra_bytes);
  DoubleMapping(DoubleMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DoubleMapping& operator=(DoubleMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DoubleMapping();

  // Both mappings and what is behind them.
  std::span<std::byte> bytes() const { return {base_, bytes_}; }

 private:
  DoubleMapping(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace verbena::messaging
