// SPDX-License-Identifier: Apache-2.0
#include "tools/safe_path.h"

#include <cstdint>

namespace verbena::tools {

namespace {

Error unsafe(std::string_view path, const std::string& why) {
  return Error(ErrorCode::InvalidArgument, "path '" + std::string(path) + "' " + why);
}

// Length of the UTF-8 sequence that starts `text`; 0 when it is broken, or a control character of two bytes.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  std::size_t length = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) length = 2;
  else if (lead >= 0xe0 && lead < 0xf0) length = 3;
  else if (lead >= 0xf0 && lead < 0xf5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  if (lead == 0xc2 && byte(1) < 0xa0) return 0;
  return length;
}

}  // namespace

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name == "." || name == "..") return false;
  return name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

Result<std::vector<std::string>> split_path(std::string_view path) {
  std::vector<std::string> parts;
  if (path.empty()) return parts;
  if (path.front() == '/')
    return unsafe(path, "begins with '/'; it lies below the served directory, one '/' behind the port");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return unsafe(path, "has an empty component");
    if (part == "." || part == "..") return unsafe(path, "has the component '" + std::string(part) + "'");
    if (!is_safe_name(part)) return unsafe(path, "has a component that is no name");
    if (parts.size() == kMaxDepth) return unsafe(path, "has more than " + std::to_string(kMaxDepth) + " components");
    parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

std::string last_component(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = sequence_length(text);
    if (c == '\n') out += "\\n";
    else if (c == '\\') out += "\\\\";
    else if (length == 0 || (length == 1 && (static_cast<std::uint8_t>(c) < 0x20 || c == 0x7f)))
      (out += "\\x").append({kHex[static_cast<std::uint8_t>(c) >> 4], kHex[c & 0xf]});
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace verbena::tools
