// SPDX-License-Identifier: Apache-2.0
// The results of `verbena bench` as one HTML page: it needs nothing beside itself, and is well-formed XML.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_results.h"

namespace verbena::tools {

std::string bench_page(const BenchSettings& settings, const BenchSurroundings& surroundings,
                       const std::vector<BenchRow>& rows);

}  // namespace verbena::tools
