// SPDX-License-Identifier: Apache-2.0
#include "verbena/messaging/protocol.h"

#include <gtest/gtest.h>

#include "messaging/offer.h"
#include "messaging/rate_limiter.h"

namespace verbena::messaging {
namespace {

TEST(Kind, every_kind_has_a_name_that_is_read_back) {
  for (const Protocol protocol : all_protocols())
    for (int choices = 0; choices < 24; ++choices) {
      Kind kind{.protocol = protocol};
      if (protocol == Protocol::BufferedWrite) {
        kind.commit = static_cast<Commit>(choices % 3);
        kind.acknowledge = static_cast<Acknowledge>(choices / 3 % 2);
        kind.ring = static_cast<RingMemory>(choices / 6 % 2);
      }
      if (protocol == Protocol::DirectRead) kind.fenced = choices % 2 != 0;
      const auto read = parse_kind(to_string(kind));
      ASSERT_TRUE(read) << to_string(kind);
      EXPECT_EQ(*read, kind) << to_string(kind);
    }
  EXPECT_EQ(to_string(*parse_kind("buffered-write/double-mapped/reversed/read")),
            "buffered-write/reversed/read/double-mapped");
  EXPECT_TRUE(parse_kind("buffered-write/immediate"));
}

TEST(Kind, a_name_that_is_none_is_refused_with_the_word_that_is_wrong) {
  for (const char* text : {"", "send", "send-receive/fenced", "direct-read/offset", "a/b"}) {
    const auto read = parse_kind(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::InvalidArgument);
    EXPECT_NE(read.error().to_string().find(text), std::string::npos);
  }
}

TEST(Kind, where_a_device_promises_no_order_inside_a_write_another_commit_is_taken) {
  const Kind reversed{
      .protocol = Protocol::BufferedWrite, .commit = Commit::Reversed, .acknowledge = Acknowledge::Read};
  EXPECT_TRUE(traits_of(reversed).order_in_write);
  const Kind other = without_order_in_write(reversed);
  EXPECT_FALSE(traits_of(other).order_in_write);
  EXPECT_EQ(other.protocol, Protocol::BufferedWrite);
  EXPECT_EQ(other.acknowledge, Acknowledge::Read);
}

TEST(Recommend, what_is_recommended_gives_what_was_asked_for) {
  int picked = 0;
  for (int wishes = 0; wishes < 1 << 9; ++wishes)
    for (const std::uint32_t senders : {1u, 64u}) {
      const auto has = [&](int bit) { return (wishes >> bit & 1) != 0; };
      const Requirements w{has(0), has(1), has(2), senders, has(3), has(4), has(5), has(6), has(7), has(8)};
      const auto it = recommend(w);
      if (!it) {
        EXPECT_NE(it.error().to_string().find("exclude each other"), std::string::npos);
        continue;
      }
      ++picked;
      const Traits traits = traits_of(it->kind);
      const std::string text = to_string(it->kind) + " for " + std::to_string(wishes);
      EXPECT_EQ(it->reason.substr(0, it->reason.find(':')).find(to_string(it->kind.protocol)), 0u) << text;
      EXPECT_TRUE(w.order_in_write || !traits.order_in_write) << text;
      EXPECT_TRUE(!w.large_without_copy || traits.zero_copy) << text;
      EXPECT_TRUE(!w.receiver_sleeps || traits.interrupts) << text;
      EXPECT_TRUE(!w.idle_sender || traits.passive == PassiveSide::Sender) << text;
      EXPECT_TRUE(!w.idle_receiver || w.large_without_copy || traits.passive == PassiveSide::Receiver)
          << text;
      if (w.idle_receiver || w.idle_sender) continue;
      EXPECT_TRUE(senders <= 8 || !w.little_memory || traits.shares_memory) << text;
      EXPECT_TRUE(!w.hold_messages || traits.non_blocking) << text;
    }
  EXPECT_GT(picked, 200);
}

TEST(RateLimiter, a_burst_goes_at_once_and_the_rest_at_the_rate) {
  RateLimiter limiter({.messages_per_second = 1000, .burst = 4});
  Instant now{1'000'000'000};
  int went = 0;
  for (; limiter.allows(now); ++went) limiter.take(now, 100);
  EXPECT_EQ(went, 4);
  EXPECT_EQ(limiter.next(), now + Duration::milliseconds(1));
  for (const Instant end = now + Duration::seconds(1); now < end; now = limiter.next(), ++went)
    limiter.take(now, 100);
  EXPECT_NEAR(went, 1004, 1);
}

TEST(RateLimiter, bytes_count_too) {
  RateLimiter limiter({.bytes_per_second = 1'000'000});
  const Instant now{5};
  limiter.take(now, 1000);
  EXPECT_FALSE(limiter.allows(now));
  EXPECT_EQ(limiter.next(), now + Duration::milliseconds(1));
}

}  // namespace
}  // namespace verbena::messaging
