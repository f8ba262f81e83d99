// SPDX-License-Identifier: Apache-2.0
// What --json prints.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tools/safe_path.h"
#include "tools/say.h"
#include "verbena/base/error.h"

namespace verbena::tools {

// Texts in it went through printable(); bytes that are no UTF-8 all the same are replaced.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}
inline void say_json(const nlohmann::json& value) { say(stdout, "{}", json_text(value)); }

// What stands behind "error".
inline nlohmann::json error_json(const Error& error) {
  return {{"code", std::string(to_string(error.code()))}, {"message", printable(error.to_string())}};
}

// Of a command that failed before there was anything to tell.
inline std::string failure_text(std::string_view command, const Error& error) {
  return json_text({{"command", std::string(command)}, {"ok", false}, {"error", error_json(error)}});
}

}  // namespace verbena::tools
