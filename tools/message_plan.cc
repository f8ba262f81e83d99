// SPDX-License-Identifier: Apache-2.0
#include "tools/message_plan.h"

#include <algorithm>
#include <utility>

#include "tools/message_choice.h"
#include "tools/message_runs.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr std::uint32_t kSizes[] = {8, 64, 512, 4096, 65536, 1 << 20};
constexpr std::uint32_t kSmall = 64;  // of tests by numbers of threads
// By numbers of senders: a ring of theirs holds those that are in flight, and little more than receives do.
constexpr std::uint32_t kOfMany = 1024;
constexpr std::uint32_t kSenders[] = {1, 4, 16, 64};
constexpr std::uint32_t kThreads[] = {1, 2, 4};
constexpr std::uint32_t kBatch = 16;
// What one test moves at most, and has in flight at most.
constexpr std::uint64_t kBytesOfTest = 64 << 20, kBytesInFlight = 4 << 20;
constexpr std::uint64_t kRingOfMany = 128 << 10;
// Of a run that decides: long enough to tell, and at most so many times the messages of the first.
constexpr Duration kEnough = Duration::milliseconds(50);
constexpr double kMostTimes = 100;

std::uint64_t bounded(std::uint64_t iterations, std::uint32_t size) {
  return std::max<std::uint64_t>(std::min(iterations, kBytesOfTest / size), 8);
}

MessageTest by_size(const messaging::Kind& kind, PathChoice path, MessageMeasure measure, std::uint32_t size,
                    std::uint64_t iterations) {
  MessageTest test;
  test.kind = kind;
  test.path = path;
  test.measure = measure;
  test.size = size;
  test.window = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBytesInFlight / size, 4, 64));
  test.ring_bytes = std::max(kUsualRing, ring_for(test.window, size));
  test.iterations = bounded(measure == MessageMeasure::Latency ? iterations : 10 * iterations, size);
  return test;
}

MessageTest by_number(const messaging::Kind& kind, PathChoice path, MessageMeasure measure, std::uint32_t size,
                      std::uint32_t senders, std::uint32_t threads, std::uint64_t iterations) {
  MessageTest test = by_size(kind, path, measure, size, iterations);
  test.senders = senders;
  test.threads = threads;
  test.ring_bytes = kRingOfMany;
  // All together as many as one.
  test.iterations = std::max<std::uint64_t>(test.iterations / senders / threads, 8);
  return test;
}

MessageTest longer(const MessageRow& row) {
  MessageTest test = row.test;
  const double times = static_cast<double>(kEnough.ns) / static_cast<double>(std::max<std::int64_t>(row.elapsed.ns, 1));
  test.iterations =
      static_cast<std::uint64_t>(static_cast<double>(test.iterations) * std::clamp(times, 1.0, kMostTimes));
  return test;
}

Result<void> run_contest(const std::vector<std::size_t>& rows, const MessageRunner& runner, MessageReport& report) {
  std::vector<MessageTest> tests;
  tests.reserve(rows.size());
  for (const std::size_t row : rows) tests.push_back(longer(report.rows[row]));
  std::vector<std::vector<MessageRow>> runs(rows.size());
  for (std::size_t turn = 0; turn < kDeciding; ++turn)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto row = runner.run(tests[i]);
      if (row) runs[i].push_back(std::move(*row));
      else if (runner.over()) return std::move(row).error();
    }
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!runs[i].empty()) report.rows[rows[i]] = middle_of(std::move(runs[i]));
  return {};
}

}  // namespace

MessageTest probe_of(PathChoice path) {
  return by_size({.protocol = messaging::Protocol::SendReceive}, path, MessageMeasure::Latency, 8, 8);
}

std::vector<MessageTest> tests_of(const MessagePlan& plan, PathChoice path) {
  std::vector<MessageTest> tests;
  for (const messaging::Kind& kind : plan.kinds) {
    for (const std::uint32_t size : kSizes)
      tests.push_back(by_size(kind, path, MessageMeasure::Latency, size, plan.iterations));
    for (const std::uint32_t size : kSizes) {
      const MessageMeasure measure = size <= kSmall ? MessageMeasure::Rate : MessageMeasure::Bandwidth;
      tests.push_back(by_size(kind, path, measure, size, plan.iterations));
    }
    tests.push_back(by_size(kind, path, MessageMeasure::Rate, kSizes[0], plan.iterations));
    tests.back().batch = kBatch;
    for (const std::uint32_t senders : kSenders)
      for (const MessageMeasure measure : {MessageMeasure::Rate, MessageMeasure::Latency})
        tests.push_back(by_number(kind, path, measure, kOfMany, senders, 1, plan.iterations));
    for (const std::uint32_t threads : kThreads)
      tests.push_back(by_number(kind, path, MessageMeasure::Rate, kSmall, 1, threads, plan.iterations));
  }
  return tests;
}

std::size_t count_tests(const MessagePlan& plan) {
  std::size_t count = 0;
  for (const PathChoice path : plan.paths) count += tests_of(plan, path).size();
  return count;
}

Result<void> run_plan(const MessagePlan& plan, const MessageRunner& runner, MessageReport& report) {
  const auto fail = [&](const MessageTest& test, const Error& error) {
    report.failures.push_back({test, printable(error.to_string())});
  };
  for (const PathChoice path : plan.paths) {
    const MessageTest probe = probe_of(path);
    if (auto there = runner.run(probe); !there) {
      if (runner.over()) return std::move(there).error();
      fail(probe, there.error());
      continue;
    }
    for (const MessageTest& test : tests_of(plan, path)) {
      auto row = runner.run(test);
      if (row) report.rows.push_back(std::move(*row));
      else if (runner.over()) return std::move(row).error();
      else fail(test, row.error());
    }
  }
  return {};
}

MessageContests contests_of(const MessageReport& report) {
  MessageContests contests;
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local, PathChoice::Auto})
    for (const MessageWish wish : kMessageWishes)
      if (auto rows = contenders(report.rows, wish, path); !rows.empty()) contests.push_back(std::move(rows));
  return contests;
}

std::size_t count_runs(const MessageContests& contests) {
  std::size_t count = 0;
  for (const auto& rows : contests) count += kDeciding * rows.size();
  return count;
}

Result<void> run_contests(const MessageContests& contests, const MessageRunner& runner, MessageReport& report) {
  for (const auto& rows : contests)
    if (auto outcome = run_contest(rows, runner, report); !outcome) return outcome;
  return {};
}

}  // namespace verbena::tools
