// SPDX-License-Identifier: Apache-2.0
#include "soft/local/message.h"

#include <atomic>
#include <bit>
#include <cstring>

#include "base/assert.h"

namespace verbena::local {

namespace {

constexpr std::uint32_t kRequestBytes = 16, kRemoteBytes = 16, kAtomicBytes = 16;
constexpr std::uint32_t kResponseBytes = 8, kResultBytes = 8;
constexpr std::uint8_t kSolicited = 1, kAcknowledges = 2;

// The beginning of a record. Each word of shared memory is loaded at most once: the caller keeps what it got.
class Head {
 public:
  explicit Head(std::span<const std::byte> record)
      : words_(reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(record.data()))) {}

  std::uint64_t word(std::size_t index) const {
    return std::atomic_ref<std::uint64_t>(words_[index]).load(std::memory_order_relaxed);
  }

 private:
  std::uint64_t* words_;
};

constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::uint64_t joined(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  void put(std::uint64_t word) {
    std::memcpy(to_, &word, sizeof word);
    to_ += sizeof word;
  }
  void put(const PieceSet& set) {
    for (std::size_t i = 0; i < set.count; ++i) {
      put(joined(set.pieces[i].within, set.pieces[i].bytes));
      put(set.pieces[i].address);
    }
  }

 private:
  std::byte* to_;
};

// The second half of the first word: flags or code, placement, what a request acknowledges.
constexpr std::uint32_t details(std::uint8_t first, Placement placement, std::uint16_t last = 0) {
  return std::uint32_t{first} | static_cast<std::uint32_t>(placement) << 8 | std::uint32_t{last} << 16;
}
constexpr std::uint8_t first_of(std::uint32_t details) { return static_cast<std::uint8_t>(details); }
constexpr std::uint8_t placement_of(std::uint32_t details) { return static_cast<std::uint8_t>(details >> 8); }
constexpr std::uint16_t last_of(std::uint32_t details) { return static_cast<std::uint16_t>(details >> 16); }

bool is_known(std::uint8_t placement) { return placement <= static_cast<std::uint8_t>(Placement::InMemory); }
bool is_write(SendOpcode opcode) {
  return opcode == SendOpcode::RdmaWrite || opcode == SendOpcode::RdmaWriteWithImmediate;
}
bool has_immediate(SendOpcode opcode) {
  return opcode == SendOpcode::SendWithImmediate || opcode == SendOpcode::RdmaWriteWithImmediate;
}
bool has_remote(SendOpcode opcode) { return is_write(opcode) || opcode >= SendOpcode::RdmaRead; }
// It takes a receive there, which can be solicited.
bool takes_receive(SendOpcode opcode) { return opcode != SendOpcode::RdmaWrite && carries_payload(opcode); }

// Bytes before payload or pieces.
std::uint32_t fixed_bytes(SendOpcode opcode) {
  return kRequestBytes + (has_remote(opcode) ? kRemoteBytes : 0) + (is_atomic(opcode) ? kAtomicBytes : 0);
}

bool parse_piece(const Head& head, std::size_t at, Piece& piece) {
  const std::uint64_t word = head.word(at / 8);
  piece = {low(word), high(word), head.word(at / 8 + 1)};
  if (piece.bytes == 0 || piece.bytes > kMaxMessageBytes) return false;
  return piece.address <= ~std::uint64_t{0} - piece.bytes;
}

bool parse_pieces(const Head& head, std::size_t from, std::size_t bytes, Placement placement, PieceSet& set) {
  if (bytes == 0 || bytes % kPieceBytes != 0 || bytes > kMaxPieces * kPieceBytes) return false;
  set.count = static_cast<std::uint8_t>(bytes / kPieceBytes);
  for (std::size_t i = 0; i < set.count; ++i)
    if (!parse_piece(head, from + i * kPieceBytes, set.pieces[i])) return false;
  return set.bytes() <= (placement == Placement::InMemory ? kMaxPulledBytes : kMaxMessageBytes);
}

// What follows the fixed part of a request of `bytes` bytes.
bool parse_rest(const Head& head, std::uint32_t bytes, Request& request) {
  const std::uint32_t fixed = fixed_bytes(request.opcode), rest = bytes - fixed;
  request.payload_bytes = request.payload_offset = request.pieces.count = 0;
  if (!carries_payload(request.opcode)) return rest == 0 && request.placement == Placement::InRecord;
  if (request.placement != Placement::InRecord)
    return parse_pieces(head, fixed, rest, request.placement, request.pieces) &&
           request.pieces.bytes() <= request.length;
  request.payload_bytes = rest;
  request.payload_offset = fixed;
  return rest <= request.length && (rest != 0 || request.length == 0);
}

bool is_code(RecordKind kind, std::uint8_t code) {
  if (kind == RecordKind::NotReady) return code <= 31;
  if (kind == RecordKind::Refuse) return code >= 1 && code <= 3;
  return code == 0;
}

bool parse_rest(const Head& head, std::uint32_t rest, Response& response) {
  response.payload_bytes = response.payload_offset = response.pieces.count = 0;
  response.value = 0;
  if (response.kind == RecordKind::ReadData) {
    if (response.placement != Placement::InRecord)
      return parse_pieces(head, kResponseBytes, rest, response.placement, response.pieces);
    response.payload_bytes = rest;
    response.payload_offset = kResponseBytes;
    return true;
  }
  if (response.placement != Placement::InRecord) return false;
  if (response.kind != RecordKind::AtomicResult) return rest == 0;
  if (rest != kResultBytes) return false;
  response.value = head.word(kResponseBytes / 8);
  return true;
}

}  // namespace

