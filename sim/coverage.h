// SPDX-License-Identifier: Apache-2.0
// What happened during a run, counted.
#pragma once

#include <array>
#include <cstdint>

namespace verbena::sim {

// How often things happened: a simulation in which something never happens proves nothing about it.
struct Coverage {
  std::array<std::uint64_t, 32> statuses{};   // completions, by CompletionStatus
  std::array<std::uint64_t, 16> cm_events{};  // by cm::EventType
  std::array<std::uint64_t, 16> defects{};    // requests posted, by Defect
  std::uint64_t sequence_naks = 0, rnr_naks = 0, implied_naks = 0, timeouts = 0, ghosts = 0,
                atomic_replays = 0;
  std::uint64_t duplicates = 0, bad_icrc = 0;
  std::uint64_t drained = 0, resets = 0, withdrawals = 0, bells = 0, refusals = 0;

  void add(const Coverage& other);
};

}  // namespace verbena::sim
