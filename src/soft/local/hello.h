// SPDX-License-Identifier: Apache-2.0
// The first message between two processes that want to share memory, with the descriptor of a segment beside it.
// Little-endian, as all that never leaves the host.
//
//     0  "VRBNLOCL"
//     8  version (4)          12  bytes of this message (4)
//    16  bytes of the segment (8)
//    24  capacity of each ring (4)   28  zero (4)
//    32  GID of the sender's queue pair (16)
//    48  GID of the queue pair it is meant for (16)
//    64  QPN of the sender's (4)     68  QPN of the other (4)
//
// The answer: "VRBNANSW", version (4), one of Answer (4). What follows on the socket are signals, a byte each.
//
// The segment: a line pair for each side's wake word and, on the second line, its pull words; the ring towards the
// receiver; the ring towards the sender.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/local/ring_memory.h"
#include "verbena/base/gid.h"
#include "verbena/base/ids.h"
#include "verbena/base/result.h"

namespace verbena::local {

inline constexpr std::size_t kHelloBytes = 72;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMaxRingCapacity = 1 << 20;

// A queue pair on this host.
struct Endpoint {
  Gid gid;
  Qpn qpn;

  auto operator<=>(const Endpoint&) const = default;
};

struct Hello {
  std::uint32_t ring_capacity = 0;
  Endpoint from;
  Endpoint to;

  bool operator==(const Hello&) const = default;
};

// Where everything lies in a segment, from its beginning.
struct SegmentLayout {
  std::uint64_t opener_wake = 0;     // written by who sent the hello
  std::uint64_t acceptor_wake = 0;   // written by who took it
  std::uint64_t opener_pull = 0;
  std::uint64_t acceptor_pull = 0;
  std::uint64_t opener_ring = 0;     // the opener produces
  std::uint64_t acceptor_ring = 0;   // the acceptor produces
  std::uint64_t bytes = 0;           // whole pages
};
SegmentLayout layout_of(std::uint32_t ring_capacity);

void emit(const Hello& hello, std::span<std::byte, kHelloBytes> to);
// Errors: ProtocolError (not a hello; sizes that do not go together), NotSupported (another version). The text says
// which, and what to do.
Result<Hello> parse_hello(std::span<const std::byte> bytes);

inline constexpr std::size_t kAnswerBytes = 16;

// What the receiver of a hello says to it.
enum class Answer : std::uint32_t {
  Accept = 1,   // the segment is mapped: both ends use it from now on
  Roce = 2,     // that queue pair sends packets already, or must
  Unknown = 3,  // there is no such queue pair, or it is connected to another
  Crossed = 4,  // a hello of that queue pair's own is on its way, and is the one that counts
};

void emit(Answer answer, std::span<std::byte, kAnswerBytes> to);
// Errors: ProtocolError.
Result<Answer> parse_answer(std::span<const std::byte> bytes);

}  // namespace verbena::local
