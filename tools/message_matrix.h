// SPDX-License-Identifier: Apache-2.0
// What `verbena bench protocols` and `verbena bench message --all` do: all message protocols, one beside the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/message_client.h"
#include "tools/message_plan.h"

namespace verbena::tools {

inline constexpr std::uint64_t kMaxMatrixIterations = 1'000'000;

struct MatrixFlags {
  MessageClientFlags client;
  std::vector<std::string> kinds;  // names, as kinds_named() takes them
  std::string path;                // empty: packets and shared memory
  std::uint64_t iterations = MessagePlan{}.iterations;
  std::string report = "verbena-messages.html";
};

void add_kinds_flag(CLI::App& command, const std::string& names, std::vector<std::string>& kinds);

// Measures, says which to take, and writes the page and the JSON. The exit status of `command`.
int run_matrix(std::string_view command, const MatrixFlags& flags);

}  // namespace verbena::tools
