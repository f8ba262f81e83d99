// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/aeth.h"

#include <array>

namespace verbena::wire {
namespace {

// By credit code; the last code, 31, has no number.
constexpr std::array<std::uint32_t, 31> kCredits = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

std::string_view to_string(NakCode code) {
  switch (code) {
    case NakCode::SequenceError:
      return "PSN sequence error";
    case NakCode::InvalidRequest:
      return "invalid request";
    case NakCode::RemoteAccess:
      return "remote access error";
    case NakCode::RemoteOperation:
      return "remote operational error";
    case NakCode::InvalidRdRequest:
      return "invalid RD request";
  }
  return "reserved";
}

std::optional<std::uint32_t> credits_of(std::uint8_t credit_code) {
  const std::size_t index = credit_code & 0x1f;
  if (index >= kCredits.size()) return std::nullopt;
  return kCredits[index];
}

std::uint8_t credit_code(std::uint32_t credits) {
  std::uint8_t best = 0;
  for (std::uint8_t code = 0; code < kCredits.size(); ++code)
    if (kCredits[code] <= credits) best = code;
  return best;
}

}  // namespace verbena::wire
