// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/icrc.h"

#include <isa-l/crc.h>

#include <cstring>

#include "base/assert.h"
#include "base/byte_order.h"
#include "base/cpu.h"
#include "soft/wire/ip.h"
#include "soft/wire/opcode.h"

namespace verbena::wire {
namespace {

// The sum after the eight bytes of ones that stand for the masked LRH.
constexpr std::uint32_t kAfterLrh = ~0xdebb20e3u;

constexpr std::uint32_t kPolynomial = 0xedb88320;
// Of an IPv4 datagram, what follows the identification up to the UDP payload.
constexpr std::size_t kBytesAfterIdentification = kIpv4Bytes - 6 + kUdpBytes;

// ISA-L returns with the upper halves of the vector registers in use, which slows every SSE instruction that
// follows.
[[gnu::always_inline]] inline void leave_vector_code() {
#if defined(__x86_64__)
  if (cpu::kHasAvx) {
    asm volatile("vzeroupper" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
#endif
}

std::uint32_t crc32(std::uint32_t crc, const std::byte* bytes, std::size_t count) {
  const std::uint32_t next = crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes), count);
  leave_vector_code();
  return next;
}

// Both emitters write the header with every field that may change on the way set to ones; lengths and identification 0.
std::size_t emit_masked_ipv4(const Path& path, bool dont_fragment, std::byte* to) {
  store_be16(to, 0x45ff);
  store_be32(to + 2, 0);
  store_be16(to + 6, dont_fragment ? 0x4000 : 0);
  store_be16(to + 8, 0xff11);
  store_be16(to + 10, 0xffff);
  std::memcpy(to + 12, path.source.bytes.data() + 12, 4);
  std::memcpy(to + 16, path.destination.bytes.data() + 12, 4);
  return kIpv4Bytes;
}

std::size_t emit_masked_ipv6(const Path& path, std::byte* to) {
  store_be32(to, 0x6fffffff);
  store_be16(to + 4, 0);
  store_be16(to + 6, 0x11ff);
  std::memcpy(to + 8, path.source.bytes.data(), 16);
  std::memcpy(to + 24, path.destination.bytes.data(), 16);
  return kIpv6Bytes;
}

// The sum is linear: what a byte adds to it is an exclusive or that depends on that byte and the number of those that
// follow, and on no other. So the fields that change from datagram to datagram, and the ones that stand for the fifth
// byte of the BTH, come from tables.
class Tables {
 public:
  constexpr Tables() {
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t sum = i;
      for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0u);
      step_[i] = sum;
      index_of_top_[sum >> 24] = static_cast<std::uint8_t>(i);
    }
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t before = i ^ 0xff;
      for (int back = 0; back < 4; ++back) {
        const std::uint32_t index = index_of_top_[before >> 24];
        before = ((before ^ step_[index]) << 8) | index;
      }
      mask[i] = before;
    }
    identification = of_field(kBytesAfterIdentification);
    ipv4_bytes = of_field(kBytesAfterIdentification + 2);
    ipv6_bytes = of_field(kIpv6Bytes - 6 + kUdpBytes);
    udp_bytes = of_field(2);
  }

  // A field of two bytes, by the number of those between it and the BTH.
  struct Field {
    std::array<std::uint32_t, 256> high{}, low{};
    std::uint32_t operator()(std::size_t value) const { return high[value >> 8 & 0xff] ^ low[value & 0xff]; }
  };
  Field identification, ipv4_bytes, ipv6_bytes, udp_bytes;
  std::array<std::uint32_t, 256> mask{};  // of turning that fifth byte into ones, at the start of the BTH

 private:
  constexpr Field of_field(std::size_t bytes_after) const {
    Field field;
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t sum = step_[i];
      for (std::size_t after = 0; after < bytes_after; ++after) sum = step_[sum & 0xff] ^ (sum >> 8);
      field.low[i] = sum;
      field.high[i] = step_[sum & 0xff] ^ (sum >> 8);
    }
    return field;
  }

  std::array<std::uint32_t, 256> step_{};
  std::array<std::uint8_t, 256> index_of_top_{};
};

constexpr Tables kTables;

// A packet of the largest path MTU, with all its headers, is shorter.
constexpr std::size_t kSolvedBytes = 4096 + 128;

// Sums are polynomials over bits modulo that of the CRC, their highest bit the constant term. A byte multiplies by x^8;
// these are the factors that take so many bytes back.
constexpr std::uint32_t kOne = 1u << 31;
constexpr auto kBack = [] {
  std::array<std::uint32_t, 2 + kBytesAfterIdentification + kSolvedBytes> back{kOne};
  for (std::size_t bytes = 1; bytes < back.size(); ++bytes) {
    std::uint32_t factor = back[bytes - 1];
    for (int bit = 0; bit < 8; ++bit) factor = (factor & kOne) != 0 ? (factor ^ kPolynomial) << 1 | 1 : factor << 1;
    back[bytes] = factor;
  }
  return back;
}();

