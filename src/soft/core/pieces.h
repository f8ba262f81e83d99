// SPDX-License-Identifier: Apache-2.0
// From a scatter/gather list to the bytes it names.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "soft/core/dma.h"
#include "soft/core/memory_table.h"
#include "soft/core/queue_pair.h"

namespace verbena::core {

// Pieces of application memory, as found through the memory table.
struct PieceList {
  std::array<Piece, kMaxSegments> pieces;
  std::size_t count = 0;

  std::span<const Piece> span() const { return {pieces.data(), count}; }
};

// find_pieces() of any list, and of any length.
bool find_many_pieces(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                      std::uint64_t offset, std::uint64_t length, Access wanted, PieceList& out);

// The bytes [offset, offset + length) of a scatter/gather list, checked piece by piece.
// False when the list ends before or a key, range or right is wrong in that domain.
inline bool find_pieces(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                        std::uint64_t offset, std::uint64_t length, Access wanted, PieceList& out) {
  if (sges.size() != 1 || length == 0) [[unlikely]]
    return find_many_pieces(memory, domain, sges, offset, length, wanted, out);
  out.count = 0;
  const ScatterGather& sge = sges[0];
  if (offset > sge.length || length > sge.length - offset) return false;
  std::byte* const data = memory.find_local(sge.lkey, domain, sge.address, sge.length, wanted);
  if (data == nullptr) return false;
  out.pieces[0] = {data + offset, static_cast<std::size_t>(length)};
  out.count = 1;
  return true;
}

// As many bytes as the pieces have, in their order. `publish`: they are the last of a message (O-4).
// False when the memory is not there any more: then a part was stored at most.
[[nodiscard]] bool store(const PieceList& pieces, std::span<const std::byte> bytes, bool publish);

// Both, of a message that came whole: to the beginning of the list, which mostly has one entry. False where either says
// so, and where that entry is wrong though the message is empty.
[[nodiscard]] bool store_in_many(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                                 std::span<const std::byte> bytes);
[[nodiscard]] inline bool store_whole(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                                      std::span<const std::byte> bytes) {
  if (sges.size() != 1) [[unlikely]] return store_in_many(memory, domain, sges, bytes);
  const ScatterGather& sge = sges[0];
  if (bytes.size() > sge.length) return false;
  std::byte* const to = memory.find_local(sge.lkey, domain, sge.address, sge.length, Access::LocalWrite);
  return to != nullptr && dma_write(to, bytes, true);
}

}  // namespace verbena::core
