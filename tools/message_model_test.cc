// SPDX-License-Identifier: Apache-2.0
#include "tools/message_model.h"

#include <gtest/gtest.h>

#include "tools/test_message_rows.h"

namespace verbena::tools {
namespace {

constexpr TestCosts kModelCosts{{0.2, 0.00005}, {3.1, 0.0004}, {0.5, 0.00012}};
const messaging::Kind kKind = test_kind("send-receive");

void expect_cost(const LinearCost& found, const LinearCost& expected, double within) {
  EXPECT_NEAR(found.fixed, expected.fixed, expected.fixed * within);
  EXPECT_NEAR(found.per_byte, expected.per_byte, expected.per_byte * within);
}

TEST(MessageModel, finds_the_costs_that_made_the_rows) {
  const auto model = fit_message_model(test_rows(kKind, kModelCosts), kKind, PathChoice::Roce);
  ASSERT_TRUE(model);
  expect_cost(model->overhead, kModelCosts.overhead, 1e-3);
  expect_cost(model->latency, kModelCosts.latency, 1e-3);
  expect_cost(model->gap, kModelCosts.gap, 1e-3);
  EXPECT_NEAR(model->one_way(1000), 0.2 + 0.05 + 3.1 + 0.4, 0.01);
  EXPECT_NEAR(model->messages_per_second(1000), 1e6 / 0.62, 1e4);
  EXPECT_NEAR(model->bytes_per_second(1000), 1e9 / 0.62, 1e7);
  EXPECT_NEAR(model->half_bandwidth_bytes(), 0.5 / 0.00012, 10);
}

TEST(MessageModel, is_not_led_astray_by_noise_and_says_how_far_off_it_is) {
  auto rows = test_rows(kKind, kModelCosts);
  std::uint32_t x = 1;
  for (int repeated = 0; repeated < 3; ++repeated) rows.insert(rows.end(), rows.begin(), rows.begin() + 12);
  for (MessageRow& row : rows) {
    x = x * 1664525 + 1013904223;
    const double factor = 0.9 + 0.2 * (x >> 16) / 65536;
    row.typical *= factor;
    row.elapsed.ns = std::llround(static_cast<double>(row.elapsed.ns) * factor);
  }
  const auto model = fit_message_model(rows, kKind, PathChoice::Roce);
  ASSERT_TRUE(model);
  expect_cost(model->latency, kModelCosts.latency, 0.12);
  expect_cost(model->gap, kModelCosts.gap, 0.12);
  const auto all = predictions(*model, rows);
  EXPECT_EQ(all.size(), rows.size());
  for (const MessagePrediction& one : all) EXPECT_LT(std::abs(one.error()), 0.2) << one.test.size;
  EXPECT_GT(typical_error(all), 0.005);
  EXPECT_LT(typical_error(all), 0.1);
}

TEST(MessageModel, weighs_a_small_message_as_much_as_a_large_one) {
  const std::array points{CostPoint{0, 1}, CostPoint{64, 1}, CostPoint{1 << 20, 1000}};
  const auto cost = fit_cost(points);
  ASSERT_TRUE(cost);
  EXPECT_NEAR(cost->fixed, 1, 0.05);
  EXPECT_NEAR(cost->of(1 << 20), 1000, 10);
}

TEST(MessageModel, has_no_negative_cost) {
  // Straight lines through these have a negative slope, and a negative cost of nothing.
  const auto falling = fit_cost(std::array{CostPoint{0, 3}, CostPoint{100, 2}, CostPoint{200, 2}});
  ASSERT_TRUE(falling);
  EXPECT_EQ(falling->per_byte, 0);
  EXPECT_NEAR(falling->fixed, (1.0 / 3 + 1) / (1.0 / 9 + 0.5), 1e-9);
  const auto steep = fit_cost(std::array{CostPoint{100, 1}, CostPoint{200, 4}});
  ASSERT_TRUE(steep);
  EXPECT_EQ(steep->fixed, 0);
  EXPECT_NEAR(steep->per_byte, (100.0 + 50) / (100 * 100 + 50 * 50), 1e-9);
  // An overhead that is longer than the whole way leaves a latency of nothing.
  TestCosts costs = kModelCosts;
  costs.overhead = {9, 0.01};
  auto rows = test_rows(kKind, costs);
  for (MessageRow& row : rows) row.typical = kModelCosts.latency.of(row.test.size);
  const auto model = fit_message_model(rows, kKind, PathChoice::Roce);
  ASSERT_TRUE(model);
  EXPECT_GE(model->latency.fixed, 0);
  EXPECT_GE(model->latency.per_byte, 0);
  EXPECT_NEAR(model->one_way(4096), kModelCosts.latency.of(4096), 0.2);
}

TEST(MessageModel, takes_an_overhead_nobody_measured_for_a_part_of_the_latency) {
  auto rows = test_rows(kKind, kModelCosts);
  for (MessageRow& row : rows) row.overhead = 0;
  const auto model = fit_message_model(rows, kKind, PathChoice::Roce);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->overhead.of(100), 0);
  expect_cost(model->latency, {3.3, 0.00045}, 1e-3);
}

TEST(MessageModel, needs_two_sizes_of_each) {
  const auto no_model = [](const std::vector<MessageRow>& rows) {
    const auto model = fit_message_model(rows, kKind, PathChoice::Roce);
    return model ? std::string("a model") : model.error().to_string();
  };
  const auto latency = [](std::uint32_t size) { return test_row(kKind, MessageMeasure::Latency, size, kModelCosts); };
  const auto rate = [](std::uint32_t size) { return test_row(kKind, MessageMeasure::Rate, size, kModelCosts); };
  EXPECT_NE(no_model({}).find("latencies of at least two sizes"), std::string::npos);
  EXPECT_NE(no_model({latency(8), latency(8), rate(8), rate(64)}).find("latencies"), std::string::npos);
  EXPECT_NE(no_model({latency(8), latency(64), rate(8)}).find("bandwidths or rates"), std::string::npos);
  EXPECT_EQ(no_model({latency(8), latency(64), rate(8), rate(64)}), "a model");
  // Other kinds, paths, numbers of senders, and rows in which nothing went.
  auto other = rate(64);
  other.kind = test_kind("direct-read");
  EXPECT_NE(no_model({latency(8), latency(64), rate(8), other}), "a model");
  other = rate(64);
  other.test.path = PathChoice::Local;
  EXPECT_NE(no_model({latency(8), latency(64), rate(8), other}), "a model");
  other = rate(64);
  other.test.senders = 2;
  EXPECT_NE(no_model({latency(8), latency(64), rate(8), other}), "a model");
  other = rate(64);
  other.messages = 0;
  EXPECT_NE(no_model({latency(8), latency(64), rate(8), other}), "a model");
}

TEST(MessageModel, fits_each_kind_and_path_that_has_enough_rows) {
  auto rows = test_rows(kKind, kModelCosts);
  const auto more = test_rows(test_kind("buffered-write/reversed"), kModelCosts, PathChoice::Local);
  rows.insert(rows.end(), more.begin(), more.end());
  rows.push_back(test_row(test_kind("direct-read"), MessageMeasure::Latency, 8, kModelCosts));
  const auto models = fit_all_models(rows);
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].kind, kKind);
  EXPECT_EQ(models[1].kind, test_kind("buffered-write/reversed"));
  EXPECT_EQ(models[1].path, PathChoice::Local);
  EXPECT_EQ(predictions(models[1], rows).size(), more.size());
}

}  // namespace
}  // namespace verbena::tools
