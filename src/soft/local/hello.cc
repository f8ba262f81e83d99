// SPDX-License-Identifier: Apache-2.0
#include "soft/local/hello.h"

#include <bit>
#include <cstring>
#include <string>

namespace verbena::local {

namespace {

constexpr std::array<char, 8> kMagic = {'V', 'R', 'B', 'N', 'L', 'O', 'C', 'L'};
constexpr std::array<char, 8> kAnswerMagic = {'V', 'R', 'B', 'N', 'A', 'N', 'S', 'W'};
constexpr std::uint64_t kPageBytes = 4096;

template <class T>
T load(std::span<const std::byte> from, std::size_t at) {
  T value;
  std::memcpy(&value, from.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

template <class T>
void store(std::span<std::byte> to, std::size_t at, T value) {
  std::memcpy(to.subspan(at, sizeof value).data(), &value, sizeof value);
}

bool is_queue_pair_number(std::uint32_t value) { return value <= Qpn::kMask; }

Error broken(const std::string& what) {
  return {ErrorCode::ProtocolError, "hello of a local peer: " + what + "; it is no Verbena of this kind, or damaged"};
}

}  // namespace

SegmentLayout layout_of(std::uint32_t ring_capacity) {
  SegmentLayout layout;
  layout.acceptor_wake = kWriterBytes;
  layout.opener_pull = layout.opener_wake + kLineBytes;
  layout.acceptor_pull = layout.acceptor_wake + kLineBytes;
  layout.opener_ring = 2 * std::uint64_t{kWriterBytes};
  layout.acceptor_ring = layout.opener_ring + ring_bytes(ring_capacity);
  layout.bytes = (layout.acceptor_ring + ring_bytes(ring_capacity) + kPageBytes - 1) & ~(kPageBytes - 1);
  return layout;
}

void emit(const Hello& hello, std::span<std::byte, kHelloBytes> to) {
  std::memcpy(to.data(), kMagic.data(), kMagic.size());
  store(to, 8, kVersion);
  store(to, 12, std::uint32_t{kHelloBytes});
  store(to, 16, layout_of(hello.ring_capacity).bytes);
  store(to, 24, hello.ring_capacity);
  store(to, 28, std::uint32_t{0});
  store(to, 32, hello.from.gid.bytes);
  store(to, 48, hello.to.gid.bytes);
  store(to, 64, hello.from.qpn.value());
  store(to, 68, hello.to.qpn.value());
}

Result<Hello> parse_hello(std::span<const std::byte> bytes) {
  if (bytes.size() < 16 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return broken(std::to_string(bytes.size()) + " bytes without its mark");
  const auto version = load<std::uint32_t>(bytes, 8);
  if (version != kVersion)
    return Error{ErrorCode::NotSupported, "the local peer shares memory by version " + std::to_string(version) +
                                              ", this process by version " + std::to_string(kVersion) +
                                              ": let both ends run the same release of Verbena"};
  if (bytes.size() != kHelloBytes || load<std::uint32_t>(bytes, 12) != kHelloBytes)
    return broken(std::to_string(bytes.size()) + " bytes instead of " + std::to_string(kHelloBytes));
  Hello hello;
  hello.ring_capacity = load<std::uint32_t>(bytes, 24);
  if (!std::has_single_bit(hello.ring_capacity) || hello.ring_capacity < kMinRingCapacity ||
      hello.ring_capacity > kMaxRingCapacity)
    return broken("a ring of " + std::to_string(hello.ring_capacity) + " bytes");
  if (load<std::uint64_t>(bytes, 16) != layout_of(hello.ring_capacity).bytes)
    return broken("a segment of " + std::to_string(load<std::uint64_t>(bytes, 16)) + " bytes for rings of " +
                  std::to_string(hello.ring_capacity));
  if (load<std::uint32_t>(bytes, 28) != 0) return broken("reserved bits");
  hello.from.gid.bytes = load<decltype(Gid::bytes)>(bytes, 32);
  hello.to.gid.bytes = load<decltype(Gid::bytes)>(bytes, 48);
  const auto from = load<std::uint32_t>(bytes, 64), to = load<std::uint32_t>(bytes, 68);
  if (!is_queue_pair_number(from) || !is_queue_pair_number(to)) return broken("a queue pair number over 24 bits");
  hello.from.qpn = Qpn{from};
  hello.to.qpn = Qpn{to};
  return hello;
}

void emit(Answer answer, std::span<std::byte, kAnswerBytes> to) {
  std::memcpy(to.data(), kAnswerMagic.data(), kAnswerMagic.size());
  store(to, 8, kVersion);
  store(to, 12, static_cast<std::uint32_t>(answer));
}

Result<Answer> parse_answer(std::span<const std::byte> bytes) {
  if (bytes.size() != kAnswerBytes || std::memcmp(bytes.data(), kAnswerMagic.data(), kAnswerMagic.size()) != 0)
    return Error{ErrorCode::ProtocolError,
                 "answer of a local peer: " + std::to_string(bytes.size()) + " bytes without its mark"};
  const auto version = load<std::uint32_t>(bytes, 8), value = load<std::uint32_t>(bytes, 12);
  if (version != kVersion || value < static_cast<std::uint32_t>(Answer::Accept) ||
      value > static_cast<std::uint32_t>(Answer::Crossed))
    return Error{ErrorCode::ProtocolError, "answer of a local peer: version " + std::to_string(version) + ", answer " +
                                               std::to_string(value)};
  return static_cast<Answer>(value);
}

}  // namespace verbena::local
