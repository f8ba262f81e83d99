// SPDX-License-Identifier: Apache-2.0
// CM REP: accepts a REQ (format reference 9.2).
//
//     0  local communication id              20  starting PSN (3)
//     4  remote communication id             24  responder resources (1)
//     8  local Q_Key                         25  initiator depth (1)
//    12  local QPN (3)                       26  target ACK delay (5 bits) | failover accepted (2) | flow
//    control 16  local EECN (3)                      27  RNR retry count (3 bits) | SRQ | reserved 28  local
//    CA GUID (8)                   36  private data (196)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/mad.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

struct CmRep {
  static constexpr CmAttribute kAttribute = CmAttribute::Rep;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  std::uint32_t local_eecn = 0;  // 24 bits
  Psn starting_psn;  // the first this side will accept: the receiver of this message starts sending there
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;   // 5 bits
  std::uint8_t failover_accepted = 0;  // 2 bits
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bits
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  std::array<std::byte, 196> private_data{};

  bool operator==(const CmRep&) const = default;
};

// Reserved bits are ignored and emitted as zero.
CmRep parse_cm_rep(std::span<const std::byte, kCmBytes> from);
void emit(const CmRep& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
