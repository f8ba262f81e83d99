// SPDX-License-Identifier: Apache-2.0
#include "sim/options.h"

#include <gtest/gtest.h>

#include <set>

namespace verbena::sim {
namespace {

TEST(Options, are_the_same_for_the_same_seed_and_differ_between_seeds) {
  std::set<std::string> all;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    EXPECT_EQ(to_string(options_for_seed(seed)), to_string(options_for_seed(seed)));
    all.insert(to_string(options_for_seed(seed)));
  }
  EXPECT_EQ(all.size(), 200u);
}

TEST(Options, start_near_a_wrap_in_half_of_all_seeds) {
  int wraps = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) wraps += options_for_seed(seed).queues.near_wrap ? 1 : 0;
  EXPECT_GT(wraps, 420);
  EXPECT_LT(wraps, 580);
}

TEST(Options, never_hide_the_identification_where_damage_must_be_detected) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const Options o = options_for_seed(seed);
    EXPECT_FALSE(o.host.hide_identification && (o.network.corrupt != 0 || o.ipv6)) << seed;
  }
}

}  // namespace
}  // namespace verbena::sim
