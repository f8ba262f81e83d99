// SPDX-License-Identifier: Apache-2.0
// What both ends write into memory and how they compare it without moving it: a pattern from a seed, and a
// digest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::interop {

// On each side of a region, allocated with it and not registered.
inline constexpr std::size_t kGuardBytes = 64;
// What guards and regions hold until something is written.
inline constexpr std::byte kUntouched{0xa5};

inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
}

// FNV-1a, 64 bits.
inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  return hash;
}

inline std::uint64_t pattern_hash(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> pattern(bytes);
  fill_pattern(pattern, seed);
  return hash_of(pattern);
}

struct Digest {
  std::uint64_t hash = 0;  // of the range asked for
  bool intact = false;     // all else, guards included, holds kUntouched
};

// A region between its guards.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) : size_(size), storage_(size + 2 * kGuardBytes, kUntouched) {}

  std::span<std::byte> bytes() { return std::span{storage_}.subspan(kGuardBytes, size_); }
  bool holds(std::uint64_t offset, std::uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }
  // The range is one that holds() accepts.
  Digest digest(std::uint64_t offset, std::uint64_t length) const {
    const auto first = storage_.begin() + static_cast<std::ptrdiff_t>(kGuardBytes + offset);
    const auto last = first + static_cast<std::ptrdiff_t>(length);
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    return {hash_of(std::span{storage_}.subspan(kGuardBytes + offset, length)),
            std::all_of(storage_.begin(), first, untouched) && std::all_of(last, storage_.end(), untouched)};
  }

 private:
  std::size_t size_;
  std::vector<std::byte> storage_;
};

}  // namespace verbena::interop
