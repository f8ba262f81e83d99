// SPDX-License-Identifier: Apache-2.0
// How commands speak of errors.
#pragma once

#include <string>
#include <string_view>

#include "verbena/base/error.h"

namespace verbena::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// What the user can do about it; empty when there is nothing to say.
std::string_view advice(const Error& error);

// "verbena get: ConnectionRefused: ...", and on a second line what to do. Returns kExitFailure.
int report_error(std::string_view command, const Error& error);
// The same with other advice; none when empty.
int report_error(std::string_view command, const Error& error, std::string_view what_to_do);
// The same in plain words.
int report_failure(std::string_view command, std::string_view what, std::string_view what_to_do);
// A wrong argument: the second line names the command's help. Returns kExitUsage.
int report_usage(std::string_view command, std::string_view what);

}  // namespace verbena::tools
