// SPDX-License-Identifier: Apache-2.0
#include "messaging/rate_limiter.h"

#include <gtest/gtest.h>

#include <limits>

namespace verbena::messaging {
namespace {

// Of so many messages of that size, each sent as early as it may; ns.
std::int64_t time_of(RateLimit limit, int messages, std::uint32_t bytes) {
  limit.burst = 1;
  RateLimiter limiter(limit);
  constexpr Instant kBegin{1'000'000'007};
  Instant now = kBegin;
  for (int i = 0; i < messages; ++i) {
    limiter.take(now, bytes);
    now = std::max(now, limiter.next());
  }
  return (now - kBegin).ns;
}

TEST(RateLimiter, what_takes_less_than_a_nanosecond_takes_its_time_all_the_same) {
  EXPECT_EQ(time_of({.bytes_per_second = 10'000'000'000}, 1'000'000, 8), 800'000);
  EXPECT_EQ(time_of({.bytes_per_second = 50'000'000'000}, 1'000'000, 1), 20'000);
  EXPECT_EQ(time_of({.messages_per_second = 4'000'000'000}, 1'000'000, 8), 250'000);
}

TEST(RateLimiter, a_rate_that_does_not_divide_a_second_is_kept) {
  EXPECT_EQ(time_of({.messages_per_second = 300'000'000}, 3'000'000, 1), 10'000'000);
  EXPECT_EQ(time_of({.bytes_per_second = 7'000'000'000}, 700'000, 10), 1'000'000);
  EXPECT_EQ(time_of({.messages_per_second = 600'000'000, .bytes_per_second = 1}, 3, 2), 6'000'000'000);
}

TEST(RateLimiter, a_burst_is_whole_at_any_rate) {
  for (const std::uint64_t rate : {3ull, 300'000'000ull, 700'000'000ull}) {
    RateLimiter limiter({.messages_per_second = rate, .burst = 100});
    const Instant now{1'000'000'000};
    int went = 0;
    for (; limiter.allows(now); ++went) limiter.take(now, 1);
    EXPECT_GE(went, 100);
    EXPECT_LE(went, 101) << "what is less than a nanosecond early may go";
  }
}

TEST(RateLimiter, the_greatest_numbers_do_not_overflow) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint32_t kLongest = std::numeric_limits<std::uint32_t>::max();
  const Instant now{std::numeric_limits<std::int64_t>::max() / 2};
  RateLimiter fast({.messages_per_second = kMost, .bytes_per_second = kMost, .burst = kLongest});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(fast.allows(now));
    if (i < 2) fast.take(now, kLongest);
  }
  RateLimiter slow({.messages_per_second = 1, .bytes_per_second = 1, .burst = kLongest});
  slow.take(now, kLongest);
  EXPECT_EQ(slow.next(), now + Duration::seconds(kLongest));
}

TEST(RateLimiter, a_pause_leaves_no_debt) {
  RateLimiter limiter({.bytes_per_second = 3'000'000'000});
  limiter.take({100}, 2);
  EXPECT_EQ(limiter.next(), Instant{100});
  limiter.take({200}, 8);
  EXPECT_EQ(limiter.next(), Instant{202});
  limiter.take({202}, 1);
  EXPECT_EQ(limiter.next(), Instant{203});
}

}  // namespace
}  // namespace verbena::messaging