std::uint64_t PieceSet::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += pieces[i].bytes;
  return sum;
}

RecordClass class_of(std::uint16_t kind) {
  if (kind >= static_cast<std::uint16_t>(RecordKind::RdmaWrite) &&
      kind <= static_cast<std::uint16_t>(RecordKind::FetchAndAdd))
    return RecordClass::Request;
  if (kind == static_cast<std::uint16_t>(RecordKind::Continuation)) return RecordClass::Continuation;
  if (kind >= static_cast<std::uint16_t>(RecordKind::Acknowledge) &&
      kind <= static_cast<std::uint16_t>(RecordKind::AtomicResult))
    return RecordClass::Response;
  return RecordClass::Unknown;
}

bool parse(std::uint16_t kind, std::span<const std::byte> record, Request& request) {
  VERBENA_ASSERT(class_of(kind) == RecordClass::Request);
  request.opcode = static_cast<SendOpcode>(kind - 1);
  if (record.size() < fixed_bytes(request.opcode)) return false;
  const Head head(record);
  const std::uint64_t first = head.word(0), second = head.word(1);
  const std::uint32_t rest = high(first);
  const std::uint8_t flags = first_of(rest), placement = placement_of(rest);
  if (flags > (kSolicited | kAcknowledges) || !is_known(placement)) return false;
  request.number = low(first);
  request.solicited = (flags & kSolicited) != 0;
  request.acknowledges = (flags & kAcknowledges) != 0;
  request.acknowledged = last_of(rest);
  if (!request.acknowledges && request.acknowledged != 0) return false;
  request.placement = static_cast<Placement>(placement);
  request.length = low(second);
  request.immediate = std::bit_cast<std::array<std::byte, 4>>(high(second));
  if (request.solicited && !takes_receive(request.opcode)) return false;
  if (!has_immediate(request.opcode) && high(second) != 0) return false;
  if (request.length > kMaxMessageBytes) return false;
  request.remote_address = request.compare = request.swap_or_add = 0;
  request.rkey = {};
  if (has_remote(request.opcode)) {
    request.remote_address = head.word(2);
    const std::uint64_t key = head.word(3);
    request.rkey = RKey{low(key)};
    if (high(key) != 0) return false;
  }
  if (is_atomic(request.opcode)) {
    request.compare = head.word(4);
    request.swap_or_add = head.word(5);
    if (request.length != 8) return false;
    if (request.opcode == SendOpcode::FetchAndAdd && request.compare != 0) return false;
  }
  return parse_rest(head, static_cast<std::uint32_t>(record.size()), request);
}

