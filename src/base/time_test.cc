// SPDX-License-Identifier: Apache-2.0
#include "verbena/base/time.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr Instant kEarliest{std::numeric_limits<std::int64_t>::min()};
constexpr Duration kShortest{std::numeric_limits<std::int64_t>::min()};

TEST(Instant, sums_and_differences_saturate) {
  static_assert(Instant{5} + Duration{-7} == Instant{-2});
  static_assert(Instant{5} - Instant{7} == Duration{-2});
  EXPECT_EQ(Instant{1} + Duration::forever(), Instant::never());
  EXPECT_EQ(Instant::never() + Duration{1}, Instant::never());
  EXPECT_EQ(Instant{-1} + kShortest, kEarliest);
  EXPECT_EQ(kEarliest - Instant{1}, kShortest);
  EXPECT_EQ(Instant::never() - Instant{-1}, Duration::forever());
  EXPECT_EQ(Instant{0} - kEarliest, Duration::forever());
  EXPECT_EQ(Instant::never() - Instant::never(), Duration{});
}

}  // namespace
}  // namespace verbena
