// SPDX-License-Identifier: Apache-2.0
// Runs from seeds. The same options give the same run, to the last byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sim/coverage.h"
#include "sim/options.h"
#include "sim/trace.h"

namespace verbena::sim {

struct RunResult {
  std::string failed_oracle;  // empty: every promise was kept
  std::string detail;
  std::uint64_t packets = 0;  // sent by the devices
  std::uint64_t completions = 0;
  std::uint64_t connections = 0;
  std::uint64_t retransmitted = 0;
  Duration virtual_time;
  std::uint64_t hash = 0;  // of all outputs
  Coverage coverage;

  bool ok() const { return failed_oracle.empty(); }
};

RunResult run(const Options& options, const TraceSink& trace = {});

struct SeedsResult {
  std::uint64_t seeds = 0;
  std::uint64_t packets = 0, retransmitted = 0, completions = 0, connections = 0;
  Duration virtual_time;
  Coverage coverage;
  std::uint64_t failures = 0;
  std::uint64_t first_failed_seed = 0;
  RunResult first_failure;
};

// Seeds first, first + 1, ... `bug` has an effect in the test-only copy of the device alone.
// Ends at the first failure when `until_failure`.
SeedsResult run_seeds(std::uint64_t first, std::uint64_t count, core::PlantedBug bug = core::PlantedBug::None,
                      bool until_failure = true);

}  // namespace verbena::sim
