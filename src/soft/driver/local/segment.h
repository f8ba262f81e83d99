// SPDX-License-Identifier: Apache-2.0
// Memory that two processes share: a memfd without a name, so that nothing is left of it once both are gone. It is
// sealed: nobody can make it shorter under the other's feet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "soft/driver/descriptor.h"
#include "verbena/base/result.h"

namespace verbena::soft::local {

// Owner of one mapping. Any thread may move and destroy it; it does not follow a fork.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), descriptor_(std::move(other.descriptor_)) {}
  Segment& operator=(Segment&& other) noexcept {
    std::swap(memory_, other.memory_);
    descriptor_ = std::move(other.descriptor_);
    return *this;
  }
  ~Segment();

  // New memory, zero, and all of it there: it cannot turn out to be missing later.
  // Errors: ResourceExhausted (memory, descriptors), PermissionDenied, NotSupported (no memfd here).
  static Result<Segment> create(std::uint64_t bytes);
  // Memory of another process. Errors: ProtocolError when it is no memfd, not of that size, or not sealed;
  // what the system says when it cannot be mapped.
  static Result<Segment> accept(Descriptor descriptor, std::uint64_t bytes);

  std::span<std::byte> memory() const { return memory_; }
  int descriptor() const { return descriptor_.get(); }
  // The mapping stays; a descriptor less to keep open.
  void close_descriptor() { descriptor_ = Descriptor(); }

 private:
  static Result<Segment> map(Descriptor descriptor, std::uint64_t bytes);

  std::span<std::byte> memory_;
  Descriptor descriptor_;
};

}  // namespace verbena::soft::local
