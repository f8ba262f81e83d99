// SPDX-License-Identifier: Apache-2.0
#include "tools/message_model.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace verbena::tools {

namespace {

bool belongs(const MessageRow& row, const messaging::Kind& kind, PathChoice path) {
  return row.kind == kind && row.test.path == path && row.test.is_alone() && row.test.batch == 1 &&
         row.messages > 0 && row.elapsed.ns > 0;
}

double gap_of(const MessageRow& row) { return 1e6 / row.messages_per_second(); }

// What is left of the line is pushed against 0, and the other parameter takes the best value beside it.
LinearCost with_no_fixed(double bytes_by_time, double squares) { return {0, bytes_by_time / squares}; }
LinearCost with_no_slope(double inverse, double inverse_squares) { return {inverse / inverse_squares, 0}; }

Error too_few(const messaging::Kind& kind, const std::string& what) {
  return Error(ErrorCode::InvalidArgument, "model of " + to_string(kind) + ": " + what + " of at least two sizes are "
                                           "needed");
}

}  // namespace

// Minimises the sum of ((fixed + per_byte * x) / y - 1)^2, which is a linear problem with weights 1 / y^2.
Result<LinearCost> fit_cost(std::span<const CostPoint> points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  bool differ = false;
  for (const auto& [x, y] : points) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
    differ = differ || x != points.front().bytes;
  }
  if (!differ) return Error(ErrorCode::InvalidArgument, "a line needs two different sizes");
  const double determinant = w * wxx - wx * wx;
  const LinearCost free{(wxx * wy - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant};
  if (free.fixed < 0) return with_no_fixed(wxy, wxx);
  if (free.per_byte < 0) return with_no_slope(wy, w);
  return free;
}

Result<MessageModel> fit_message_model(std::span<const MessageRow> rows, const messaging::Kind& kind,
                                       PathChoice path) {
  std::vector<CostPoint> overheads, ways, gaps;
  for (const MessageRow& row : rows) {
    if (!belongs(row, kind, path)) continue;
    const double bytes = row.test.size;
    if (row.overhead > 0) overheads.push_back({bytes, row.overhead});
    if (!row.test.is_latency()) gaps.push_back({bytes, gap_of(row)});
    else if (row.typical > 0) ways.push_back({bytes, row.typical});
  }
  const auto way = fit_cost(ways);
  if (!way) return too_few(kind, "latencies");
  const auto gap = fit_cost(gaps);
  if (!gap) return too_few(kind, "bandwidths or rates");
  MessageModel model{kind, path, {}, {}, *gap};
  // Nobody may have measured it: then it is part of the latency. More than the whole way it cannot be: a sender that
  // waits for room while it hands over is slowed by what the gap already tells.
  if (const auto overhead = fit_cost(overheads)) model.overhead = *overhead;
  model.overhead.fixed = std::min(model.overhead.fixed, way->fixed);
  model.overhead.per_byte = std::min(model.overhead.per_byte, way->per_byte);
  model.latency = {way->fixed - model.overhead.fixed, way->per_byte - model.overhead.per_byte};
  return model;
}

std::vector<MessagePrediction> predictions(const MessageModel& model, std::span<const MessageRow> rows) {
  std::vector<MessagePrediction> all;
  for (const MessageRow& row : rows) {
    if (!belongs(row, model.kind, model.path)) continue;
    if (!row.test.is_latency())
      all.push_back({row.test, row.messages_per_second(), model.messages_per_second(row.test.size)});
    else if (row.typical > 0)
      all.push_back({row.test, row.typical, model.one_way(row.test.size)});
  }
  return all;
}

double typical_error(std::span<const MessagePrediction> all) {
  if (all.empty()) return 0;
  std::vector<double> errors;
  for (const MessagePrediction& one : all) errors.push_back(std::abs(one.error()));
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::ranges::nth_element(errors, middle);
  return *middle;
}

std::vector<MessageModel> fit_all_models(std::span<const MessageRow> rows) {
  std::vector<std::pair<messaging::Kind, PathChoice>> seen;
  std::vector<MessageModel> models;
  for (const MessageRow& row : rows) {
    const std::pair one{row.kind, row.test.path};
    if (std::ranges::find(seen, one) != seen.end()) continue;
    seen.push_back(one);
    if (auto model = fit_message_model(rows, one.first, one.second)) models.push_back(*model);
  }
  return models;
}

}  // namespace verbena::tools
