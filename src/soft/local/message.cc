// SPDX-License-Identifier: Apache-2.0
#include "soft/local/message.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/assert.h"

namespace verbena::local {

namespace {

constexpr std::uint32_t kRequestBytes = 16, kRemoteBytes = 16, kAtomicBytes = 16;
constexpr std::uint32_t kResponseBytes = 8, kResultBytes = 8, kPieceBytes = 16;
constexpr std::uint32_t kMaxHeadBytes = kRequestBytes + kRemoteBytes + kAtomicBytes + kMaxPieces * kPieceBytes;
constexpr std::uint8_t kSolicited = 1;

// The beginning of a record, private. Each word of shared memory is loaded once; without atomics the compiler might
// look there again.
class Head {
 public:
  explicit Head(std::span<const std::byte> record) {
    const std::size_t words = std::min<std::size_t>((record.size() + 7) / 8, words_.size());
    auto* const from = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(record.data()));
    for (std::size_t i = 0; i < words; ++i)
      words_[i] = std::atomic_ref<std::uint64_t>(from[i]).load(std::memory_order_relaxed);
  }

  template <class T>
  T at(std::size_t offset) const {
    T value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(words_.data()) + offset, sizeof value);
    return value;
  }

 private:
  std::array<std::uint64_t, kMaxHeadBytes / 8> words_{};
};

class Writer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(bytes_.data() + count_, &value, sizeof value);
    count_ += sizeof value;
  }
  void put(const PieceSet& set) {
    for (std::size_t i = 0; i < set.count; ++i) {
      put(set.pieces[i].segment);
      put(set.pieces[i].bytes);
      put(set.pieces[i].address);
    }
  }
  void copy_to(std::byte* to) const { std::memcpy(to, bytes_.data(), count_); }

 private:
  std::array<std::byte, kMaxHeadBytes> bytes_;
  std::size_t count_ = 0;
};

bool is_known(std::uint8_t placement) { return placement <= static_cast<std::uint8_t>(Placement::InMemory); }
bool is_write(SendOpcode opcode) {
  return opcode == SendOpcode::RdmaWrite || opcode == SendOpcode::RdmaWriteWithImmediate;
}
bool is_atomic(SendOpcode opcode) { return opcode >= SendOpcode::CompareAndSwap; }
bool has_immediate(SendOpcode opcode) {
  return opcode == SendOpcode::SendWithImmediate || opcode == SendOpcode::RdmaWriteWithImmediate;
}
bool has_remote(SendOpcode opcode) { return is_write(opcode) || opcode >= SendOpcode::RdmaRead; }
bool carries_payload(SendOpcode opcode) { return opcode < SendOpcode::RdmaRead; }
// It takes a receive there, which can be solicited.
bool takes_receive(SendOpcode opcode) { return opcode != SendOpcode::RdmaWrite && carries_payload(opcode); }

// Bytes before payload or pieces.
std::uint32_t fixed_bytes(SendOpcode opcode) {
  return kRequestBytes + (has_remote(opcode) ? kRemoteBytes : 0) + (is_atomic(opcode) ? kAtomicBytes : 0);
}

bool parse_piece(const Head& head, std::size_t at, Placement placement, Piece& piece) {
  piece = {head.at<std::uint32_t>(at), head.at<std::uint32_t>(at + 4), head.at<std::uint64_t>(at + 8)};
  if (piece.bytes == 0 || piece.bytes > kMaxMessageBytes) return false;
  if (placement == Placement::InMemory && piece.segment != 0) return false;
  return piece.address <= ~std::uint64_t{0} - piece.bytes;
}

bool parse_pieces(const Head& head, std::size_t from, std::size_t bytes, Placement placement, PieceSet& set) {
  if (bytes == 0 || bytes % kPieceBytes != 0 || bytes > kMaxPieces * kPieceBytes) return false;
  set.count = static_cast<std::uint8_t>(bytes / kPieceBytes);
  for (std::size_t i = 0; i < set.count; ++i)
    if (!parse_piece(head, from + i * kPieceBytes, placement, set.pieces[i])) return false;
  return set.bytes() <= kMaxMessageBytes;
}

