// SPDX-License-Identifier: Apache-2.0
// Times by the million in little memory: buckets whose width is 1/128 of their value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace verbena::tools {

class Histogram {
 public:
  void add(std::int64_t ns);
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  // All 0 when nothing was added. Exact.
  std::int64_t min() const { return min_; }
  std::int64_t max() const { return max_; }
  double average() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // Of the population.
  double standard_deviation() const;
  // The value that `part` of all do not exceed, at most 1/128 above it; never above max(). 0 < part <= 1.
  std::int64_t percentile(double part) const;
  // Where something was added: the largest value of each bucket, at most max(), and how many fell into it, ascending.
  std::vector<std::pair<std::int64_t, std::uint64_t>> buckets() const;

 private:
  static constexpr unsigned kSubBits = 7;
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t last_of(std::size_t bucket);

  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = 0, max_ = 0;
  double sum_ = 0, sum_of_squares_ = 0;
};

}  // namespace verbena::tools
