// SPDX-License-Identifier: Apache-2.0
// A region whose bytes stand in a file of their own, a memfd, so that a peer can map it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "soft/driver/descriptor.h"
#include "verbena/base/result.h"

namespace verbena::soft::local {

// The region of another process, mapped here. Any thread may move and destroy it; it does not follow a fork.
class RegionMapping {
 public:
  // Of a sealed file that holds `length` bytes of it at least. Errors: ProtocolError when it is none, what
  // the system says when it cannot be mapped.
  static Result<RegionMapping> map(Descriptor file, std::uint64_t length, bool writable);
  RegionMapping(RegionMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  RegionMapping& operator=(RegionMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~RegionMapping();

  std::byte* base() const { return base_; }

 private:
  RegionMapping(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_;
  std::size_t bytes_;
};

// The same file, for reading alone. Empty where the system does not give it.
Descriptor read_only(int file);

// What is mapped at `base`, all of the file, stands in pages of this process alone from now on, with the
// bytes it has; what other threads store meanwhile is not lost. False: the system gives no memory for it, and
// nothing has changed that anybody could see.
bool renew_pages(std::byte* base, int file);

}  // namespace verbena::soft::local
