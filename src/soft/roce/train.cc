// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/train.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "soft/core/dma.h"
#include "soft/wire/icrc.h"

namespace verbena::roce {

namespace {
constexpr std::size_t kTrailerBytes = 3 + wire::kIcrcBytes;  // pad and ICRC at most
}

Train::Train(const TrainLimits& limits)
    : limits_(limits),
      arena_(
          std::max<std::size_t>(limits.max_bytes, wire::kMaxPathMtu + wire::kMaxHeaderBytes + kTrailerBytes) +
          std::size_t{limits.max_datagrams} * 8) {
  limits_.max_pieces = std::min(limits.max_pieces, limits.max_datagrams * 8 + 64);
  pieces_.reserve(limits_.max_pieces);
}

void Train::limit_datagrams(std::uint32_t most) { limits_.max_datagrams = std::min(limits_.max_datagrams, most); }

void Train::clear() {
  datagrams_ = 0;
  segment_bytes_ = total_bytes_ = arena_used_ = 0;
  closed_ = false;
  pieces_.clear();
}

void Train::set_path(const wire::Path& path, std::uint32_t source_index) {
  VERBENA_ASSERT(empty());
  path_ = path;
  source_index_ = source_index;
}

bool Train::fits(std::size_t bytes) const {
  if (empty()) return true;
  return !closed_ && bytes <= segment_bytes_ && datagrams_ < limits_.max_datagrams &&
         total_bytes_ + bytes <= limits_.max_bytes &&
         pieces_.size() + max_pieces_per_packet() <= limits_.max_pieces;
}

std::byte* Train::reserve(std::size_t bytes) {
  VERBENA_ASSERT(arena_used_ + bytes <= arena_.size());
  std::byte* at = arena_.data() + arena_used_;
  arena_used_ += bytes;
  append_piece(at, bytes);
  return at;
}

void Train::append_piece(const std::byte* data, std::size_t size) {
  if (size == 0) return;
  if (!pieces_.empty() && pieces_.back().data + pieces_.back().size == data)
    pieces_.back().size += size;
  else
    pieces_.push_back({data, size});
}

void Train::return_to(const Mark& mark) {
  arena_used_ = mark.arena_used;
  pieces_.resize(mark.pieces);
  if (!pieces_.empty()) pieces_.back().size = mark.last_piece_bytes;
}

bool Train::add_payload(std::span<const Piece> parts, std::size_t payload_bytes, Payload how, std::uint32_t& crc) {
  if (payload_bytes == 0) return true;
  if (how == Payload::Gather && payload_bytes >= limits_.gather_from_bytes) {
    for (const Piece& part : parts) {
      if (!fault_guard::run([&crc, &part] { crc = wire::icrc_extend(crc, {part.data, part.size}); })) return false;
      append_piece(part.data, part.size);
    }
    return true;
  }
  std::byte* payload = reserve(payload_bytes);
  std::byte* to = payload;
  for (const Piece& part : parts) {
    if (!core::dma_read(to, {part.data, part.size})) return false;
    to += part.size;
  }
  crc = wire::icrc_extend(crc, {payload, payload_bytes});
  return true;
}

bool Train::add(const wire::Packet& packet, std::span<const Piece> parts, std::size_t payload_bytes,
                Payload how) {
  const std::size_t header_bytes = packet.info().header_bytes;
  const std::size_t bytes = header_bytes + payload_bytes + packet.bth.pad_count + wire::kIcrcBytes;
  VERBENA_ASSERT(fits(bytes));
  const Mark before = mark();
  std::byte* header = reserve(header_bytes);
  wire::emit_headers(packet, {header, header_bytes});
  std::uint32_t crc =
      wire::icrc_begin(path_, static_cast<std::uint16_t>(datagrams_), bytes, {header, header_bytes});
  if (!add_payload(parts, payload_bytes, how, crc)) {
    return_to(before);
    return false;
  }
  std::byte* trailer = reserve(packet.bth.pad_count + wire::kIcrcBytes);
  if (packet.bth.pad_count != 0) {
    std::memset(trailer, 0, packet.bth.pad_count);
    crc = wire::icrc_extend(crc, {trailer, packet.bth.pad_count});
  }
  wire::store_icrc(trailer + packet.bth.pad_count, crc);
  if (empty())
    segment_bytes_ = bytes;
  else if (bytes < segment_bytes_)
    closed_ = true;
  ++datagrams_;
  total_bytes_ += bytes;
  return true;
}

void Train::flatten(std::uint32_t index, std::vector<std::byte>& out) const {
  VERBENA_ASSERT(index < datagrams_);
  std::size_t skip = std::size_t{index} * segment_bytes_;
  std::size_t want = std::min(segment_bytes_, total_bytes_ - skip);
  out.clear();
  for (const Piece& piece : pieces_) {
    if (skip >= piece.size) {
      skip -= piece.size;
      continue;
    }
    const std::size_t take = std::min(piece.size - skip, want);
    const std::size_t at = out.size();
    out.resize(at + take);
    // Unmapped since it was added: the datagram fails its check, and is asked for again.
    static_cast<void>(core::dma_read(out.data() + at, {piece.data + skip, take}));
    want -= take;
    skip = 0;
    if (want == 0) return;
  }
}

}  // namespace verbena::roce
