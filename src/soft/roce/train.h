// SPDX-License-Identifier: Apache-2.0
// A train: datagrams of one queue pair to one peer, equally long but for a shorter last, ready for one
// segmented send. Identification i belongs to the i-th datagram, and its ICRC says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/core/pieces.h"
#include "soft/wire/icrc.h"
#include "soft/wire/packet.h"

namespace verbena::roce {

struct TrainLimits {
  std::uint32_t max_datagrams = 64;        // segments the kernel takes; 1 disables trains
  std::uint32_t max_bytes = 65000;         // sum of all datagrams
  std::uint32_t gather_from_bytes = 2048;  // payloads at least this long are gathered, shorter ones copied
  std::uint32_t max_pieces = 1024;         // what one send takes
};

// All pieces of a train, one after the other, are the datagrams back to back.
using core::Piece;

// One object, filled and sent again and again; no allocation after construction.
class Train {
 public:
  explicit Train(const TrainLimits& limits);

  void clear();
  bool empty() const { return datagrams_ == 0; }
  std::uint32_t datagrams() const { return datagrams_; }
  // Every datagram but the last is this long.
  std::size_t segment_bytes() const { return segment_bytes_; }
  std::size_t total_bytes() const { return total_bytes_; }
  const wire::Path& path() const { return path_; }
  // Index into NicConfig::source_ports of path().source_port.
  std::uint32_t source_index() const { return source_index_; }
  // Gathered pieces point into application memory: send before the next call into the device. Behind finish() only.
  std::span<const Piece> pieces() const {
    VERBENA_ASSERT(open_.empty());
    return pieces_;
  }
  // Nothing more is added.
  void finish() { make_icrc(); }

  // The i-th datagram, copied flat into `out`: for simulators, captures and tests.
  void flatten(std::uint32_t index, std::vector<std::byte>& out) const;

  // `icrc_start`: IcrcStart(path), which takes longer than a short packet's own sum.
  void set_path(const wire::Path& path, const wire::IcrcStart& icrc_start, std::uint32_t source_index);
  // From the next train on. At most what it was made with.
  void limit_datagrams(std::uint32_t most);
  // Whether one more datagram of that many bytes may join.
  bool fits(std::size_t bytes) const {
    if (empty()) return true;
    return !closed_ && bytes <= segment_bytes_ && datagrams_ < limits_.max_datagrams &&
           total_bytes_ + bytes <= limits_.max_bytes &&
           pieces_.size() + max_pieces_per_packet() <= limits_.max_pieces;
  }
  // How many packets of add_run() may join, of all that are equally long.
  std::uint32_t room_for_run(std::size_t payload_bytes) const;
  enum class Payload { Copy, Gather };
  // Adds a packet: headers from `packet` (payload member ignored), payload from `parts`.
  // Copy is chosen by the caller where memory may change between two looks (READ responses, retransmissions).
  // False when the memory of `parts` is not there any more: then nothing was added.
  [[nodiscard]] bool add(const wire::Packet& packet, std::span<const Piece> parts, std::size_t payload_bytes,
                         Payload how);
  // The same for a packet like the last, which was copied and is a BTH and payload: with the number after its, and this
  // payload, as long. False too where it does not fit.
  [[nodiscard]] bool add_next(const Piece& payload);
  // Adds `count` packets that are a BTH and payload each, up to room_for_run(): the first as `bth` says, the others
  // with the numbers after its; the payload from `data` on. False as add().
  [[nodiscard]] bool add_run(const wire::Bth& bth, const std::byte* data, std::size_t payload_bytes,
                             std::uint32_t count, Payload how);

 private:
  // Pieces one packet may add: header, a payload piece per segment, trailer.
  static constexpr std::size_t max_pieces_per_packet() { return 34; }
  // Where the next bytes of the arena will be; they become a part of the train by reserve().
  std::byte* next(std::size_t bytes);
  std::byte* reserve(std::size_t bytes);
  bool add_gathered(const wire::Packet& packet, std::span<const Piece> parts, std::size_t bytes);
  bool gather(std::span<const Piece> parts, std::uint32_t& crc);
  static bool copy(std::span<const Piece> parts, std::byte* to);
  // What was copied is summed when the next has been: who reads bytes that are just written waits for them.
  void make_icrc();
  void leave_icrc_open(std::span<std::byte> datagram);
  // How it stood before a packet that could not be added.
  struct Mark {
    std::size_t arena_used, pieces, last_piece_bytes;
  };
  Mark mark() const { return {arena_used_, pieces_.size(), pieces_.empty() ? 0 : pieces_.back().size}; }
  void return_to(const Mark& mark);
  void append_piece(const std::byte* data, std::size_t size);
  bool gathers(std::size_t payload_bytes, Payload how) const {
    return how == Payload::Gather && payload_bytes >= limits_.gather_from_bytes;
  }
  void count_datagram(std::size_t bytes);

  TrainLimits limits_;
  wire::Path path_;
  wire::IcrcStart icrc_start_{path_};
  std::uint32_t source_index_ = 0;
  std::uint32_t datagrams_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t total_bytes_ = 0;
  bool closed_ = false;  // a shorter datagram was added: it is the last
  std::span<std::byte> open_;  // the last datagram, where its ICRC is still to be made
  std::uint16_t open_index_ = 0;
  std::vector<std::byte> arena_;
  std::size_t arena_used_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace verbena::roce
