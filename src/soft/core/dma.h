// SPDX-License-Identifier: Apache-2.0
// The one place where the device touches application memory that may be read or written at the same time; but what a
// peer of this host lets us copy out of its memory the kernel stores (local::PeerMemory), all but the last word.
//
// Order inside a WRITE (O-4, our promise): bytes are stored ascending, but for what goes past the cache; of the last
// packet the final byte, or the naturally aligned 8-byte word that ends the range, is stored by one release store after
// all others. A reader that sees it with an acquire load sees everything before it.
// 8 bytes that are alone, at an address that is a multiple of eight, are stored and read by one access.
//
// Memory that is registered may be unmapped all the same. Each of these then says so, having moved a part at most; the
// process lives (F30).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/fault_guard.h"

namespace verbena::core {

// Consecutive bytes of memory.
struct Piece {
  const std::byte* data;
  std::size_t size;
};

// Inbound bytes into application memory. `publish`: these are the last of a message (O-4, R-092).
[[nodiscard]] bool dma_write(std::byte* to, std::span<const std::byte> from, bool publish);

// The same of several pieces, one after the other; the word that ends a message may be made up of several.
[[nodiscard]] bool dma_write(std::byte* to, std::span<const Piece> from, bool publish);
// Of a message so long that it would not stay in the cache, all but the end: past it, which is quicker, as no line is
// read before it is overwritten. In no order, but before whatever is stored after.
[[nodiscard]] bool dma_write_past_cache(std::byte* to, std::span<const Piece> from);

// Application memory into a private copy; the memory may be changing meanwhile.
[[nodiscard]] bool dma_read_bytes(std::byte* to, std::span<const std::byte> from);
[[nodiscard]] inline bool dma_read(std::byte* to, std::span<const std::byte> from) {
  if (fault_guard::kCopiesWords && from.size() == 8) return fault_guard::copy_word(to, from.data());
  return dma_read_bytes(to, from);
}

// Atomics on 8-byte aligned application memory in host byte order; atomic with respect to the CPU as well
//
std::optional<std::uint64_t> dma_compare_swap(std::byte* at, std::uint64_t compare, std::uint64_t swap);
std::optional<std::uint64_t> dma_fetch_add(std::byte* at, std::uint64_t add);

}  // namespace verbena::core
