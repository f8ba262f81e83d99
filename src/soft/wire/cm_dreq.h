// SPDX-License-Identifier: Apache-2.0
// CM DREQ: asks to end a connection (format reference 9.2).
//
//     0  local communication id
//     4  remote communication id
//     8  remote QPN or EECN (3), reserved (1)
//    12  private data (220)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/mad.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

struct CmDreq {
  static constexpr CmAttribute kAttribute = CmAttribute::Dreq;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  Qpn remote_qpn;  // of the side that receives this
  std::array<std::byte, 220> private_data{};

  bool operator==(const CmDreq&) const = default;
};

CmDreq parse_cm_dreq(std::span<const std::byte, kCmBytes> from);
void emit(const CmDreq& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
