// SPDX-License-Identifier: Apache-2.0
// Rows as a machine with known costs would give them.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tools/message_model.h"

namespace verbena::tools {

inline constexpr std::array<std::uint32_t, 6> kTestSizes{8, 64, 512, 4096, 65536, 1 << 20};

inline messaging::Kind test_kind(std::string_view name) { return messaging::parse_kind(name).value(); }

struct TestCosts {
  LinearCost overhead, latency, gap;
};

inline MessageRow test_row(const messaging::Kind& kind, MessageMeasure measure, std::uint32_t size,
                           const TestCosts& costs, PathChoice path = PathChoice::Roce) {
  MessageRow row;
  row.test.kind = row.kind = kind;
  row.test.path = path;
  row.test.measure = measure;
  row.test.size = size;
  row.messages = 1000;
  row.overhead = costs.overhead.of(size);
  const bool alone = measure == MessageMeasure::Latency;
  const double each = alone ? 2 * (costs.overhead.of(size) + costs.latency.of(size)) : costs.gap.of(size);
  row.elapsed.ns = std::llround(each * 1e3 * static_cast<double>(row.messages));
  if (alone) {
    row.typical = row.average = each / 2;
    row.minimum = each * 0.4;
    row.p99 = each, row.p999 = each * 2, row.maximum = each * 4;
  }
  return row;
}

// A latency and a bandwidth of each size.
inline std::vector<MessageRow> test_rows(const messaging::Kind& kind, const TestCosts& costs,
                                         PathChoice path = PathChoice::Roce) {
  std::vector<MessageRow> rows;
  for (const std::uint32_t size : kTestSizes) {
    rows.push_back(test_row(kind, MessageMeasure::Latency, size, costs, path));
    rows.push_back(test_row(kind, MessageMeasure::Bandwidth, size, costs, path));
  }
  return rows;
}

}  // namespace verbena::tools
