// SPDX-License-Identifier: Apache-2.0
// One line between driver and peer: a word and arguments, "poll pair=1 queue=send count=4". An answer's word
// is "ok" or "error".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::interop {

class Line {
 public:
  explicit Line(std::string_view text);

  const std::string& word() const { return word_; }

  // Arguments are taken one by one. What is missing or malformed is kept for complaint().
  std::string text(const std::string& name);
  std::uint64_t number(const std::string& name);  // decimal, or hexadecimal after 0x
  std::uint64_t number(const std::string& name, std::uint64_t otherwise);
  std::vector<std::string> list(const std::string& name);  // between commas; empty when absent
  // What is wrong with the line once its arguments are taken: those left over are wrong, too.
  std::optional<std::string> complaint() const;

 private:
  std::optional<std::string> take(const std::string& name);
  void complain(std::string what);

  std::string word_;
  std::map<std::string, std::string> arguments_;
  std::string complaint_;
};

std::vector<std::string> split(std::string_view text, char separator);
// Decimal, or hexadecimal after 0x.
std::optional<std::uint64_t> parse_number(std::string_view text);
std::string hexadecimal(std::uint64_t value);  // "0x1f"

// Lines over a connected socket, which it owns.
class LineSocket {
 public:
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;
  ~LineSocket();

  // False when the connection is gone.
  bool send(const std::string& line);
  // Without the line's end; nothing when the connection is gone.
  std::optional<std::string> receive();

 private:
  int descriptor_;
  std::string buffer_;
};

}  // namespace verbena::interop
