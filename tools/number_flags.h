// SPDX-License-Identifier: Apache-2.0
// Words and numbers on the command line, read strictly: of a number digits of base ten alone, the whole word, within a
// range.
#pragma once

#include <cstdint>
#include <string>

#include "verbena/base/result.h"

namespace CLI {
class Option;
}

namespace verbena::tools {

// InvalidArgument: "'70000' is no whole number from 0 to 65535". No sign, blank, prefix or fraction.
Result<std::uint64_t> parse_whole(const std::string& text, std::uint64_t min, std::uint64_t max);
// The same with k, M or G behind it: times 1024, its square, its cube.
Result<std::uint64_t> parse_bytes(const std::string& text, std::uint64_t min, std::uint64_t max);
// The same of seconds: "2", "0.5", "1e-3".
Result<double> parse_seconds(const std::string& text, double min, double max);

// Makes an option refuse an empty word, as of a variable of the shell that is not set: without it, a command may be a
// server, or do another thing than it is asked for.
void require_word(CLI::Option* option);
// Makes an option refuse everything else; the error names the option.
void require_whole(CLI::Option* option, std::uint64_t min, std::uint64_t max);
void require_bytes(CLI::Option* option, std::uint64_t min, std::uint64_t max);
void require_seconds(CLI::Option* option, double min, double max);

}  // namespace verbena::tools
