// SPDX-License-Identifier: Apache-2.0
// The extended headers that follow the BTH, but for the AETH (aeth.h). Format reference 2.2.
// Parsers and emitters take a pointer to as many bytes as the header has: the opcode table has seen to it
// that they are there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "soft/wire/aeth.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

// RDMA extended transport header, 16 bytes: where a WRITE goes, where a READ comes from.
//
//    0                   1                   2                   3
//   +---------------------------------------------------------------+
//   |                       virtual address                         |
//   |                                                               |
//   +---------------------------------------------------------------+
//   |                             R_Key                             |
//   +---------------------------------------------------------------+
//   |                     length of the message                     |
//   +---------------------------------------------------------------+
struct Reth {
  std::uint64_t va = 0;
  RKey rkey;
  std::uint32_t length = 0;

  bool operator==(const Reth&) const = default;
};

// Atomic extended transport header, 28 bytes, packed.
//
//   +---------------------------------------------------------------+
//   |                       virtual address                         |
//   |                                                               |
//   +---------------------------------------------------------------+
//   |                             R_Key                             |
//   +---------------------------------------------------------------+
//   |            value to swap in (CAS) or to add (FA)              |
//   |                                                               |
//   +---------------------------------------------------------------+
//   |               value to compare with (FA: 0)                   |
//   |                                                               |
//   +---------------------------------------------------------------+
struct AtomicEth {
  std::uint64_t va = 0;
  RKey rkey;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;

  bool operator==(const AtomicEth&) const = default;
};

// Datagram extended transport header, 8 bytes: UD only.
//
//   +---------------------------------------------------------------+
//   |                             Q_Key                             |
//   +---------------+-----------------------------------------------+
//   |   reserved    |               source queue pair               |
//   +---------------+-----------------------------------------------+
struct Deth {
  std::uint32_t qkey = 0;
  std::uint8_t reserved = 0;
  Qpn source;

  bool operator==(const Deth&) const = default;
};

// FLUSH extended transport header, 4 bytes.
//
//   +-----------------------------------------------+---+---+-------+
//   |                   reserved                    |   |Sel| Type  |
//   +-----------------------------------------------+---+---+-------+
//
//   Sel 0 range, 1 memory region.  Type 1 global visibility, 2 persistence.
struct Feth {
  std::uint32_t value = 0;

  std::uint8_t placement_type() const { return value & 0xf; }
  std::uint8_t selectivity() const { return (value >> 4) & 3; }
  bool operator==(const Feth&) const = default;
};

// The headers with a single field need no type:
//   XRCETH        1 byte reserved, 3 bytes number of the shared receive queue
//   AtomicAckETH  8 bytes, the value before the atomic
//   ImmDt         4 bytes, opaque; verbs' network-order imm_data
//   IETH          4 bytes, the R_Key to invalidate

Reth parse_reth(const std::byte* from);
AtomicEth parse_atomic_eth(const std::byte* from);
Deth parse_deth(const std::byte* from);
Feth parse_feth(const std::byte* from);
Aeth parse_aeth(const std::byte* from);

void emit(const Reth& header, std::byte* to);
void emit(const AtomicEth& header, std::byte* to);
void emit(const Deth& header, std::byte* to);
void emit(const Feth& header, std::byte* to);
void emit(const Aeth& header, std::byte* to);

inline constexpr std::size_t kRethBytes = 16;
inline constexpr std::size_t kAtomicEthBytes = 28;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kFethBytes = 4;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kXrcethBytes = 4;
inline constexpr std::size_t kAtomicAckEthBytes = 8;
inline constexpr std::size_t kImmDtBytes = 4;
inline constexpr std::size_t kIethBytes = 4;

}  // namespace verbena::wire
