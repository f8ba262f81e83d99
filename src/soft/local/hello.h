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
// The segment: a line pair for each side's wake word and, on the second line, its pull words; another for its
// claim; its grants; the ring towards the receiver; the ring towards the sender.
//
// Who wants to reach a region of its peer by itself asks on a socket of its own:
//
//     0  "VRBNWANT"           8  version (4)          12  R_Key (4)
//    16  GID of who asks (16)                         32  GID of the region's owner (16)
//    48  QPN of who asks (4)                          52  QPN of the owner (4)
//
// and is answered, with the descriptor of a file that holds the region from its beginning where there is one:
//
//     0  "VRBNLEND"           8  version (4)          12  R_Key (4)
//    16  slot of the grant (4)                        20  access bits, 0: it may not (4)
//    24  first address of the region (8)              32  its length (8)
//    40  where it lies in the owner's memory (8)
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
#include "verbena/base/verbs.h"

namespace verbena::local {

inline constexpr std::size_t kHelloBytes = 72;
inline constexpr std::uint32_t kVersion = 6;
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
  std::uint64_t opener_claim = 0;
  std::uint64_t acceptor_claim = 0;
  std::uint64_t opener_grants = 0;
  std::uint64_t acceptor_grants = 0;
  std::uint64_t opener_ring = 0;    // the opener produces
  std::uint64_t acceptor_ring = 0;  // the acceptor produces
  std::uint64_t bytes = 0;          // whole pages
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

inline constexpr std::size_t kWantBytes = 56;

struct Want {
  Endpoint from, to;
  RKey rkey;

  bool operator==(const Want&) const = default;
};

void emit(const Want& want, std::span<std::byte, kWantBytes> to);
bool is_want(std::span<const std::byte> bytes);
// Errors: ProtocolError.
Result<Want> parse_want(std::span<const std::byte> bytes);

inline constexpr std::size_t kLendBytes = 48;

struct Lend {
  RKey rkey;
  std::uint32_t slot = 0;
  Access access = Access::None;  // none: it may not be reached
  std::uint64_t iova = 0, length = 0, address = 0;

  bool operator==(const Lend&) const = default;
};

void emit(const Lend& lend, std::span<std::byte, kLendBytes> to);
// Errors: ProtocolError (not that; what no owner could grant).
Result<Lend> parse_lend(std::span<const std::byte> bytes);

}  // namespace verbena::local
