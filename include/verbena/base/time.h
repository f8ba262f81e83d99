// SPDX-License-Identifier: Apache-2.0
// Time as the library hands it around: nanoseconds, monotonic, from an origin only the clock's owner knows.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace verbena {

// A span of time in nanoseconds; may be negative.
struct Duration {
  std::int64_t ns = 0;

  static constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
  static constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
  static constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
  static constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }
  static constexpr Duration forever() { return {std::numeric_limits<std::int64_t>::max()}; }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration o) const { return {ns + o.ns}; }
  constexpr Duration operator-(Duration o) const { return {ns - o.ns}; }
  constexpr Duration operator*(std::int64_t k) const { return {ns * k}; }
  constexpr Duration operator/(std::int64_t k) const { return {ns / k}; }
};

// A point on a monotonic clock. Instant::never() compares later than every other.
struct Instant {
  std::int64_t ns = 0;

  static constexpr Instant never() { return {std::numeric_limits<std::int64_t>::max()}; }

  constexpr auto operator<=>(const Instant&) const = default;
  constexpr bool is_never() const { return *this == never(); }
  // Both saturate, + at never().
  constexpr Instant operator+(Duration d) const {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(ns, d.ns, &sum)) sum = farthest(d.ns > 0);
    return {sum};
  }
  constexpr Duration operator-(Instant o) const {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(ns, o.ns, &difference)) difference = farthest(o.ns < 0);
    return {difference};
  }

 private:
  static constexpr std::int64_t farthest(bool ahead) {
    using Limits = std::numeric_limits<std::int64_t>;
    return ahead ? Limits::max() : Limits::min();
  }
};

}  // namespace verbena
