// SPDX-License-Identifier: Apache-2.0
// The words of a ring as its reader sees them in real memory. Each is read by one acquire load: never twice,
// never in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "base/shared_word.h"

namespace verbena::ring {

inline std::uint64_t load_word(const std::byte* at) { return load_shared(at); }
inline void store_word(std::byte* at, std::uint64_t value) { store_shared(at, value); }

// A value; the memory, zero at first, outlives it.
class RingMemory {
 public:
  // `tail`: 8 bytes, null where no tail is written.
  RingMemory(std::span<const std::byte> ring, const std::byte* tail) : ring_(ring), tail_(tail) {
    VERBENA_ASSERT(reinterpret_cast<std::uintptr_t>(ring.data()) % 8 == 0);
    VERBENA_ASSERT(reinterpret_cast<std::uintptr_t>(tail) % 8 == 0);
  }
  std::uint64_t load(std::uint64_t offset) const { return load_word(ring_.subspan(offset, 8).data()); }
  std::uint64_t load_tail() const { return load_word(tail_); }

 private:
  std::span<const std::byte> ring_;
  const std::byte* tail_;
};

}  // namespace verbena::ring
