// SPDX-License-Identifier: Apache-2.0
// perftest's flags, those that mean something here and those that do not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_results.h"
#include "tools/bench_settings.h"
#include "tools/command.h"

namespace verbena::tools {

// A flag that is taken in order to be refused.
struct BenchRefusal {
  std::string flag, why;
  std::vector<std::string> given{};
  bool is_given = false;
};

struct BenchFlags {
  BenchSettings settings;
  BenchDisplay display;
  DeviceFlags device;
  std::string host;
  std::uint16_t port = kBenchPort;
  std::optional<std::uint32_t> size, signal_every;
  std::optional<std::uint64_t> iterations;
  std::string connection = "RC", atomic = "FETCH_AND_ADD";
  std::uint32_t device_port = 1, gid_index = 0;
  double timeout = 10;         // seconds
  bool quiet_frequency = false;  // -F
  std::string json, report;    // files; empty: none
  std::vector<BenchRefusal> refused;
};

void add_bench_flags(CLI::App& command, BenchFlags& flags);
// Completes the settings. What is wrong with the flags, together or on this end; empty when nothing is.
std::string finish_bench_flags(BenchFlags& flags);

}  // namespace verbena::tools
