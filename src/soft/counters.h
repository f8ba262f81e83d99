// SPDX-License-Identifier: Apache-2.0
// What the device counted. Names as in the kernel's hw_counters where it has one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "soft/roce/counters.h"
#include "soft/wire/packet.h"

namespace verbena::soft {

struct Counters : roce::Counters {
  std::uint64_t rcvd_pkts = 0;   // accepted packets
  std::uint64_t rcvd_bytes = 0;  // of UDP payload
  std::uint64_t rcvd_cm_pkts = 0;
  std::uint64_t sent_cm_pkts = 0;
  std::uint64_t icrc_solved = 0;  // accepted with an identification that had to be solved for
  std::array<std::uint64_t, static_cast<std::size_t>(wire::DropReason::Count)> dropped{};

  struct Named {
    std::string_view name;
    std::uint64_t value;
  };
  // All of them, in a fixed order.
  std::vector<Named> list() const;
};

}  // namespace verbena::soft
