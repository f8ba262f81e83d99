// SPDX-License-Identifier: Apache-2.0
// How commands write: nobody may be reading, and a command whose reader has gone goes on with its work.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace verbena::tools {

// What cannot be written is lost. finish_output() asks once, at the end.
template <class... Args>
void say(std::FILE* file, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), file));
}

// The exit status: `status`, or kExitFailure, and a word about it, when not all of standard output was written. When
// that is because its reader has gone, the program ends here, as one does that SIGPIPE ends, with no word.
int finish_output(int status);

}  // namespace verbena::tools
