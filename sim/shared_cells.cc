// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_cells.h"

#include <algorithm>

namespace verbena::sim {

void SharedCells::check(Verdict& verdict) const {
  std::vector<std::uint64_t> history{0};
  std::size_t used = 0;
  const std::uint64_t final_value = value_at(kRegisterOffset);
  for (;;) {
    const std::uint64_t at = history.back();
    const auto starts_here = [at](const Swap& swap) { return swap.from == at; };
    const auto certain = std::find_if(certain_.begin(), certain_.end(), starts_here);
    if (certain != certain_.end()) {
      ++used;
      history.push_back(certain->to);
    } else {
      // Of two possible swaps from one value at most one happened; the one that leads on is the right one.
      const auto leads_on = [&](const Swap& swap) {
        return swap.from == at && (swap.to == final_value ||
                                   std::any_of(certain_.begin(), certain_.end(),
                                               [&](const Swap& s) { return s.from == swap.to; }) ||
                                   std::any_of(possible_.begin(), possible_.end(),
                                               [&](const Swap& s) { return s.from == swap.to; }));
      };
      const auto possible = std::find_if(possible_.begin(), possible_.end(), leads_on);
      if (possible == possible_.end()) break;
      history.push_back(possible->to);
    }
    if (history.size() > certain_.size() + possible_.size() + 1) break;
  }
  if (history.back() != final_value)
    return verdict.fail("atomics", "the shared register does not hold what its swaps lead to");
  if (used != certain_.size())
    return verdict.fail("atomics", "a compare-and-swap that succeeded was lost or happened twice");
  for (const std::uint64_t value : seen_)
    if (std::find(history.begin(), history.end(), value) == history.end())
      return verdict.fail("atomics", "a compare-and-swap found a value that was never there");
}

}  // namespace verbena::sim
