// SPDX-License-Identifier: Apache-2.0
#include "soft/core/pieces.h"

#include <algorithm>

namespace verbena::core {

bool find_many_pieces(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                      std::uint64_t offset, std::uint64_t length, Access wanted, PieceList& out) {
  out.count = 0;
  for (const ScatterGather& sge : sges) {
    if (length == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t take = std::min<std::uint64_t>(sge.length - offset, length);
    std::byte* data = memory.find_local(sge.lkey, domain, sge.address, sge.length, wanted);
    if (data == nullptr) return false;
    out.pieces[out.count++] = {data + offset, static_cast<std::size_t>(take)};
    length -= take;
    offset = 0;
  }
  return length == 0;
}

bool store(const PieceList& pieces, std::span<const std::byte> bytes, bool publish) {
  for (const Piece& piece : pieces.span()) {
    if (!dma_write(const_cast<std::byte*>(piece.data), bytes.first(piece.size),
                   publish && piece.size == bytes.size()))
      return false;
    bytes = bytes.subspan(piece.size);
  }
  return true;
}

bool store_in_many(const MemoryTable& memory, PdId domain, std::span<const ScatterGather> sges,
                   std::span<const std::byte> bytes) {
  PieceList pieces;
  return find_many_pieces(memory, domain, sges, 0, bytes.size(), Access::LocalWrite, pieces) &&
         store(pieces, bytes, true);
}

}  // namespace verbena::core
