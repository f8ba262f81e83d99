// SPDX-License-Identifier: Apache-2.0
// What --json prints.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/say.h"

namespace verbena::tools {

// Texts in it went through printable(); bytes that are no UTF-8 all the same are replaced.
inline void say_json(const nlohmann::json& value) {
  say(stdout, "{}\n", value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace verbena::tools
