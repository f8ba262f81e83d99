// SPDX-License-Identifier: Apache-2.0
#include "soft/local/hello.h"

#include <bit>
#include <cstring>
#include <string>

#include "soft/local/grants.h"

namespace verbena::local {

namespace {

constexpr std::array<char, 8> kMagic = {'V', 'R', 'B', 'N', 'L', 'O', 'C', 'L'};
constexpr std::array<char, 8> kAnswerMagic = {'V', 'R', 'B', 'N', 'A', 'N', 'S', 'W'};
constexpr std::array<char, 8> kWantMagic = {'V', 'R', 'B', 'N', 'W', 'A', 'N', 'T'};
constexpr std::array<char, 8> kLendMagic = {'V', 'R', 'B', 'N', 'L', 'E', 'N', 'D'};
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
  layout.opener_claim = 2 * std::uint64_t{kWriterBytes};
  layout.acceptor_claim = layout.opener_claim + kWriterBytes;
  layout.opener_grants = layout.acceptor_claim + kWriterBytes;
  layout.acceptor_grants = layout.opener_grants + kGrantTableBytes;
  layout.opener_ring = layout.acceptor_grants + kGrantTableBytes;
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

void emit(const Want& want, std::span<std::byte, kWantBytes> to) {
  std::memcpy(to.data(), kWantMagic.data(), kWantMagic.size());
  store(to, 8, kVersion);
  store(to, 12, want.rkey.value());
  store(to, 16, want.from.gid.bytes);
  store(to, 32, want.to.gid.bytes);
  store(to, 48, want.from.qpn.value());
  store(to, 52, want.to.qpn.value());
}

bool is_want(std::span<const std::byte> bytes) {
  return bytes.size() >= kWantMagic.size() &&
         std::memcmp(bytes.data(), kWantMagic.data(), kWantMagic.size()) == 0;
}

Result<Want> parse_want(std::span<const std::byte> bytes) {
  if (!is_want(bytes) || bytes.size() != kWantBytes || load<std::uint32_t>(bytes, 8) != kVersion)
    return Error{ErrorCode::ProtocolError, "a local peer asks for a region in " +
                                               std::to_string(bytes.size()) +
                                               " bytes that are not understood"};
  Want want;
  want.rkey = RKey{load<std::uint32_t>(bytes, 12)};
  want.from.gid.bytes = load<decltype(Gid::bytes)>(bytes, 16);
  want.to.gid.bytes = load<decltype(Gid::bytes)>(bytes, 32);
  const auto from = load<std::uint32_t>(bytes, 48), to = load<std::uint32_t>(bytes, 52);
  if (!is_queue_pair_number(from) || !is_queue_pair_number(to))
    return Error{ErrorCode::ProtocolError,
                 "a local peer asks for a region: a queue pair number over 24 bits"};
  want.from.qpn = Qpn{from};
  want.to.qpn = Qpn{to};
  return want;
}

void emit(const Lend& lend, std::span<std::byte, kLendBytes> to) {
  std::memcpy(to.data(), kLendMagic.data(), kLendMagic.size());
  store(to, 8, kVersion);
  store(to, 12, lend.rkey.value());
  store(to, 16, lend.slot);
  store(to, 20, static_cast<std::uint32_t>(lend.access));
  store(to, 24, lend.iova);
  store(to, 32, lend.length);
  store(to, 40, lend.address);
}

Result<Lend> parse_lend(std::span<const std::byte> bytes) {
  const auto broken_lend = [](const std::string& what) {
    return Error{ErrorCode::ProtocolError, "a region that a local peer lends: " + what};
  };
  if (bytes.size() != kLendBytes || std::memcmp(bytes.data(), kLendMagic.data(), kLendMagic.size()) != 0 ||
      load<std::uint32_t>(bytes, 8) != kVersion)
    return broken_lend(std::to_string(bytes.size()) + " bytes that are not understood");
  Lend lend;
  lend.rkey = RKey{load<std::uint32_t>(bytes, 12)};
  lend.slot = load<std::uint32_t>(bytes, 16);
  lend.access = static_cast<Access>(load<std::uint32_t>(bytes, 20));
  lend.iova = load<std::uint64_t>(bytes, 24);
  lend.length = load<std::uint64_t>(bytes, 32);
  lend.address = load<std::uint64_t>(bytes, 40);
  if (!includes(Access::RemoteRead | Access::RemoteWrite | Access::RemoteAtomic, lend.access))
    return broken_lend("unknown access bits");
  if (lend.access == Access::None) return lend;
  if (lend.slot >= kMostGrants) return broken_lend("slot " + std::to_string(lend.slot));
  if (lend.length == 0 || lend.iova + lend.length - 1 < lend.iova ||
      lend.address + lend.length - 1 < lend.address)
    return broken_lend(std::to_string(lend.length) + " bytes that wrap past 2^64");
  return lend;
}

}  // namespace verbena::local
