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
  open_ = {};
  pieces_.clear();
}

void Train::set_path(const wire::Path& path, const wire::IcrcStart& icrc_start, std::uint32_t source_index) {
  VERBENA_ASSERT(empty());
  if (path != path_) {
    icrc_start_ = icrc_start;
    path_ = path;
  }
  source_index_ = source_index;
}

std::uint32_t Train::room_for_run(std::size_t payload_bytes) const {
  const std::size_t bytes = wire::kBthBytes + payload_bytes + wire::kIcrcBytes;
  if (!fits(bytes) || (!empty() && bytes != segment_bytes_)) return 0;
  constexpr std::size_t kPiecesEach = 2;  // payload, and what stands between it and the next
  return static_cast<std::uint32_t>(std::min({std::size_t{limits_.max_datagrams} - datagrams_,
                                              (limits_.max_bytes - total_bytes_) / bytes,
                                              (limits_.max_pieces - pieces_.size() - 1) / kPiecesEach}));
}

std::byte* Train::next(std::size_t bytes) {
  VERBENA_ASSERT(arena_used_ + bytes <= arena_.size());
  return arena_.data() + arena_used_;
}

std::byte* Train::reserve(std::size_t bytes) {
  std::byte* const at = next(bytes);
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

bool Train::gather(std::span<const Piece> parts, std::uint32_t& crc) {
  for (const Piece& part : parts) {
    if (!fault_guard::run([&crc, &part] { crc = wire::icrc_extend(crc, {part.data, part.size}); })) return false;
    append_piece(part.data, part.size);
  }
  return true;
}

bool Train::copy(std::span<const Piece> parts, std::byte* to) {
  for (const Piece& part : parts) {
    if (!core::dma_read(to, {part.data, part.size})) return false;
    to += part.size;
  }
  return true;
}

bool Train::add(const wire::Packet& packet, std::span<const Piece> parts, std::size_t payload_bytes,
                Payload how) {
  const std::size_t header_bytes = packet.info().header_bytes;
  const std::size_t pad = packet.bth.pad_count;
  const std::size_t covered = header_bytes + payload_bytes + pad;
  const std::size_t bytes = covered + wire::kIcrcBytes;
  VERBENA_ASSERT(fits(bytes));
  if (gathers(payload_bytes, how)) return add_gathered(packet, parts, bytes);
  std::byte* const frame = next(bytes);
  if (!copy(parts, frame + header_bytes)) return false;
  wire::emit_headers(packet, {frame, header_bytes});
  std::memset(frame + covered - pad, 0, pad);
  make_icrc();
  leave_icrc_open({frame, bytes});
  reserve(bytes);
  count_datagram(bytes);
  return true;
}

bool Train::add_next(const Piece& payload) {
  const std::span<const std::byte> last = open_;
  const std::size_t pad = wire::pad_count_for(payload.size);
  VERBENA_ASSERT(last.size() == wire::kBthBytes + payload.size + pad + wire::kIcrcBytes);
  if (!fits(last.size())) return false;
  std::byte* const frame = next(last.size());
  if (!core::dma_read(frame + wire::kBthBytes, {payload.data, payload.size})) return false;
  wire::emit_next_bth(last.first<wire::kBthBytes>(), std::span<std::byte, wire::kBthBytes>{frame, wire::kBthBytes});
  if (pad != 0) std::memset(frame + last.size() - wire::kIcrcBytes - pad, 0, pad);
  make_icrc();
  leave_icrc_open({frame, last.size()});
  arena_used_ += last.size();
  pieces_.back().size += last.size();  // which ends where the arena is used to
  total_bytes_ += last.size();
  ++datagrams_;
  return true;
}

void Train::leave_icrc_open(std::span<std::byte> datagram) {
  open_ = datagram;
  open_index_ = static_cast<std::uint16_t>(datagrams_);
}

void Train::make_icrc() {
  if (open_.empty()) return;
  const std::size_t covered = open_.size() - wire::kIcrcBytes;
  wire::store_icrc(&open_[covered], icrc_start_.over(open_index_, open_.size(), open_.first(covered)));
  open_ = {};
}

bool Train::add_gathered(const wire::Packet& packet, std::span<const Piece> parts, std::size_t bytes) {
  const std::size_t header_bytes = packet.info().header_bytes;
  const std::size_t pad = packet.bth.pad_count;
  const Mark before = mark();
  std::byte* const header = reserve(header_bytes);
  wire::emit_headers(packet, {header, header_bytes});
  std::uint32_t crc = icrc_start_.over(static_cast<std::uint16_t>(datagrams_), bytes, {header, header_bytes});
  if (!gather(parts, crc)) {
    return_to(before);
    return false;
  }
  std::byte* const trailer = reserve(pad + wire::kIcrcBytes);
  std::memset(trailer, 0, pad);
  wire::store_icrc(trailer + pad, wire::icrc_extend(crc, {trailer, pad}));
  count_datagram(bytes);
  return true;
}

void Train::count_datagram(std::size_t bytes) {
  if (empty())
    segment_bytes_ = bytes;
  else if (bytes < segment_bytes_)
    closed_ = true;
  ++datagrams_;
  total_bytes_ += bytes;
}

bool Train::add_run(const wire::Bth& bth, const std::byte* data, std::size_t payload_bytes, std::uint32_t count,
                    Payload how) {
  VERBENA_ASSERT(count != 0 && count <= room_for_run(payload_bytes));
  make_icrc();  // of another; what is open below is of this run
  const std::size_t covered = wire::kBthBytes + payload_bytes;
  const std::size_t bytes = covered + wire::kIcrcBytes;
  const bool apart = gathers(payload_bytes, how);
  const Mark before = mark();
  const std::uint32_t datagrams = datagrams_;
  wire::Bth header = bth;
  for (std::uint32_t i = 0; i < count; ++i, ++header.psn, data += payload_bytes) {
    std::byte* const frame = reserve(apart ? wire::kBthBytes : bytes);
    wire::emit_bth(header, std::span<std::byte, wire::kBthBytes>{frame, wire::kBthBytes});
    const Piece piece{data, payload_bytes};
    std::uint32_t crc = 0;
    if (apart) crc = icrc_start_.over(static_cast<std::uint16_t>(datagrams_), bytes, {frame, wire::kBthBytes});
    if (!(apart ? gather({&piece, 1}, crc) : copy({&piece, 1}, frame + wire::kBthBytes))) {
      total_bytes_ -= bytes * (datagrams_ - datagrams);
      datagrams_ = datagrams;
      return_to(before);
      open_ = {};
      return false;
    }
    if (apart) {
      wire::store_icrc(reserve(wire::kIcrcBytes), crc);
    } else {
      make_icrc();
      leave_icrc_open({frame, bytes});
    }
    count_datagram(bytes);
  }
  return true;
}

void Train::flatten(std::uint32_t index, std::vector<std::byte>& out) const {
  VERBENA_ASSERT(index < datagrams_ && open_.empty());
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
