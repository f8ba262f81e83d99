// SPDX-License-Identifier: Apache-2.0
// Another program, run in the place of the user who would have run it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verbena/base/result.h"

namespace verbena::tools {

// Runs words[0], found by PATH, with `variable` set to `value`, and calls `glance` every 100 ms until it ends. Signals
// from the terminal are the program's affair. Its exit status, or 128 and the signal that ended it, as shells tell it.
// Errors: NotFound, PermissionDenied, ResourceExhausted (it did not start).
Result<int> run_child(const std::vector<std::string>& words, const std::string& variable, const std::string& value,
                      const std::function<void()>& glance);

// An absolute path, for a program that may change its folder.
std::string absolute_path(const std::string& path);

}  // namespace verbena::tools
