// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tools/digest.h"
#include "tools/histogram.h"
#include "tools/number_flags.h"
#include "tools/ping_protocol.h"
#include "tools/progress.h"

namespace verbena::tools {
namespace {

TEST(Digest, gives_the_digests_of_the_standard) {
  Digest digest;
  EXPECT_EQ(to_hex(digest.finish()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string text = "abc";
  digest.add(std::as_bytes(std::span(text)).first(1));
  digest.add(std::as_bytes(std::span(text)).subspan(1));
  EXPECT_EQ(to_hex(digest.finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Bytes, may_be_given_in_powers_of_1024_within_their_range) {
  const auto bytes = [](const char* text) { return parse_bytes(text, 1, std::uint64_t{4} << 30).value_or(0); };
  EXPECT_EQ(bytes("4096"), 4096u);
  for (const char* same : {"64k", "64K"}) EXPECT_EQ(bytes(same), 65536u);
  EXPECT_EQ(bytes("1M"), 1u << 20);
  EXPECT_EQ(bytes("4G"), std::uint64_t{4} << 30);
  for (const char* wrong : {"", "k", "0k", "5G", "64kB", "64kk", "-1k", " 1k", "1.5k", "99999999999999999999k"})
    EXPECT_EQ(bytes(wrong), 0u) << wrong;
  EXPECT_EQ(parse_bytes("5G", 1, 8).error().context(), "'5G' is no number of bytes, as 4096, 64K or 1M, from 1 to 8");
}

TEST(Histogram, keeps_percentiles_within_its_width) {
  Histogram histogram;
  std::vector<std::int64_t> all;
  std::int64_t value = 1;
  for (int i = 0; i < 5000; ++i) {
    value = value * 48271 % 2147483647;
    all.push_back(value % 10'000'000);
    histogram.add(all.back());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(histogram.count(), all.size());
  EXPECT_EQ(histogram.min(), all.front());
  EXPECT_EQ(histogram.max(), all.back());
  for (const double part : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const std::int64_t exact = all[static_cast<std::size_t>(std::ceil(part * static_cast<double>(all.size()))) - 1];
    EXPECT_GE(histogram.percentile(part), exact);
    EXPECT_LE(histogram.percentile(part), exact + exact / 128 + 1);
  }
}

TEST(Histogram, adds_another_as_if_its_values_came_one_by_one) {
  Histogram all, one, other;
  for (const std::int64_t value : {7, 900, 12'345}) one.add(value), all.add(value);
  for (const std::int64_t value : {3, 901, 1'000'000'000}) other.add(value), all.add(value);
  one.add(Histogram());
  EXPECT_EQ(one.min(), 7);
  one.add(other);
  EXPECT_EQ(one.buckets(), all.buckets());
  EXPECT_EQ(one.count(), 6u);
  EXPECT_EQ(one.min(), 3);
  EXPECT_EQ(one.max(), 1'000'000'000);
  EXPECT_DOUBLE_EQ(one.average(), all.average());
  EXPECT_DOUBLE_EQ(one.standard_deviation(), all.standard_deviation());
  Histogram empty;
  empty.add(other);
  EXPECT_EQ(empty.min(), 3);
  EXPECT_EQ(empty.buckets(), other.buckets());
}

TEST(Histogram, is_exact_for_small_values_and_holds_the_largest) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0);
  for (std::int64_t i = 0; i < 100; ++i) histogram.add(i);
  EXPECT_EQ(histogram.percentile(0.5), 49);
  histogram.add(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(histogram.percentile(1), std::numeric_limits<std::int64_t>::max());
  histogram.add(-5);
  EXPECT_EQ(histogram.min(), 0);
}

TEST(Progress, writes_sizes_and_times_for_people) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(12'345'678), "12.3 MB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_seconds(3.14), "3.1 s");
  EXPECT_EQ(format_seconds(67), "1:07");
  EXPECT_EQ(format_seconds(7424), "2:03:44");
}

TEST(Progress, shows_part_rate_and_time_to_go_in_one_line) {
  ProgressState state;
  state.bytes = 25'000'000;
  state.total_bytes = 100'000'000;
  state.rate = 5'000'000;
  state.name = "some/file";
  EXPECT_EQ(progress_line(state, 200), " 25% [#####...............] 25.0 MB, 5.00 MB/s, 15.0 s to go  some/file");
  EXPECT_EQ(progress_line(state, 10).size(), 10u);
  state.total_bytes = 0;
  EXPECT_EQ(progress_line(state, 200), "25.0 MB, 5.00 MB/s  some/file");
}

TEST(PingRequest, reads_back_what_it_wrote_and_nothing_else) {
  const PingRequest request{PingOperation::FetchAndAdd, 8};
  auto bytes = request.to_bytes();
  EXPECT_EQ(*PingRequest::from_bytes(bytes), request);
  EXPECT_FALSE(PingRequest::from_bytes(std::span(bytes).first(PingRequest::kWireBytes - 1)));
  for (const std::size_t at : {0u, 4u, 5u, 11u}) {
    auto damaged = bytes;
    damaged[at] = std::byte{99};
    EXPECT_FALSE(PingRequest::from_bytes(damaged)) << at;
  }
  EXPECT_EQ(parse_ping_operation("cas"), PingOperation::CompareAndSwap);
  EXPECT_FALSE(parse_ping_operation("CAS").has_value());
}

}  // namespace
}  // namespace verbena::tools
