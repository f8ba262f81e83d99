// SPDX-License-Identifier: Apache-2.0
// ACK extended transport header: what a response says (format reference 2.5 to 2.7).
//
//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---------------+-----------------------------------------------+
//   |   syndrome    |                      MSN                      |
//   +---------------+-----------------------------------------------+
//
//   syndrome  0x00-0x1f ACK, low 5 bits a credit code
//             0x20-0x3f RNR NAK, low 5 bits a timer code
//             0x60-0x64 NAK
//             all else reserved: the response is dropped
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace verbena::wire {

inline constexpr std::uint8_t kSyndromeAck = 0x1f;  // credits not limited

struct Aeth {
  std::uint8_t syndrome = kSyndromeAck;
  std::uint32_t msn = 0;  // 24 bits

  bool operator==(const Aeth&) const = default;
};

enum class AethKind : std::uint8_t { Ack, RnrNak, Nak, Reserved };

enum class NakCode : std::uint8_t {
  SequenceError = 0x60,
  InvalidRequest = 0x61,
  RemoteAccess = 0x62,
  RemoteOperation = 0x63,
  InvalidRdRequest = 0x64,
};
std::string_view to_string(NakCode code);

constexpr AethKind aeth_kind(std::uint8_t syndrome) {
  if (syndrome <= 0x1f) return AethKind::Ack;
  if (syndrome <= 0x3f) return AethKind::RnrNak;
  return syndrome >= 0x60 && syndrome <= 0x64 ? AethKind::Nak : AethKind::Reserved;
}
constexpr AethKind aeth_kind(const Aeth& aeth) { return aeth_kind(aeth.syndrome); }

constexpr std::uint8_t nak_syndrome(NakCode code) { return static_cast<std::uint8_t>(code); }
constexpr std::uint8_t rnr_syndrome(std::uint8_t timer_code) {
  return static_cast<std::uint8_t>(0x20 | (timer_code & 0x1f));
}

// Receives the credit code of an ACK stands for; nullopt for code 31, not limited. Only the low 5 bits count.
std::optional<std::uint32_t> credits_of(std::uint8_t credit_code);
// The code of the largest number of credits that is no more than `credits`.
std::uint8_t credit_code(std::uint32_t credits);

}  // namespace verbena::wire
