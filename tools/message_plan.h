// SPDX-License-Identifier: Apache-2.0
// The tests of `verbena bench protocols`: every message protocol by size, over each path, from many senders and
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/message_kinds.h"
#include "tools/message_report.h"

namespace verbena::tools {

struct MessagePlan {
  std::vector<messaging::Kind> kinds = compared_kinds();
  std::vector<PathChoice> paths{PathChoice::Roce, PathChoice::Local};
  std::uint64_t iterations = 1000;  // of a latency; streams have ten times as many, large messages fewer
};

// A message of 8 bytes of the plainest kind: a path over which it does not go is not there.
MessageTest probe_of(PathChoice path);
// All of one path, each kind in one piece.
std::vector<MessageTest> tests_of(const MessagePlan& plan, PathChoice path);
std::size_t count_tests(const MessagePlan& plan);

// Runs one. An error is that of the test alone as long as `over` says no.
struct MessageRunner {
  std::function<Result<MessageRow>(const MessageTest&)> run;
  std::function<bool()> over;
};
// Runs them all into `report`: a test that fails is there with its reason, and so is a path that is not there, once.
// Errors: what ended it all; the report has what came before.
Result<void> run_plan(const MessagePlan& plan, const MessageRunner& runner, MessageReport& report);

// Runs that decide: of each wish over each path those that may be the best, as indices of the report's rows.
using MessageContests = std::vector<std::vector<std::size_t>>;
MessageContests contests_of(const MessageReport& report);
// Of each contest in turn, kDeciding times: what slows the machine for a while slows them all. Short tests run longer
// than before. The rows are those in the middle then. Errors: what ended it all; a test that fails now leaves its row
// as it was.
inline constexpr std::size_t kDeciding = 5;
std::size_t count_runs(const MessageContests& contests);
Result<void> run_contests(const MessageContests& contests, const MessageRunner& runner, MessageReport& report);

}  // namespace verbena::tools