std::optional<Continuation> parse_continuation(std::span<const std::byte> record) {
  if (record.size() <= kContinuationHeadBytes) return std::nullopt;
  const Head head(record);
  const std::uint64_t word = head.word(0);
  const std::uint32_t rest = high(word), more = static_cast<std::uint32_t>(record.size()) - kContinuationHeadBytes;
  if (first_of(rest) != 0 || !is_known(placement_of(rest)) || last_of(rest) != 0) return std::nullopt;
  Continuation continuation;
  continuation.number = low(word);
  continuation.placement = static_cast<Placement>(placement_of(rest));
  if (continuation.placement == Placement::InRecord) {
    continuation.payload_bytes = more;
    continuation.payload_offset = kContinuationHeadBytes;
  } else if (!parse_pieces(head, kContinuationHeadBytes, more, continuation.placement, continuation.pieces)) {
    return std::nullopt;
  }
  return continuation;
}

bool parse(std::uint16_t kind, std::span<const std::byte> record, Response& response) {
  VERBENA_ASSERT(class_of(kind) == RecordClass::Response);
  if (record.size() < kResponseBytes) return false;
  const Head head(record);
  const std::uint64_t word = head.word(0);
  const std::uint32_t rest = high(word);
  response.kind = static_cast<RecordKind>(kind);
  response.code = first_of(rest);
  if (!is_code(response.kind, response.code) || !is_known(placement_of(rest)) || last_of(rest) != 0)
    return false;
  response.number = low(word);
  response.placement = static_cast<Placement>(placement_of(rest));
  return parse_rest(head, static_cast<std::uint32_t>(record.size()) - kResponseBytes, response);
}

RecordKind kind_of(SendOpcode opcode) {
  return static_cast<RecordKind>(static_cast<std::uint16_t>(opcode) + 1);
}

std::uint32_t head_bytes(SendOpcode opcode) { return fixed_bytes(opcode); }

std::uint32_t head_bytes(const Request& request) {
  return fixed_bytes(request.opcode) + request.pieces.count * kPieceBytes;
}

std::uint32_t head_bytes(const Response& response) {
  return kResponseBytes + (response.kind == RecordKind::AtomicResult ? kResultBytes : 0) +
         response.pieces.count * kPieceBytes;
}

void emit(const RequestHead& request, std::byte* to) {
  Writer writer(to);
  const int flags = (request.solicited ? kSolicited : 0) | (request.acknowledges ? kAcknowledges : 0);
  writer.put(joined(request.number,
                    details(static_cast<std::uint8_t>(flags), request.placement, request.acknowledged)));
  writer.put(joined(request.length, std::bit_cast<std::uint32_t>(request.immediate)));
  if (has_remote(request.opcode)) {
    writer.put(request.remote_address);
    writer.put(std::uint64_t{request.rkey.value()});
  }
  if (is_atomic(request.opcode)) {
    writer.put(request.compare);
    writer.put(request.swap_or_add);
  }
}

void emit(const Request& request, std::byte* to) {
  emit(static_cast<const RequestHead&>(request), to);
  Writer(to + fixed_bytes(request.opcode)).put(request.pieces);
}

void emit(const Continuation& continuation, std::byte* to) {
  Writer writer(to);
  writer.put(joined(continuation.number, details(0, continuation.placement)));
  writer.put(continuation.pieces);
}

void emit(const Response& response, std::byte* to) {
  Writer writer(to);
  writer.put(joined(response.number, details(response.code, response.placement)));
  if (response.kind == RecordKind::AtomicResult) writer.put(response.value);
  writer.put(response.pieces);
}

}  // namespace verbena::local
