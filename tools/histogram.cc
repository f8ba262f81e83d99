// SPDX-License-Identifier: Apache-2.0
#include "tools/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace verbena::tools {

// Values below 2^7 have a bucket each; above, the highest set bit chooses a group and the next 7 bits the bucket in it.
std::size_t Histogram::bucket_of(std::uint64_t value) {
  const auto bits = static_cast<unsigned>(std::bit_width(value));
  if (bits <= kSubBits) return value;
  const unsigned shift = bits - kSubBits - 1;
  return (static_cast<std::size_t>(shift + 1) << kSubBits) + ((value >> shift) & ((1u << kSubBits) - 1));
}

std::uint64_t Histogram::last_of(std::size_t bucket) {
  const std::size_t group = bucket >> kSubBits;
  if (group == 0) return bucket;
  const std::size_t shift = group - 1;
  const std::uint64_t first = ((std::uint64_t{1} << kSubBits) + (bucket & ((1u << kSubBits) - 1))) << shift;
  return first + ((std::uint64_t{1} << shift) - 1);
}

void Histogram::add(std::int64_t ns) {
  ns = std::max<std::int64_t>(ns, 0);
  const std::size_t bucket = bucket_of(static_cast<std::uint64_t>(ns));
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
  min_ = count_ == 0 ? ns : std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
  sum_of_squares_ += static_cast<double>(ns) * static_cast<double>(ns);
  ++count_;
}

void Histogram::add(const Histogram& other) {
  if (other.count_ == 0) return;
  buckets_.resize(std::max(buckets_.size(), other.buckets_.size()));
  for (std::size_t bucket = 0; bucket < other.buckets_.size(); ++bucket) buckets_[bucket] += other.buckets_[bucket];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  sum_of_squares_ += other.sum_of_squares_;
  count_ += other.count_;
}

double Histogram::standard_deviation() const {
  if (count_ == 0) return 0;
  const double mean = average();
  return std::sqrt(std::max(0.0, sum_of_squares_ / static_cast<double>(count_) - mean * mean));
}

std::vector<std::pair<std::int64_t, std::uint64_t>> Histogram::buckets() const {
  std::vector<std::pair<std::int64_t, std::uint64_t>> filled;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    if (buckets_[bucket] != 0)
      filled.emplace_back(std::min(max_, static_cast<std::int64_t>(last_of(bucket))), buckets_[bucket]);
  return filled;
}

std::int64_t Histogram::percentile(double part) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(part * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= wanted) return std::min(max_, static_cast<std::int64_t>(last_of(bucket)));
  }
  return max_;
}

}  // namespace verbena::tools
