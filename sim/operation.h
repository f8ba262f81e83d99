// SPDX-License-Identifier: Apache-2.0
// One posted send request as the reference model knows it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "soft/wire/aeth.h"
#include "verbena/base/verbs.h"

namespace verbena::sim {

inline constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::size_t kMaxModelSegments = 8;

// Why a request must fail.
enum class Defect : std::uint8_t {
  None,
  UnknownKey,
  StaleKey,       // of a region that was deregistered
  BeyondEnd,      // one byte behind the region
  BeforeStart,    // one byte before it
  NoPermission,   // the region does not grant this
  ForeignDomain,  // the region belongs to another protection domain
  Misaligned,     // atomic
  TooLong,        // for the receive that it meets
  BadReceive,     // the receive that it meets names no region
  BadLocalKey,
};

// What the request's remote side is.
enum class Place : std::uint8_t {
  None,
  Target,    // this direction's own memory: only its requests change it
  Stable,    // memory nobody changes
  Counter,   // a cell that several directions add to, each in bits of its own
  Register,  // a cell that several directions swap
};

struct Segment {
  std::uint32_t offset = 0;  // in the buffer ring
  std::uint32_t length = 0;
};

struct Operation {
  std::uint64_t serial = 0;  // of its content
  SendOpcode opcode = SendOpcode::Send;
  SendFlags flags = SendFlags::None;
  bool signaled = false;
  Defect defect = Defect::None;
  Place place = Place::None;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;  // in its place
  std::uint64_t remote_address = 0;
  RKey rkey;
  std::uint64_t compare = 0, swap_or_add = 0;
  std::array<std::byte, 4> immediate{};
  std::uint32_t segment_count = 0;
  std::array<Segment, kMaxModelSegments> segments{};
  std::uint64_t buffers_end = 0;  // mark in the buffer ring

  // Sequence numbers without wrap; see Flow.
  std::uint64_t first = 0;
  std::uint32_t packets = 1;
  std::uint64_t consumer = kNone;       // the how-manieth receive it takes
  bool started = false;                 // a packet of it was sent
  bool answered = false;                // READ, atomic: the last answer arrived
  bool delivered = false;               // a packet of it arrived
  std::uint64_t receives_seen = kNone;  // fewest receives posted when its receive was looked for

  std::vector<std::byte> expected;  // READ of the target: what stood there when its turn came
  std::uint64_t expected_value = 0;

  std::uint64_t end() const { return first + packets; }
  bool is_read() const { return opcode == SendOpcode::RdmaRead; }
  bool is_atomic() const { return opcode >= SendOpcode::CompareAndSwap; }
  bool is_fetch() const { return opcode >= SendOpcode::RdmaRead; }
  bool is_write() const {
    return opcode == SendOpcode::RdmaWrite || opcode == SendOpcode::RdmaWriteWithImmediate;
  }
  bool is_send() const { return opcode == SendOpcode::Send || opcode == SendOpcode::SendWithImmediate; }
  bool has_immediate() const {
    return opcode == SendOpcode::SendWithImmediate || opcode == SendOpcode::RdmaWriteWithImmediate;
  }
  bool takes_receive() const { return is_send() || opcode == SendOpcode::RdmaWriteWithImmediate; }
  bool changes_target() const { return place == Place::Target && (is_write() || is_atomic()); }
  bool covers(std::uint64_t at) const { return at >= offset && at - offset < length; }
};

// What the requester is told of a request with that defect.
CompletionStatus status_of(Defect defect);
// What the responder says on the wire; SequenceError stands for nothing.
wire::NakCode nak_of(Defect defect);
// The responder's queue pair goes to ERR.
inline bool kills_responder(Defect defect) { return defect != Defect::None && defect != Defect::BadLocalKey; }

}  // namespace verbena::sim
