// SPDX-License-Identifier: Apache-2.0
// CM DREP: answers a DREQ (format reference 9.2).
//
//     0  local communication id
//     4  remote communication id
//     8  private data (224)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/mad.h"

namespace verbena::wire {

struct CmDrep {
  static constexpr CmAttribute kAttribute = CmAttribute::Drep;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::array<std::byte, 224> private_data{};

  bool operator==(const CmDrep&) const = default;
};

CmDrep parse_cm_drep(std::span<const std::byte, kCmBytes> from);
void emit(const CmDrep& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
