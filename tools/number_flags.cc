// SPDX-License-Identifier: Apache-2.0
#include "tools/number_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

namespace verbena::tools {

namespace {

// The whole text as a number within the range; from_chars() takes no blank, and a sign only for what can be negative.
template <class T>
bool parse(const std::string& text, T min, T max, T& value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stopped == end && value >= min && value <= max;
}

}  // namespace

Result<std::uint64_t> parse_whole(const std::string& text, std::uint64_t min, std::uint64_t max) {
  std::uint64_t value = 0;
  if (parse(text, min, max, value)) return value;
  return Error(ErrorCode::InvalidArgument, fmt::format("'{}' is no whole number from {} to {}", text, min, max));
}

Result<double> parse_seconds(const std::string& text, double min, double max) {
  double value = 0;
  if (parse(text, min, max, value)) return value;  // a NaN is in no range
  return Error(ErrorCode::InvalidArgument,
               fmt::format("'{}' is no number of seconds from {} to {:.0f}", text, min, max));
}

// Rewritten in plain digits: the parser behind would take a leading zero for base eight.
void require_whole(CLI::Option* option, std::uint64_t min, std::uint64_t max) {
  const auto read = [min, max](std::string& text) -> std::string {
    const auto value = parse_whole(text, min, max);
    if (!value) return value.error().context();
    text = std::to_string(*value);
    return {};
  };
  option->transform(CLI::Validator(read, ""));
}

void require_seconds(CLI::Option* option, double min, double max) {
  const auto read = [min, max](const std::string& text) -> std::string {
    const auto value = parse_seconds(text, min, max);
    return value ? std::string() : value.error().context();
  };
  option->check(read);
}

}  // namespace verbena::tools
