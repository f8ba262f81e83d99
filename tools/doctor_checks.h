// SPDX-License-Identifier: Apache-2.0
// What of this machine matters to RDMA in software, and what to change where it stands in the way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::tools {

enum class Health : std::uint8_t { Good, Advice, Wrong };  // Advice: it works, and could work better
constexpr std::string_view to_string(Health health) {
  constexpr std::string_view kNames[] = {"good", "advice", "wrong"};
  return kNames[static_cast<std::size_t>(health)];
}

struct Finding {
  std::string subject;     // "socket buffers"
  Health health = Health::Good;
  std::string found;       // printable
  std::string what_to_do;  // empty when good
};

// Looks at everything; the default device is opened once. `proc` and `sys` stand for /proc and /sys.
std::vector<Finding> examine(const std::string& proc = "/proc", const std::string& sys = "/sys");

// The parts that read files only, or what they are given.
Finding examine_socket_buffers(const std::string& proc);
Finding examine_soft_roce(const std::string& sys);
Finding examine_clock(const std::string& sys);
Finding examine_huge_pages(const std::string& proc, const std::string& sys);
// `bytes` is what a process may lock; nothing: any amount.
Finding examine_locked_memory(const std::string& sys, std::optional<std::uint64_t> bytes);

}  // namespace verbena::tools
