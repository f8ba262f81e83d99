// SPDX-License-Identifier: Apache-2.0
// What all commands below `verbena bench` have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/result.h"
#include "verbena/base/time.h"

namespace verbena::tools {

inline constexpr std::string_view kBenchDashes =
    "---------------------------------------------------------------------------------------\n";
inline constexpr std::string_view kWritableFiles = "Name files that can be written.";
inline constexpr double kMebibyte = 1 << 20;  // bytes; perftest's "MB"
// An end that sleeps until something comes asks so often whether it shall go on.
inline constexpr Duration kBenchGlance = Duration::milliseconds(20);

// What to do about an error of a benchmark.
std::string_view bench_advice(const Error& error);
// On stderr, when the processor's frequency changes by itself.
void warn_of_frequency();

// Before anything is measured that could then not be kept. An empty name is none. Errors: those of writing it.
Result<void> check_writable(const std::string& name);
// Files that a command writes, each another. Errors besides: InvalidArgument.
Result<void> check_results(const std::vector<std::string>& names);
Result<void> write_file(const std::string& name, const std::string& text);

}  // namespace verbena::tools
