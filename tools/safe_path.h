// SPDX-License-Identifier: Apache-2.0
// Names and paths that cannot lead out of a tree.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/result.h"

namespace verbena::tools {

inline constexpr std::size_t kMaxNameBytes = 255;
inline constexpr std::size_t kMaxDepth = 64;  // components of a path, levels of a tree

// One component: not empty, not "." or "..", no '/', no NUL, at most kMaxNameBytes.
bool is_safe_name(std::string_view name);

// Components of a relative path; none for the empty path. InvalidArgument: absolute, an empty component, "." or "..",
// NUL, too long, too many.
Result<std::vector<std::string>> split_path(std::string_view path);

// Last component, empty when there is none.
std::string last_component(std::string_view path);

// As people may see it on a terminal: control characters and broken UTF-8 as \xNN, newline as \n, backslash as \\.
std::string printable(std::string_view text);

}  // namespace verbena::tools
