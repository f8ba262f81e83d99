// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/fetch_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace verbena::ring {
namespace {

constexpr Geometry kPlain{.capacity = 1024};
constexpr Geometry kDoubled{.capacity = 1024, .doubled = true};

void fetch_all(FetchPlan& plan) {
  while (plan.asked() != 0 || plan.next()) plan.handle_fetched();
}

TEST(FetchPlan, all_that_is_new_is_one_span) {
  FetchPlan plan(kPlain);
  EXPECT_EQ(plan.next(), std::nullopt);
  EXPECT_EQ(plan.handle_tail(640), Fault::None);
  EXPECT_EQ(plan.next(), (Span{0, 640}));
  EXPECT_EQ(plan.next(), std::nullopt);
  EXPECT_EQ(plan.handle_tail(704), Fault::None);
  EXPECT_EQ(plan.next(), (Span{640, 64}));
  EXPECT_EQ(plan.whole(), 0u);
  plan.handle_fetched();
  EXPECT_EQ(plan.whole(), 640u);
  EXPECT_FALSE(plan.has_all_known());
  plan.handle_fetched();
  EXPECT_EQ(plan.whole(), 704u);
  EXPECT_TRUE(plan.has_all_known());
}

TEST(FetchPlan, a_span_over_the_end_is_two_in_a_plain_ring_and_one_in_a_doubled_one) {
  for (const Geometry& geometry : {kPlain, kDoubled}) {
    FetchPlan plan(geometry);
    EXPECT_EQ(plan.handle_tail(960), Fault::None);
    fetch_all(plan);
    plan.handle_told(960);
    EXPECT_EQ(plan.handle_tail(1216), Fault::None);
    if (geometry.doubled) {
      EXPECT_EQ(plan.next(), (Span{960, 256}));
    } else {
      EXPECT_EQ(plan.next(), (Span{960, 64}));
      EXPECT_EQ(plan.next(), (Span{0, 192}));
      plan.handle_fetched();
      EXPECT_EQ(plan.whole(), 960u);  // a frame is whole when its tail is reached
    }
    plan.handle_fetched();
    EXPECT_EQ(plan.whole(), 1216u);
  }
}

TEST(FetchPlan, a_tail_that_lies_is_a_fault_for_good_and_nothing_is_read_for_it) {
  for (const std::uint64_t lie : {std::uint64_t{1088}, std::uint64_t{1} << 40, std::uint64_t{256},
                                  std::uint64_t{321}, std::uint64_t{0} - 64}) {
    FetchPlan plan(kPlain);
    EXPECT_EQ(plan.handle_tail(320), Fault::None);
    EXPECT_TRUE(plan.next());
    EXPECT_EQ(plan.handle_tail(lie), Fault::Tail) << lie;
    EXPECT_EQ(plan.next(), std::nullopt);
    EXPECT_EQ(plan.handle_tail(384), Fault::Tail);
  }
}

TEST(FetchPlan, a_full_ring_has_no_farther_tail_until_a_head_is_told) {
  FetchPlan plan(kPlain);
  EXPECT_EQ(plan.handle_tail(1024), Fault::None);
  EXPECT_TRUE(plan.is_full());
  fetch_all(plan);
  EXPECT_TRUE(plan.is_full());
  plan.handle_told(128);
  EXPECT_FALSE(plan.is_full());
  EXPECT_EQ(plan.handle_tail(1152), Fault::None);
  EXPECT_EQ(plan.next(), (Span{0, 128}));
}

// Against a peer that is honest: every byte is read once, in order, to where nothing is held.
TEST(FetchPlan, whatever_comes_when_each_byte_is_read_once_and_over_nothing_that_is_held) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const Geometry geometry = seed % 2 != 0 ? kPlain : kDoubled;
    FetchPlan plan(geometry, seed % 3 != 0 ? 128 : FetchPlan::kMostBytes);
    std::uint64_t tail = 0, known = 0, read = 0, told = 0;
    for (int step = 0; step < 400; ++step) {
      switch (random() % 5) {
        case 0:
          tail += random() % ((told + geometry.capacity - tail) / 64 + 1) * 64;
          break;
        case 1:
          known = tail;
          ASSERT_EQ(plan.handle_tail(tail), Fault::None);
          break;
        case 2:
          if (plan.asked() != 0) plan.handle_fetched();
          break;
        case 3:
          told += random() % ((plan.whole() - told) / 64 + 1) * 64;
          plan.handle_told(told);
          break;
        default:
          const auto span = plan.next();
          if (!span) {
            ASSERT_TRUE(read == known || plan.asked() == FetchPlan::kMostSpans);
            break;
          }
          ASSERT_EQ(span->offset, geometry.place_of(read));
          ASSERT_LE(span->offset + span->bytes, geometry.memory_bytes());
          ASSERT_NE(span->bytes, 0u);
          read += span->bytes;
          ASSERT_LE(read, known);
          ASSERT_LE(read - told, geometry.capacity);
      }
      ASSERT_LE(plan.whole(), read);
    }
  }
}

}  // namespace
}  // namespace verbena::ring
