// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that look like Verbena's.
#pragma once

#include <string>
#include <vector>

#include "verbena/device/environment.h"

namespace verbena::tools {

// Names that begin with VERBENA_ and that environment() does not know, printable, sorted.
std::vector<std::string> unknown_variables();

// What to set it to, where Device::open() does not understand its value; empty where it does, or it is not set.
std::string wrong_with(const EnvironmentVariable& one);

}  // namespace verbena::tools
