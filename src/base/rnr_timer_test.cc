// SPDX-License-Identifier: Apache-2.0
#include "base/rnr_timer.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(RnrTimer, timer_code_0_is_the_longest_wait) {
  EXPECT_EQ(rnr_duration(0), Duration::microseconds(655'360));
  EXPECT_EQ(rnr_duration(1), Duration::microseconds(10));
  EXPECT_EQ(rnr_duration(12), Duration::microseconds(640));
  EXPECT_EQ(rnr_duration(25), Duration::microseconds(61'440));
  EXPECT_EQ(rnr_duration(31), Duration::microseconds(491'520));
}

TEST(RnrTimer, timer_codes_ascend_from_1_to_31_and_then_0) {
  for (std::uint8_t code = 1; code < 31; ++code)
    EXPECT_LT(rnr_duration(code), rnr_duration(static_cast<std::uint8_t>(code + 1)));
  EXPECT_LT(rnr_duration(31), rnr_duration(0));
}

TEST(RnrTimer, the_code_for_a_wait_is_the_shortest_that_is_long_enough) {
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_timer_code(rnr_duration(code)), code);
    const std::uint8_t longer = rnr_timer_code(rnr_duration(code) + Duration::nanoseconds(1));
    EXPECT_EQ(longer, code == 0 ? 0 : (code + 1) % 32);
  }
  EXPECT_EQ(rnr_timer_code(Duration{0}), 1);
  EXPECT_EQ(rnr_timer_code(Duration::forever()), 0);
}

}  // namespace
}  // namespace verbena
