// SPDX-License-Identifier: Apache-2.0
// Words that were mistyped.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace verbena::tools {

// Of `words` the one that `word` was probably meant to be; empty when none is near.
std::string nearest_word(std::string_view word, std::span<const std::string> words);
// " (did you mean write?)", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> words);
// "lat, bw, rate"
std::string list_words(std::span<const std::string> words);

}  // namespace verbena::tools
