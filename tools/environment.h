// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that look like Verbena's.
#pragma once

#include <string>
#include <vector>

namespace verbena::tools {

// Names that begin with VERBENA_ and that environment() does not know, printable, sorted.
std::vector<std::string> unknown_variables();

}  // namespace verbena::tools