std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (; a != 0; a <<= 1) {
    sum ^= b & (0 - (a >> 31));
    b = (b >> 1) ^ (kPolynomial & (0 - (b & 1)));
  }
  return sum;
}

// What two identifications differ by, if that explains the difference of two sums over datagrams that are alike but for
// them. Sixteen neighbouring bits are a burst shorter than the CRC: no two explain the same.
std::optional<std::uint16_t> identifications_apart(std::uint32_t difference, std::size_t bytes_after) {
  const std::uint32_t before = product(difference, kBack[2 + bytes_after]);
  if (before > 0xffff) return std::nullopt;
  return __builtin_bswap16(static_cast<std::uint16_t>(before));
}

}  // namespace

IcrcStart::IcrcStart(const Path& path, bool dont_fragment) : is_ipv4_(path.is_ipv4()) {
  std::array<std::byte, kIpv6Bytes + kUdpBytes> buffer;
  std::byte* at = buffer.data();
  at += is_ipv4_ ? emit_masked_ipv4(path, dont_fragment, at) : emit_masked_ipv6(path, at);
  store_be16(at, path.source_port);
  store_be16(at + 2, path.destination_port);
  store_be16(at + 4, 0);
  store_be16(at + 6, 0xffff);
  at += kUdpBytes;
  sum_ = crc32(kAfterLrh, buffer.data(), static_cast<std::size_t>(at - buffer.data()));
}

std::uint32_t IcrcStart::over(std::uint16_t identification, std::size_t datagram_bytes,
                              std::span<const std::byte> bytes) {
  VERBENA_ASSERT(bytes.size() >= kBthBytes);
  if (datagram_bytes != datagram_bytes_) add_lengths(datagram_bytes);
  std::uint32_t sum = sum_with_lengths_;
  if (is_ipv4_) sum ^= kTables.identification(identification);
  sum ^= kTables.mask[load_u8(bytes.data() + 4)];  // FECN, BECN and six reserved bits
  return crc32(sum, bytes.data(), bytes.size());
}

void IcrcStart::add_lengths(std::size_t datagram_bytes) {
  const std::size_t udp_bytes = kUdpBytes + datagram_bytes;
  datagram_bytes_ = datagram_bytes;
  sum_with_lengths_ = sum_ ^ kTables.udp_bytes(udp_bytes) ^
                      (is_ipv4_ ? kTables.ipv4_bytes(kIpv4Bytes + udp_bytes) : kTables.ipv6_bytes(udp_bytes));
}

std::uint32_t icrc_extend(std::uint32_t crc, std::span<const std::byte> bytes) {
  return bytes.empty() ? crc : crc32(crc, bytes.data(), bytes.size());
}

std::uint32_t icrc_of(const Path& path, std::uint16_t identification, std::span<const std::byte> covered,
                      bool dont_fragment) {
  return IcrcStart(path, dont_fragment).over(identification, covered.size() + kIcrcBytes, covered);
}

IcrcVerdict IcrcVerifier::check(const Path& path, std::optional<std::uint16_t> identification,
                                std::span<const std::byte> datagram, std::uint16_t* found,
                                bool dont_fragment, std::uint16_t likely) {
  set_path(path, dont_fragment);
  return check(identification, datagram, found, likely);
}

void IcrcVerifier::set_path(const Path& path, bool dont_fragment) {
  if (dont_fragment == dont_fragment_ && path == path_) return;
  start_ = IcrcStart(path, dont_fragment);
  path_ = path;
  dont_fragment_ = dont_fragment;
}

IcrcVerdict IcrcVerifier::check(std::optional<std::uint16_t> identification, std::span<const std::byte> datagram,
                                std::uint16_t* found, std::uint16_t likely) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return IcrcVerdict::Bad;
  const std::size_t covered = datagram.size() - kIcrcBytes;
  const std::uint16_t assumed = start_.is_ipv4() ? identification.value_or(likely) : std::uint16_t{0};
  const std::uint32_t sum = start_.over(assumed, datagram.size(), datagram.first(covered));
  const std::uint32_t difference = sum ^ load_icrc(datagram.data() + covered);
  if (found != nullptr) *found = assumed;
  if (difference == 0) return IcrcVerdict::Exact;
  const bool must_solve = start_.is_ipv4() && !identification;
  return must_solve ? solve(difference, datagram.size(), found, assumed) : IcrcVerdict::Bad;
}

IcrcVerdict IcrcVerifier::solve(std::uint32_t difference, std::size_t datagram_bytes, std::uint16_t* found,
                                std::uint16_t assumed) {
  if (datagram_bytes >= kSolvedBytes) return IcrcVerdict::Bad;
  const auto apart = identifications_apart(difference, kBytesAfterIdentification + datagram_bytes - kIcrcBytes);
  if (!apart) return IcrcVerdict::Bad;
  const auto solution = static_cast<std::uint16_t>(*apart ^ assumed);
  if (found != nullptr) *found = solution;
  return solution == 0 ? IcrcVerdict::Exact : IcrcVerdict::Solved;
}

}  // namespace verbena::wire
