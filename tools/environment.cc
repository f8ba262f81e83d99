// SPDX-License-Identifier: Apache-2.0
#include "tools/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tools/safe_path.h"
#include "verbena/base/device_info.h"

extern char** environ;  // NOLINT(readability-identifier-naming)

namespace verbena::tools {

namespace {

bool is_list_of_users(std::string_view text) {
  for (const char* at = text.data(), *const end = at + text.size();; ++at) {
    std::uint32_t user = 0;
    const auto [next, error] = std::from_chars(at, end, user);
    if (error != std::errc() || (next != end && *next != ',')) return false;
    if (next == end) return true;
    at = next;
  }
}

}  // namespace

std::vector<std::string> unknown_variables() {
  const auto known = environment();
  std::vector<std::string> unknown;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view setting = *at;
    const std::string name(setting.substr(0, setting.find('=')));
    const bool ours = name.rfind("VERBENA_", 0) == 0;
    const auto has_name = [&](const EnvironmentVariable& one) { return one.name == name; };
    if (ours && std::ranges::none_of(known, has_name)) unknown.push_back(printable(name));
  }
  std::ranges::sort(unknown);
  return unknown;
}

std::string wrong_with(const EnvironmentVariable& one) {
  if (!one.value) return "";
  const std::string& value = *one.value;
  if (one.name == "VERBENA_PATH" && !parse_path_choice(value)) return "set it to auto, roce or local";
  if (one.name == "VERBENA_LOCAL_COPY" && value != "auto" && value != "staged") return "set it to auto or staged";
  if ((one.name == "VERBENA_LOCAL_USERS" || one.name == "VERBENA_ADDRESS_USERS") && !is_list_of_users(value))
    return "set it to numbers of users, with commas between";
  return "";
}

}  // namespace verbena::tools
