// SPDX-License-Identifier: Apache-2.0
// Whatever a local peer writes into a record: what is taken is in bounds, and written again it is the same bytes. The
// same for what is said by the socket. Byte 0 picks what the rest is.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/local/hello.h"
#include "soft/local/message.h"

namespace verbena::local {
namespace {

using Head = std::array<std::byte, 256>;

void check_again(std::span<const std::byte> record, const Head& again, std::size_t head, std::size_t payload) {
  VERBENA_ASSERT(head + payload == record.size() && head <= again.size());
  VERBENA_ASSERT(std::memcmp(record.data(), again.data(), head) == 0);
}

void fuzz_record(std::uint16_t kind, std::span<const std::byte> record) {
  Head again{};
  switch (class_of(kind)) {
    case RecordClass::Unknown:
      break;
    case RecordClass::Request:
      if (Request request; parse(kind, record, request)) {
        emit(request, again.data());
        VERBENA_ASSERT(static_cast<std::uint16_t>(kind_of(request)) == kind);
        VERBENA_ASSERT(request.length <= kMaxMessageBytes && request.payload_bytes <= request.length);
        check_again(record, again, head_bytes(request), request.payload_bytes);
      }
      break;
    case RecordClass::Continuation:
      if (const auto more = parse_continuation(record)) {
        emit(*more, again.data());
        const auto head = kContinuationHeadBytes + more->pieces.count * kPieceBytes;
        check_again(record, again, head, more->payload_bytes);
      }
      break;
    case RecordClass::Response:
      if (Response response; parse(kind, record, response)) {
        emit(response, again.data());
        VERBENA_ASSERT(response.pieces.bytes() <= kMaxMessageBytes);
        check_again(record, again, head_bytes(response), response.payload_bytes);
      }
      break;
  }
}

template <std::size_t kBytes, class T>
void check_same(const Result<T>& taken, std::span<const std::byte> bytes) {
  VERBENA_ASSERT(taken || !taken.error().to_string().empty());
  if (!taken) return;
  std::array<std::byte, kBytes> again;
  emit(*taken, again);
  VERBENA_ASSERT(bytes.size() == again.size() && std::memcmp(bytes.data(), again.data(), again.size()) == 0);
}

// What processes say by their socket.
void fuzz_said(std::span<const std::byte> bytes) {
  check_same<kHelloBytes>(parse_hello(bytes), bytes);
  check_same<kAnswerBytes>(parse_answer(bytes), bytes);
  check_same<kLendBytes>(parse_lend(bytes), bytes);
  const auto want = parse_want(bytes);
  VERBENA_ASSERT(!want || is_want(bytes));
  check_same<kWantBytes>(want, bytes);
}

}  // namespace
}  // namespace verbena::local

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  // Records are aligned and end with a word of their own.
  std::vector<std::uint64_t> words((input.size() + 7) / 8);
  if (!input.empty()) std::memcpy(words.data(), input.data(), input.size());
  const auto record = std::as_bytes(std::span(words)).first(input.size());
  if (data[0] >= 0xf0)
    verbena::local::fuzz_said(record);
  else
    verbena::local::fuzz_record(data[0] % 24, record);
  return 0;
}
