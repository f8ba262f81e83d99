// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/recent_clock.h"

#include <gtest/gtest.h>

namespace verbena::soft {
namespace {

TEST(RecentClock, never_goes_back_and_never_runs_ahead) {
  RecentClock clock;
  Instant before = clock.now();
  for (int i = 0; i < 100'000; ++i) {
    const Instant now = clock.now();
    ASSERT_GE(now, before);
    ASSERT_LE(now, monotonic_now());
    before = now;
  }
}

TEST(RecentClock, is_right_after_a_while_in_which_nobody_asked) {
  RecentClock clock;
  const Instant then = clock.now() + Duration::milliseconds(5);
  while (monotonic_now() < then) continue;
  EXPECT_GE(clock.now(), then);
}

}  // namespace
}  // namespace verbena::soft
