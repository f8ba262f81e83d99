// SPDX-License-Identifier: Apache-2.0
#include "base/rnr_timer.h"

#include <array>

namespace verbena {

namespace {

// In units of 10 microseconds, by timer code.
constexpr std::array<std::uint32_t, 32> kTensOfMicroseconds = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

Duration rnr_duration(std::uint8_t timer_code) {
  return Duration::microseconds(std::int64_t{kTensOfMicroseconds[timer_code & 0x1f]} * 10);
}

std::uint8_t rnr_timer_code(Duration wait) {
  for (std::uint8_t code = 1; code < 32; ++code)
    if (rnr_duration(code) >= wait) return code;
  return 0;
}

}  // namespace verbena
