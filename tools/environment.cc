// SPDX-License-Identifier: Apache-2.0
#include "tools/environment.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "tools/safe_path.h"
#include "verbena/device/environment.h"

extern char** environ;  // NOLINT(readability-identifier-naming)

namespace verbena::tools {

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

}  // namespace verbena::tools
