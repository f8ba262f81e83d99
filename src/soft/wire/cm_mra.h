// SPDX-License-Identifier: Apache-2.0
// CM MRA: a message has come, its answer will take longer (format reference 9.2).
//
//     0  local communication id
//     4  remote communication id
//     8  message acknowledged (2 bits) | reserved
//     9  service timeout (5 bits) | reserved
//    10  private data (222)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/cm_rej.h"
#include "soft/wire/mad.h"

namespace verbena::wire {

struct CmMra {
  static constexpr CmAttribute kAttribute = CmAttribute::Mra;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmMessageKind acknowledged = CmMessageKind::Req;
  std::uint8_t service_timeout = 0;  // 5 bits
  std::array<std::byte, 222> private_data{};

  bool operator==(const CmMra&) const = default;
};

// Reserved bits are ignored and emitted as zero.
CmMra parse_cm_mra(std::span<const std::byte, kCmBytes> from);
void emit(const CmMra& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
