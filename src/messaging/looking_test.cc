// SPDX-License-Identifier: Apache-2.0
#include "messaging/looking.h"

#include <gtest/gtest.h>

namespace verbena::messaging {
namespace {

constexpr int kMany = 1000;

int yes_of_many(Arrivals& arrivals) {
  int yes = 0;
  for (int i = 0; i < kMany; ++i) yes += arrivals.come_by_themselves();
  return yes;
}

TEST(Arrivals, come_by_themselves_as_long_as_a_look_finds_some_of_them) {
  Arrivals arrivals;
  EXPECT_EQ(yes_of_many(arrivals), kMany);
  for (int i = 0; i < kMany; ++i) {
    arrivals.on_run();
    if (i % 8 == 0) arrivals.on_look();
    EXPECT_TRUE(arrivals.come_by_themselves());
  }
}

TEST(Arrivals, that_only_driving_finds_are_looked_for_again_now_and_then) {
  Arrivals arrivals;
  for (int i = 0; i < kMany; ++i) arrivals.on_run();
  const int trials = yes_of_many(arrivals);
  EXPECT_GT(trials, 0);
  EXPECT_LT(trials, kMany / 10);
  arrivals.on_look();
  EXPECT_EQ(yes_of_many(arrivals), kMany);
}

}  // namespace
}  // namespace verbena::messaging
