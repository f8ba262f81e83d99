// SPDX-License-Identifier: Apache-2.0
// A simulator that finds nothing proves nothing: it must find each of the bugs planted into a copy of the
// device.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "sim/run.h"

namespace verbena::sim {
namespace {

constexpr std::uint64_t kSeeds = 1000;

class PlantedBugs : public testing::TestWithParam<core::PlantedBug> {};

TEST_P(PlantedBugs, is_found_within_a_thousand_seeds_that_pass_without_it) {
  const SeedsResult found = run_seeds(1, kSeeds, GetParam());
  ASSERT_EQ(found.failures, 1u) << "not found";
  std::printf("%-34s seed %llu, packet %llu: %s: %s\n", std::string(to_string(GetParam())).c_str(),
              static_cast<unsigned long long>(found.first_failed_seed),
              static_cast<unsigned long long>(found.first_failure.packets),
              found.first_failure.failed_oracle.c_str(), found.first_failure.detail.c_str());
  const RunResult without = run(options_for_seed(found.first_failed_seed));
  EXPECT_TRUE(without.ok()) << without.failed_oracle << ": " << without.detail;
}

std::vector<core::PlantedBug> all_bugs() {
  std::vector<core::PlantedBug> bugs;
  for (int i = 1; i < static_cast<int>(core::PlantedBug::Count); ++i)
    bugs.push_back(static_cast<core::PlantedBug>(i));
  return bugs;
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedBugs, testing::ValuesIn(all_bugs()),
                         [](const testing::TestParamInfo<core::PlantedBug>& bug) {
                           return std::string(to_string(bug.param));
                         });

}  // namespace
}  // namespace verbena::sim
