// SPDX-License-Identifier: Apache-2.0
// Many seeds, one world each: every promise is kept under every mix of faults.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/sanitizer.h"
#include "sim/operation.h"
#include "sim/run.h"
#include "soft/cm/types.h"

namespace verbena::sim {
namespace {

constexpr std::uint64_t kSeeds = kSanitized ? 300 : 10'000;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Enough seeds that the rarest outcome (one seed in some hundreds) is sure to be among them.
constexpr std::uint64_t kSeedsThatMeetEverything = 2'000;

constexpr std::uint64_t kPacketsPerSeed = 2'000;

// The seeds meet what they are meant to meet.
void expect_everything_happened(const Coverage& seen) {
  for (const CompletionStatus status :
       {CompletionStatus::Success, CompletionStatus::LocalLengthError, CompletionStatus::LocalProtectionError,
        CompletionStatus::Flushed, CompletionStatus::RemoteInvalidRequest,
        CompletionStatus::RemoteAccessError, CompletionStatus::RemoteOperationError,
        CompletionStatus::RetryExceeded, CompletionStatus::RnrRetryExceeded})
    EXPECT_GT(seen.statuses[static_cast<std::size_t>(status)], 0u) << to_string(status);
  for (std::size_t defect = 0; defect <= static_cast<std::size_t>(Defect::BadLocalKey); ++defect)
    EXPECT_GT(seen.defects[defect], 0u) << "defect " << defect;
  for (const cm::EventType event :
       {cm::EventType::ConnectRequest, cm::EventType::ConnectResponse, cm::EventType::Established,
        cm::EventType::Rejected, cm::EventType::Disconnected})
    EXPECT_GT(seen.cm_events[static_cast<std::size_t>(event)], 0u) << to_string(event);
  for (const std::uint64_t count : {seen.sequence_naks, seen.rnr_naks, seen.implied_naks, seen.timeouts,
                                    seen.ghosts, seen.atomic_replays, seen.duplicates, seen.bad_icrc,
                                    seen.drained, seen.resets, seen.withdrawals, seen.bells, seen.refusals})
    EXPECT_GT(count, 0u);
}

TEST(Storm, keeps_every_promise_for_every_seed) {
  const std::uint64_t shards = number_from("STORM_SHARDS", 1);
  const std::uint64_t shard = number_from("STORM_SHARD", 0);
  const std::uint64_t count = number_from("STORM_SEEDS", kSeeds) / shards;
  const std::uint64_t first = number_from("STORM_FIRST", 1) + shard * count;
  const auto begin = std::chrono::steady_clock::now();
  const SeedsResult all = run_seeds(first, count, core::PlantedBug::None, false);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds, %llu packets (%llu sent again), %llu completions, %llu connections, %.1f s of virtual "
      "time\n"
      "%.1f s, %.0f packets/s, %.1f virtual seconds per second\n",
      static_cast<unsigned long long>(all.seeds), static_cast<unsigned long long>(all.packets),
      static_cast<unsigned long long>(all.retransmitted), static_cast<unsigned long long>(all.completions),
      static_cast<unsigned long long>(all.connections), static_cast<double>(all.virtual_time.ns) * 1e-9,
      seconds, static_cast<double>(all.packets) / seconds,
      static_cast<double>(all.virtual_time.ns) * 1e-9 / seconds);
  if (count >= kSeedsThatMeetEverything) {
    expect_everything_happened(all.coverage);
    EXPECT_GE(all.packets, kPacketsPerSeed * count);
  }
  EXPECT_EQ(all.failures, 0u) << "seed " << all.first_failed_seed << ": " << all.first_failure.failed_oracle
                              << ": " << all.first_failure.detail << '\n'
                              << to_string(options_for_seed(all.first_failed_seed));
}

TEST(Storm, gives_the_same_run_for_the_same_seed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RunResult once = run(options_for_seed(seed));
    const RunResult again = run(options_for_seed(seed));
    EXPECT_EQ(once.hash, again.hash) << "seed " << seed;
    EXPECT_EQ(once.packets, again.packets) << "seed " << seed;
  }
  EXPECT_NE(run(options_for_seed(1)).hash, run(options_for_seed(2)).hash);
}

}  // namespace
}  // namespace verbena::sim
