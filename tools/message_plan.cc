// SPDX-License-Identifier: Apache-2.0
#include "tools/message_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr std::uint32_t kSizes[] = {8, 64, 512, 4096, 65536, 1 << 20};
constexpr std::uint32_t kSmall = 64;  // of tests by numbers of senders and threads
constexpr std::uint32_t kSenders[] = {1, 4, 16, 64};
constexpr std::uint32_t kThreads[] = {2, 4};
constexpr std::uint32_t kBatch = 16;
// What one test moves at most, and has in flight at most.
constexpr std::uint64_t kBytesOfTest = 64 << 20, kBytesInFlight = 4 << 20;
constexpr std::uint64_t kRing = 1 << 20, kRingOfMany = 64 << 10;
constexpr std::uint64_t kHeaderBytes = 64;

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
  test.ring_bytes = std::max(kRing, std::bit_ceil(test.window * (size + kHeaderBytes)));
  test.iterations = bounded(measure == MessageMeasure::Latency ? iterations : 10 * iterations, size);
  return test;
}

MessageTest by_number(const messaging::Kind& kind, PathChoice path, std::uint32_t senders, std::uint32_t threads,
                      std::uint64_t iterations) {
  MessageTest test = by_size(kind, path, MessageMeasure::Rate, kSmall, iterations);
  test.senders = senders;
  test.threads = threads;
  test.ring_bytes = kRingOfMany;
  // All together as many as one.
  test.iterations = std::max<std::uint64_t>(test.iterations / senders / threads, 8);
  return test;
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
      tests.push_back(by_number(kind, path, senders, 1, plan.iterations));
    for (const std::uint32_t threads : kThreads)
      tests.push_back(by_number(kind, path, 1, threads, plan.iterations));
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

}  // namespace verbena::tools
