// SPDX-License-Identifier: Apache-2.0
// A line of text for people, put together from words and numbers.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::wire {

class Line {
 public:
  Line() = default;
  explicit Line(std::string_view text) : text_(text) {}

  Line& add(std::string_view text) {
    text_ += text;
    return *this;
  }
  Line& decimal(std::uint64_t value) {
    char digits[20];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    return *this;
  }
  // "0x", and at least `width` digits.
  Line& hex(std::uint64_t value, std::size_t width = 1) {
    char digits[16];
    const char* end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
    const auto count = static_cast<std::size_t>(end - digits);
    text_ += "0x";
    if (count < width) text_.append(width - count, '0');
    text_.append(digits, count);
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace verbena::wire
