// SPDX-License-Identifier: Apache-2.0
// CM REJ: refuses a REQ, a REP, or gives a handshake up (format reference 9.2).
//
//     0  local communication id, 0 if there is none
//     4  remote communication id
//     8  message rejected (2 bits) | reserved
//     9  length of the additional information (7 bits) | reserved
//    10  reason (2)
//    12  additional information (72)
//    84  private data (148)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "soft/wire/mad.h"

namespace verbena::wire {

// Which message a REJ or an MRA speaks of. For a REJ 2 is "any other", for an MRA it is LAP.
enum class CmMessageKind : std::uint8_t { Req = 0, Rep = 1, Other = 2, Reserved = 3 };

// Any other value may come, too.
enum class CmRejectReason : std::uint16_t {
  NoQueuePair = 1,
  NoEec = 2,
  NoResources = 3,
  Timeout = 4,
  Unsupported = 5,
  InvalidCommunicationId = 6,
  InvalidCommunicationInstance = 7,
  InvalidServiceId = 8,
  InvalidTransport = 9,
  StaleConnection = 10,
  NoRdc = 11,
  InvalidGid = 12,
  InvalidLid = 13,
  InvalidServiceLevel = 14,
  InvalidTrafficClass = 15,
  InvalidHopLimit = 16,
  InvalidPacketRate = 17,
  InvalidAlternateGid = 18,
  InvalidAlternateLid = 19,
  InvalidAlternateServiceLevel = 20,
  InvalidAlternateTrafficClass = 21,
  InvalidAlternateHopLimit = 22,
  InvalidAlternatePacketRate = 23,
  PortAndCmRedirection = 24,
  PortRedirection = 25,
  InvalidMtu = 26,
  InsufficientResponderResources = 27,
  Consumer = 28,
  InvalidRnrRetryCount = 29,
  DuplicateLocalCommunicationId = 30,
  InvalidClassVersion = 31,
  InvalidFlowLabel = 32,
  InvalidAlternateFlowLabel = 33,
  VendorOption = 35,
};
std::string_view to_string(CmRejectReason reason);

struct CmRej {
  static constexpr CmAttribute kAttribute = CmAttribute::Rej;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmMessageKind rejected = CmMessageKind::Req;
  std::uint8_t information_bytes = 0;  // 7 bits as received: not yet checked against the 72 there are
  CmRejectReason reason = CmRejectReason::Consumer;
  std::array<std::byte, 72> information{};
  std::array<std::byte, 148> private_data{};

  bool operator==(const CmRej&) const = default;
};

// Reserved bits are ignored and emitted as zero.
CmRej parse_cm_rej(std::span<const std::byte, kCmBytes> from);
void emit(const CmRej& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
