// SPDX-License-Identifier: Apache-2.0
// What the records of a ring say: work requests of one queue pair and the answers to the other's. Fields are
// little-endian; what a drawing calls 0 must be zero. The head of a record is read out of shared memory once and
// checked as a whole: what comes out of parse is private and holds the rules below. Payload stays where it is, and is
// moved once.
//
//   request        0 number (4)  4 flags (1)  5 placement (1)  6 acknowledged or 0 (2)  8 length (4)
//                  12 immediate or 0 (4)
//     WRITE, READ, atomics:     16 remote address (8)  24 R_Key (4)  28 0 (4)
//     atomics:                  32 compare or 0 (8)  40 swap or add (8)
//     then all or the beginning of the payload, or 1 to 4 pieces that name as much
//   continuation   0 number (4)  4 0 (1)  5 placement (1)  6 0 (2), then more payload of that request, or pieces
//   response       0 number (4)  4 code (1)  5 placement (1)  6 0 (2)
//     atomic result:             8 the value before (8)
//     READ data:                 then payload, none in answer to a READ of nothing, or 1 to 4 pieces
//   piece          0 segment; in own memory the R_Key of the region there, which the peer may map, or 0 (4)
//                  4 bytes (4)  8 offset or address (8)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbena/base/verbs.h"

namespace verbena::local {

inline constexpr std::uint32_t kMaxMessageBytes = 1u << 31;
inline constexpr std::size_t kMaxPieces = 4;
inline constexpr std::uint32_t kMaxPulledBytes = 256 * 1024;  // that one record may name in own memory

enum class RecordKind : std::uint16_t {  // of the ring; 0 is padding
  RdmaWrite = 1,                         // a request: 1 + SendOpcode
  RdmaWriteWithImmediate = 2,
  Send = 3,
  SendWithImmediate = 4,
  RdmaRead = 5,
  CompareAndSwap = 6,
  FetchAndAdd = 7,
  Continuation = 8,
  Acknowledge = 16,  // this request and all before it are done
  NotReady = 17,     // no receive there; code: the timer's, 0 to 31
  Refuse = 18,       // code: a Refusal
  ReadData = 19,     // the next bytes of a READ
  AtomicResult = 20,
};
enum class RecordClass : std::uint8_t { Unknown, Request, Continuation, Response };
RecordClass class_of(std::uint16_t kind);

// Where the payload lies.
enum class Placement : std::uint8_t {
  InRecord = 0,
  InSegment = 1,  // in memory the sender shares
  InMemory = 2,   // in the sender's own memory, to be pulled
};

// The numbers are RoCE's NAK codes without their class.
enum class Refusal : std::uint8_t { InvalidRequest = 1, RemoteAccess = 2, RemoteOperation = 3 };

struct Piece {
  std::uint32_t within = 0;  // segment or R_Key
  std::uint32_t bytes = 0;
  std::uint64_t address = 0;

  bool operator==(const Piece&) const = default;
};

struct PieceSet {
  std::array<Piece, kMaxPieces> pieces{};
  std::uint8_t count = 0;

  std::uint64_t bytes() const;
  bool operator==(const PieceSet&) const = default;
};

struct RequestHead {
  SendOpcode opcode = SendOpcode::Send;
  bool solicited = false;
  bool acknowledges = false;          // it says in passing what else an Acknowledge would
  std::uint16_t acknowledged = 0;     // then: the lower half of the number
  Placement placement = Placement::InRecord;
  std::uint32_t number = 0;          // one more for each request, modulo 2^32
  std::uint32_t length = 0;          // of the message; of READ what is asked for; of atomics 8
  std::uint32_t payload_bytes = 0;   // in this record; the rest of `length` follows in continuations
  std::uint32_t payload_offset = 0;  // of these, from the beginning of the record
  std::array<std::byte, 4> immediate{};
  std::uint64_t remote_address = 0;
  RKey rkey;
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;

  bool operator==(const RequestHead&) const = default;
};

struct Request : RequestHead {
  PieceSet pieces;

  bool operator==(const Request&) const = default;
};

struct Continuation {
  std::uint32_t number = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_offset = 0;
  Placement placement = Placement::InRecord;
  PieceSet pieces{};

  bool operator==(const Continuation&) const = default;
};

struct Response {
  RecordKind kind = RecordKind::Acknowledge;
  Placement placement = Placement::InRecord;
  std::uint8_t code = 0;
  std::uint32_t number = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_offset = 0;
  std::uint64_t value = 0;
  PieceSet pieces;

  bool operator==(const Response&) const = default;
};

constexpr bool is_atomic(SendOpcode opcode) { return opcode >= SendOpcode::CompareAndSwap; }
constexpr bool carries_payload(SendOpcode opcode) { return opcode < SendOpcode::RdmaRead; }

// `record`: shared memory, 8-byte aligned, there up to the next multiple of 8, as a ring showed it with a kind of that
// class. False or nothing when a rule is broken: no honest peer writes that. `request` and `response` are written in
// place, pieces up to their count.
bool parse(std::uint16_t kind, std::span<const std::byte> record, Request& request);
bool parse(std::uint16_t kind, std::span<const std::byte> record, Response& response);
std::optional<Continuation> parse_continuation(std::span<const std::byte> record);

// Everything but the payload, which the caller puts behind it. `to` is written, never read.
RecordKind kind_of(SendOpcode opcode);
inline RecordKind kind_of(const Request& request) { return kind_of(request.opcode); }
std::uint32_t head_bytes(SendOpcode opcode);  // of a request without pieces
std::uint32_t head_bytes(const Request& request);
std::uint32_t head_bytes(const Response& response);
inline constexpr std::uint32_t kPieceBytes = 16;
inline constexpr std::uint32_t kContinuationHeadBytes = 8;
void emit(const RequestHead& request, std::byte* to);  // without pieces
void emit(const Request& request, std::byte* to);
void emit(const Continuation& continuation, std::byte* to);
void emit(const Response& response, std::byte* to);

}  // namespace verbena::local