// What follows the fixed part of a request of `bytes` bytes.
bool parse_rest(const Head& head, std::uint32_t bytes, Request& request) {
  const std::uint32_t fixed = fixed_bytes(request.opcode), rest = bytes - fixed;
  if (!carries_payload(request.opcode)) return rest == 0 && request.placement == Placement::InRecord;
  if (request.placement != Placement::InRecord)
    return parse_pieces(head, fixed, rest, request.placement, request.pieces) &&
           request.pieces.bytes() == request.length;
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
  if (response.kind == RecordKind::ReadData) {
    if (response.placement != Placement::InRecord)
      return parse_pieces(head, kResponseBytes, rest, response.placement, response.pieces);
    response.payload_bytes = rest;
    response.payload_offset = kResponseBytes;
    return true;
  }
  if (response.placement != Placement::InRecord) return false;
  if (response.kind != RecordKind::AtomicResult) return rest == 0;
  response.value = head.at<std::uint64_t>(kResponseBytes);
  return rest == kResultBytes;
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

std::optional<Request> parse_request(std::uint16_t kind, std::span<const std::byte> record) {
  VERBENA_ASSERT(class_of(kind) == RecordClass::Request);
  Request request;
  request.opcode = static_cast<SendOpcode>(kind - 1);
  if (record.size() < fixed_bytes(request.opcode)) return std::nullopt;
  const Head head(record);
  const auto flags = head.at<std::uint8_t>(4), placement = head.at<std::uint8_t>(5);
  if (flags > kSolicited || !is_known(placement) || head.at<std::uint16_t>(6) != 0) return std::nullopt;
  request.number = head.at<std::uint32_t>(0);
  request.solicited = flags == kSolicited;
  request.placement = static_cast<Placement>(placement);
  request.length = head.at<std::uint32_t>(8);
  request.immediate = head.at<std::array<std::byte, 4>>(12);
  if (request.solicited && !takes_receive(request.opcode)) return std::nullopt;
  if (!has_immediate(request.opcode) && head.at<std::uint32_t>(12) != 0) return std::nullopt;
  if (request.length > kMaxMessageBytes) return std::nullopt;
  if (has_remote(request.opcode)) {
    request.remote_address = head.at<std::uint64_t>(16);
    request.rkey = Key{head.at<std::uint32_t>(24)};
    if (head.at<std::uint32_t>(28) != 0) return std::nullopt;
  }
  if (is_atomic(request.opcode)) {
    request.compare = head.at<std::uint64_t>(32);
    request.swap_or_add = head.at<std::uint64_t>(40);
    if (request.length != 8) return std::nullopt;
    if (request.opcode == SendOpcode::FetchAndAdd && request.compare != 0) return std::nullopt;
  }
  if (!parse_rest(head, static_cast<std::uint32_t>(record.size()), request)) return std::nullopt;
  return request;
}

std::optional<Continuation> parse_continuation(std::span<const std::byte> record) {
  if (record.size() <= kContinuationHeadBytes) return std::nullopt;
  const Head head(record.first(kContinuationHeadBytes));
  if (head.at<std::uint32_t>(4) != 0) return std::nullopt;
  return Continuation{head.at<std::uint32_t>(0), static_cast<std::uint32_t>(record.size()) - kContinuationHeadBytes,
                      kContinuationHeadBytes};
}

std::optional<Response> parse_response(std::uint16_t kind, std::span<const std::byte> record) {
  VERBENA_ASSERT(class_of(kind) == RecordClass::Response);
  if (record.size() < kResponseBytes) return std::nullopt;
  const Head head(record);
  const auto placement = head.at<std::uint8_t>(5);
  Response response;
  response.kind = static_cast<RecordKind>(kind);
  response.code = head.at<std::uint8_t>(4);
  if (!is_code(response.kind, response.code) || !is_known(placement) || head.at<std::uint16_t>(6) != 0)
    return std::nullopt;
  response.number = head.at<std::uint32_t>(0);
  response.placement = static_cast<Placement>(placement);
  if (!parse_rest(head, static_cast<std::uint32_t>(record.size()) - kResponseBytes, response)) return std::nullopt;
  return response;
}

RecordKind kind_of(const Request& request) {
  return static_cast<RecordKind>(static_cast<std::uint16_t>(request.opcode) + 1);
}

std::uint32_t head_bytes(const Request& request) {
  return fixed_bytes(request.opcode) + request.pieces.count * kPieceBytes;
}

std::uint32_t head_bytes(const Response& response) {
  return kResponseBytes + (response.kind == RecordKind::AtomicResult ? kResultBytes : 0) +
         response.pieces.count * kPieceBytes;
}

void emit(const Request& request, std::byte* to) {
  Writer writer;
  writer.put(request.number);
  writer.put(static_cast<std::uint8_t>(request.solicited ? kSolicited : 0));
  writer.put(static_cast<std::uint8_t>(request.placement));
  writer.put(std::uint16_t{0});
  writer.put(request.length);
  writer.put(request.immediate);
  if (has_remote(request.opcode)) {
    writer.put(request.remote_address);
    writer.put(request.rkey.value());
    writer.put(std::uint32_t{0});
  }
  if (is_atomic(request.opcode)) {
    writer.put(request.compare);
    writer.put(request.swap_or_add);
  }
  writer.put(request.pieces);
  writer.copy_to(to);
}

void emit(const Continuation& continuation, std::byte* to) {
  Writer writer;
  writer.put(continuation.number);
  writer.put(std::uint32_t{0});
  writer.copy_to(to);
}

void emit(const Response& response, std::byte* to) {
  Writer writer;
  writer.put(response.number);
  writer.put(response.code);
  writer.put(static_cast<std::uint8_t>(response.placement));
  writer.put(std::uint16_t{0});
  if (response.kind == RecordKind::AtomicResult) writer.put(response.value);
  writer.put(response.pieces);
  writer.copy_to(to);
}

}  // namespace verbena::local
