// SPDX-License-Identifier: Apache-2.0
// The shared accesses of a ring on real memory. Each is one atomic access: nothing is read twice or in parts.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/shared_word.h"

namespace verbena::local {

inline constexpr std::uint32_t kLineBytes = 64;
// Words of different writers keep two lines apart: lines are fetched in pairs.
inline constexpr std::uint32_t kWriterBytes = 2 * kLineBytes;
inline constexpr std::uint32_t kMinRingCapacity = 8 * kLineBytes;

// Bytes of shared memory for a ring of that capacity, which is a power of two.
constexpr std::uint64_t ring_bytes(std::uint32_t capacity) { return kWriterBytes + std::uint64_t{capacity}; }

class RingMemory {
 public:
  // Batches are so far apart: a processor fetches lines in pairs, and takes the next one away from who writes it.
  static constexpr std::uint32_t kLine = kWriterBytes;

  // `base`: ring_bytes(capacity) of memory, zero at first, on a line of its own; it outlives this.
  RingMemory(std::byte* base, std::uint32_t capacity) : base_(base), capacity_(capacity) {
    VERBENA_ASSERT(std::has_single_bit(capacity) && capacity >= kMinRingCapacity);
    VERBENA_ASSERT(reinterpret_cast<std::uintptr_t>(base) % kLineBytes == 0);
  }

  std::uint32_t capacity() const { return capacity_; }
  std::byte* data() const { return base_ + kWriterBytes; }

  std::uint64_t load_head() const { return load_shared(base_); }
  void store_head(std::uint64_t value) { store_shared(base_, value); }
  std::uint64_t load_header(std::uint32_t offset) const { return load_shared(data() + offset); }
  // The same of any word, which may not be there: false.
  bool try_load(std::uint32_t offset, std::uint64_t& value) const { return try_load_shared(data() + offset, value); }
  // It is loaded soon: the line comes while something else is done.
  void expect(std::uint32_t offset) const { __builtin_prefetch(data() + offset); }
  void publish_header(std::uint32_t offset, std::uint64_t value) { store_shared(data() + offset, value); }
  void store_header(std::uint32_t offset, std::uint64_t value) {
    word(data() + offset).store(value, std::memory_order_relaxed);
  }
  bool try_store_head(std::uint64_t value) { return try_store_shared(base_, value); }
  // The same as a release, likewise of a word that may not be there.
  bool try_store(std::uint32_t offset, std::uint64_t value) { return try_store_shared(data() + offset, value); }
  bool operator==(const RingMemory&) const = default;

 private:
  static std::atomic_ref<std::uint64_t> word(std::byte* at) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
  }

  std::byte* base_;
  std::uint32_t capacity_;
};

}  // namespace verbena::local
