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

Result<std::uint64_t> parse_bytes(const std::string& text, std::uint64_t min, std::uint64_t max) {
  constexpr std::string_view kSuffixes = "kmgKMG";
  const std::size_t suffix = text.empty() ? kSuffixes.npos : kSuffixes.find(text.back());
  const bool is_plain = suffix == kSuffixes.npos;
  const std::uint64_t unit = is_plain ? 1 : std::uint64_t{1} << 10 * (suffix % 3 + 1);
  std::uint64_t count = 0;
  if (parse(is_plain ? text : text.substr(0, text.size() - 1), std::uint64_t{0}, max / unit, count) &&
      count * unit >= min)
    return count * unit;
  return Error(ErrorCode::InvalidArgument,
               fmt::format("'{}' is no number of bytes, as 4096, 64K or 1M, from {} to {}", text, min, max));
}

Result<double> parse_seconds(const std::string& text, double min, double max) {
  double value = 0;
  if (parse(text, min, max, value)) return value;  // a NaN is in no range
  return Error(ErrorCode::InvalidArgument,
               fmt::format("'{}' is no number of seconds from {} to {:.0f}", text, min, max));
}

namespace {

// Rewritten in plain digits: the parser behind would take a leading zero for base eight.
template <class Parse>
void rewrite(CLI::Option* option, std::uint64_t min, std::uint64_t max, Parse parse_number) {
  const auto read = [=](std::string& text) -> std::string {
    const auto value = parse_number(text, min, max);
    if (!value) return value.error().context();
    text = std::to_string(*value);
    return {};
  };
  option->transform(CLI::Validator(read, ""));
}

}  // namespace

void require_word(CLI::Option* option) {
  option->check(CLI::Validator([](std::string& text) { return std::string(text.empty() ? "an empty word" : ""); }, ""));
}

void require_whole(CLI::Option* option, std::uint64_t min, std::uint64_t max) {
  rewrite(option, min, max, parse_whole);
}

void require_bytes(CLI::Option* option, std::uint64_t min, std::uint64_t max) {
  rewrite(option, min, max, parse_bytes);
}

void require_seconds(CLI::Option* option, double min, double max) {
  const auto read = [min, max](const std::string& text) -> std::string {
    const auto value = parse_seconds(text, min, max);
    return value ? std::string() : value.error().context();
  };
  option->check(read);
}

}  // namespace verbena::tools
