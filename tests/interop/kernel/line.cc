// SPDX-License-Identifier: Apache-2.0
#include "line.h"

#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <sstream>

namespace verbena::interop {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string{text}};
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  const bool hex = text.substr(0, 2) == "0x";
  if (hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string hexadecimal(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

Line::Line(std::string_view text) {
  const auto words = split(text, ' ');
  if (words.empty()) return;
  word_ = words[0];
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (equals == std::string::npos)
      complain("'" + words[i] + "' is not name=value");
    else
      arguments_[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
}

std::optional<std::string> Line::take(const std::string& name) {
  const auto node = arguments_.extract(name);
  if (node.empty()) return std::nullopt;
  return node.mapped();
}

void Line::complain(std::string what) {
  if (complaint_.empty()) complaint_ = word_ + ": " + std::move(what);
}

std::string Line::text(const std::string& name) {
  auto value = take(name);
  if (!value) complain(name + "= is missing");
  return value.value_or("");
}

std::uint64_t Line::number(const std::string& name) {
  const std::string value = text(name);
  const auto parsed = parse_number(value);
  if (!parsed) complain(name + "=" + value + " is not a number");
  return parsed.value_or(0);
}

std::uint64_t Line::number(const std::string& name, std::uint64_t otherwise) {
  return arguments_.contains(name) ? number(name) : otherwise;
}

std::vector<std::string> Line::list(const std::string& name) { return split(take(name).value_or(""), ','); }

std::optional<std::string> Line::complaint() const {
  if (!complaint_.empty()) return complaint_;
  if (!arguments_.empty()) return word_ + ": there is no argument " + arguments_.begin()->first + "=";
  return std::nullopt;
}

LineSocket::~LineSocket() { ::close(descriptor_); }

bool LineSocket::send(const std::string& line) {
  const std::string bytes = line + "\n";
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(descriptor_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

std::optional<std::string> LineSocket::receive() {
  for (;;) {
    const auto end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char bytes[4096];
    const ssize_t n = ::recv(descriptor_, bytes, sizeof bytes, 0);
    if (n <= 0) return std::nullopt;
    buffer_.append(bytes, static_cast<std::size_t>(n));
  }
}

}  // namespace verbena::interop
