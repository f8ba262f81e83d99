// SPDX-License-Identifier: Apache-2.0
#include "tools/nearest_word.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace verbena::tools {

namespace {

constexpr std::size_t kLongest = 100;  // of words that are compared

// Letters to insert, to drop and to exchange.
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t exchanged = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> words) {
  if (word.empty() || word.size() > kLongest) return "";
  std::string nearest;
  std::size_t least = 2 + word.size() / 4;
  for (const std::string& one : words) {
    const std::size_t shorter = std::min(one.size(), word.size());
    const bool begins = shorter > 1 && one.compare(0, shorter, word.substr(0, shorter)) == 0;  // "latency" for lat
    const std::size_t away = std::min(distance(word, one), begins ? 2 : kLongest);
    // Of a short word too little would be left.
    if (away >= least || away >= shorter) continue;
    least = away;
    nearest = one;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> words) {
  const std::string nearest = nearest_word(word, words);
  return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

std::string list_words(std::span<const std::string> words) {
  std::string list;
  for (const std::string& one : words) list += (list.empty() ? "" : ", ") + one;
  return list;
}

}  // namespace verbena::tools
