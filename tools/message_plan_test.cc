// SPDX-License-Identifier: Apache-2.0
#include "tools/message_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "tools/message_choice.h"
#include "tools/message_runs.h"
#include "tools/test_message_rows.h"

namespace verbena::tools {
namespace {

constexpr TestCosts kPlanCosts{{0.2, 0.0002}, {1.8, 0.0005}, {0.9, 0.0004}};

MessageRow measured(const MessageTest& test) {
  MessageRow row = test_row(test.kind, test.measure, test.size, kPlanCosts, test.path);
  row.test = test;
  return row;
}

TEST(MessagePlan, has_every_protocol_by_size_batch_senders_and_threads_over_both_paths) {
  const MessagePlan plan;
  std::set<messaging::Protocol> protocols;
  for (const messaging::Kind& kind : compared_kinds()) protocols.insert(kind.protocol);
  EXPECT_EQ(protocols.size(), messaging::all_protocols().size());
  std::size_t all = 0;
  for (const PathChoice path : plan.paths) {
    std::set<std::tuple<std::string, MessageMeasure, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                        std::uint64_t>> different;
    for (const MessageTest& test : tests_of(plan, path)) {
      ++all;
      EXPECT_EQ(test.path, path);
      EXPECT_GE(test.iterations, 8u);
      EXPECT_LE(test.iterations * test.size, std::max<std::uint64_t>(64 << 20, 8 * test.size));
      EXPECT_GE(test.ring_bytes, std::uint64_t{test.window} * test.size);
      EXPECT_TRUE(test.measure != MessageMeasure::Latency || test.threads * test.batch == 1);
      different.insert({to_string(test.kind), test.measure, test.size, test.senders, test.threads, test.batch,
                        test.ring_bytes});
    }
    EXPECT_EQ(different.size(), tests_of(plan, path).size());
    EXPECT_EQ(different.size(), compared_kinds().size() * (6 + 6 + 1 + 4 + 4 + 3));
  }
  EXPECT_EQ(count_tests(plan), all);
}

TEST(MessagePlan, knows_every_kind_once_and_compares_some_of_them) {
  std::set<std::string> all, plain;
  for (const messaging::Kind& kind : all_kinds()) EXPECT_TRUE(all.insert(to_string(kind)).second) << to_string(kind);
  EXPECT_EQ(all.size(), 21u);
  for (const messaging::Kind& kind : plain_kinds()) EXPECT_TRUE(all.contains(to_string(kind))) << to_string(kind);
  for (const messaging::Kind& kind : compared_kinds()) EXPECT_TRUE(plain.insert(to_string(kind)).second);
  EXPECT_EQ(plain.size(), 10u);
  EXPECT_TRUE(plain.contains("buffered-write/reversed"));
  EXPECT_EQ(kinds_named({"direct-read", "all"}).value(), all_kinds());
  EXPECT_EQ(kinds_named({}).value(), compared_kinds());
  EXPECT_EQ(kinds_named({"shared-write", "shared-write"}).value(), std::vector{test_kind("shared-write")});
  EXPECT_FALSE(kinds_named({"shared-write", "pigeons"}));
  EXPECT_FALSE(kinds_named({"all", "pigeons"}));
}

TEST(MessagePlan, is_enough_for_a_model_and_a_choice_for_every_wish) {
  MessageReport report;
  const MessageRunner runner{[](const MessageTest& test) -> Result<MessageRow> { return measured(test); },
                             [] { return false; }};
  ASSERT_TRUE(run_plan({}, runner, report));
  EXPECT_EQ(report.rows.size(), count_tests({}));
  EXPECT_TRUE(report.failures.empty());
  EXPECT_EQ(fit_all_models(report.rows).size(), 2 * compared_kinds().size());
  for (const MessageWish wish : kMessageWishes)
    for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
      EXPECT_TRUE(recommend_measured(report.rows, wish, path)) << to_string(wish);
}

TEST(MessagePlan, runs_the_best_again_in_turn_before_anybody_chooses) {
  MessageReport report;
  std::vector<MessageTest> run;
  const MessageRunner runner{[&run](const MessageTest& test) -> Result<MessageRow> {
                               run.push_back(test);
                               return measured(test);
                             },
                             [] { return false; }};
  const MessagePlan plan;
  ASSERT_TRUE(run_plan(plan, runner, report));
  const MessageContests contests = contests_of(report);
  EXPECT_EQ(contests.size(), 2 * std::size(kMessageWishes));
  EXPECT_EQ(count_runs(contests), 2 * std::size(kMessageWishes) * kContenders * kDeciding);
  run.clear();
  ASSERT_TRUE(run_contests(contests, runner, report));
  ASSERT_EQ(run.size(), count_runs(contests));
  for (std::size_t i = 0; i + 1 < run.size(); ++i) EXPECT_NE(run[i].kind, run[i + 1].kind);
  EXPECT_EQ(report.rows.size(), count_tests(plan));
  std::size_t repeated = 0;
  for (const MessageRow& row : report.rows) repeated += is_repeated(row) ? 1u : 0u;
  EXPECT_EQ(repeated * kDeciding, run.size());
  for (const MessageWish wish : kMessageWishes) {
    const auto choice = recommend_measured(report.rows, wish, PathChoice::Roce);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->row.merits.size(), kDeciding);
  }
  // Of one kind there is nothing to choose.
  MessageReport single;
  ASSERT_TRUE(run_plan({{test_kind("direct-read")}}, runner, single));
  EXPECT_TRUE(contests_of(single).empty());
}

TEST(MessagePlan, goes_on_behind_a_test_that_fails_and_passes_by_a_path_that_is_not_there) {
  MessageReport report;
  const MessagePlan plan{{test_kind("direct-read"), test_kind("shared-write")}};
  const MessageRunner runner{[](const MessageTest& test) -> Result<MessageRow> {
                               if (test.path == PathChoice::Local) return Error(ErrorCode::Unreachable, "far away");
                               if (test.senders == 64) return Error(ErrorCode::Rejected, "too\nmany");
                               return measured(test);
                             },
                             [] { return false; }};
  ASSERT_TRUE(run_plan(plan, runner, report));
  EXPECT_EQ(report.rows.size(), count_tests(plan) / 2 - 4);
  ASSERT_EQ(report.failures.size(), 5u);
  EXPECT_EQ(report.failures[0].why.find('\n'), std::string::npos);
  EXPECT_EQ(report.failures[2].test.kind, test_kind("shared-write"));
  EXPECT_EQ(report.failures[4].test.path, PathChoice::Local);
  EXPECT_THAT(report.failures[4].why, ::testing::HasSubstr("far away"));
}

TEST(MessagePlan, ends_with_the_other_end_and_keeps_what_it_has) {
  MessageReport report;
  int left = 10;
  const MessageRunner runner{[&](const MessageTest& test) -> Result<MessageRow> {
                               if (left-- == 0) return Error(ErrorCode::ConnectionLost, "gone");
                               return measured(test);
                             },
                             [&] { return left < 0; }};
  const auto outcome = run_plan({}, runner, report);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::ConnectionLost);
  EXPECT_EQ(report.rows.size(), 9u);
}

}  // namespace
}  // namespace verbena::tools
