// SPDX-License-Identifier: Apache-2.0
#include "tools/message_runs.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::tools {

namespace {

constexpr std::size_t kWithoutExtremes = 5;
constexpr double kHalfMore = 1.5;

double width_of(std::vector<double> merits) {
  std::ranges::sort(merits);
  const std::size_t aside = merits.size() < kWithoutExtremes ? 0 : 1;
  return merits[merits.size() - 1 - aside] - merits[aside];
}

}  // namespace

double merit_of(const MessageRow& row) {
  if (row.test.is_latency()) return row.typical > 0 ? 1 / row.typical : 0;
  return row.messages_per_second();
}

MessageRow middle_of(std::vector<MessageRow> runs) {
  std::vector<double> merits;
  merits.reserve(runs.size());
  for (const MessageRow& run : runs) merits.push_back(merit_of(run));
  std::ranges::sort(runs, {}, merit_of);
  MessageRow middle = std::move(runs[(runs.size() - 1) / 2]);
  middle.merits = std::move(merits);
  return middle;
}

double spread_of(const MessageRow& row) {
  if (row.merits.empty()) return 0;
  const auto [worst, best] = std::ranges::minmax(row.merits);
  return worst > 0 ? best / worst - 1 : 0;
}

bool are_alike(const MessageRow& one, const MessageRow& other) {
  if (!is_repeated(one) || !is_repeated(other)) return false;
  const auto [less, more] = std::minmax({merit_of(one), merit_of(other)});
  return more - less <= std::max(width_of(one.merits), width_of(other.merits)) && more <= kHalfMore * less;
}

std::string spread_text(const MessageRow& row) {
  const double spread = spread_of(row);
  const std::string how = spread < 1 ? fmt::format("{:.0f} % better than", spread * 100)
                                     : fmt::format("{:.3g} times as good as", spread + 1);
  return fmt::format("the best of {} runs was {} the worst", row.merits.size(), how);
}

}  // namespace verbena::tools
