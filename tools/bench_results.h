// SPDX-License-Identifier: Apache-2.0
// The numbers of `verbena bench`: as the table perftest prints, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/bench_run.h"

namespace verbena::tools {

struct BenchDisplay {
  bool gigabits = false;   // --report_gbits
  bool all_times = false;  // -H
  bool unsorted = false;   // -U
};

// What one run was, besides its settings.
struct BenchSurroundings {
  std::string local, remote;  // addresses
  std::uint32_t mtu = 0;      // bytes per packet
  PathTaken path;             // of the messages
};

// Half of there and back in a ping-pong; microseconds.
double bench_microseconds(const BenchSettings& settings, double ns);

// Both end with a newline.
std::string bench_header(const BenchSettings& settings, const BenchDisplay& display);
std::string bench_line(const BenchSettings& settings, const BenchDisplay& display, const BenchRow& row);
// -H and -U: "#, usec" and every time.
std::string bench_times(const BenchSettings& settings, const BenchDisplay& display, const BenchRow& row);

nlohmann::json bench_json(const BenchSettings& settings, const BenchSurroundings& surroundings,
                          const std::vector<BenchRow>& rows);

}  // namespace verbena::tools
