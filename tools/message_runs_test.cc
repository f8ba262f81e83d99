// SPDX-License-Identifier: Apache-2.0
#include "tools/message_runs.h"

#include <gtest/gtest.h>

#include "tools/test_message_rows.h"

namespace verbena::tools {
namespace {

MessageRow latency_of(double typical) {
  MessageRow row = test_row(test_kind("send-receive"), MessageMeasure::Latency, 8, {});
  row.typical = typical;
  return row;
}

MessageRow runs_of(std::initializer_list<double> latencies) {
  std::vector<MessageRow> runs;
  for (const double one : latencies) runs.push_back(latency_of(one));
  return middle_of(std::move(runs));
}

TEST(MessageRuns, are_told_by_the_one_in_the_middle) {
  EXPECT_EQ(runs_of({5, 1, 2}).typical, 2);
  EXPECT_EQ(runs_of({4}).typical, 4);
  EXPECT_EQ(runs_of({1, 2}).typical, 2);  // the worse of two
  const MessageRow row = runs_of({4, 1, 2});
  EXPECT_EQ(row.merits, (std::vector<double>{0.25, 1, 0.5}));
  EXPECT_TRUE(is_repeated(row));
  EXPECT_FALSE(is_repeated(runs_of({4})));
  EXPECT_EQ(spread_of(row), 3);
  EXPECT_EQ(spread_of(latency_of(1)), 0);
}

TEST(MessageRuns, are_alike_where_they_differ_no_more_than_those_of_one) {
  EXPECT_TRUE(are_alike(runs_of({1, 0.8, 1.2}), runs_of({1.1, 1.1, 1.1})));
  EXPECT_TRUE(are_alike(runs_of({1.1, 1.1, 1.1}), runs_of({1, 0.8, 1.2})));
  EXPECT_FALSE(are_alike(runs_of({1, 0.99, 1.01}), runs_of({1.1, 1.1, 1.1})));
  EXPECT_FALSE(are_alike(latency_of(1), latency_of(1))) << "one run each tells nothing of noise";
  EXPECT_FALSE(are_alike(runs_of({1, 100, 600}), runs_of({10, 10, 10})));
  // One that was disturbed among five does not make all alike.
  EXPECT_FALSE(are_alike(runs_of({1, 1, 1, 1.01, 9}), runs_of({1.1, 1.1, 1.1, 1.1, 1.1})));
}

}  // namespace
}  // namespace verbena::tools
