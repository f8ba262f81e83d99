// SPDX-License-Identifier: Apache-2.0
// CM SIDR_REQ and SIDR_REP: which queue pair serves a service id, for UD (format reference 9.2).
//
//   SIDR_REQ                                SIDR_REP
//     0  request id                           0  request id
//     4  P_Key (2)                            4  status (1)
//     8  service id (8)                       5  length of the additional information (1)
//    16  private data (216)                   8  QPN (3)
//                                            12  service id (8)
//                                            20  Q_Key
//                                            24  additional information (72)
//                                            96  private data (136)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/mad.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

struct CmSidrReq {
  static constexpr CmAttribute kAttribute = CmAttribute::SidrReq;

  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0xffff;
  std::uint64_t service_id = 0;
  std::array<std::byte, 216> private_data{};  // with librdmacm's protocol the first 36 are a CmaHeader

  bool operator==(const CmSidrReq&) const = default;
};

// Any other value may come, too.
enum class CmSidrStatus : std::uint8_t {
  Success = 0,
  Unsupported = 1,
  Reject = 2,
  NoQueuePair = 3,
  Redirect = 4,
  UnsupportedVersion = 5,
};

struct CmSidrRep {
  static constexpr CmAttribute kAttribute = CmAttribute::SidrRep;

  std::uint32_t request_id = 0;
  CmSidrStatus status = CmSidrStatus::Success;
  std::uint8_t information_bytes = 0;  // as received: not yet checked against the 72 there are
  Qpn qpn;
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::byte, 72> information{};
  std::array<std::byte, 136> private_data{};

  bool operator==(const CmSidrRep&) const = default;
};

// Reserved bytes are ignored and emitted as zero.
CmSidrReq parse_cm_sidr_req(std::span<const std::byte, kCmBytes> from);
CmSidrRep parse_cm_sidr_rep(std::span<const std::byte, kCmBytes> from);
void emit(const CmSidrReq& message, std::span<std::byte, kCmBytes> to);
void emit(const CmSidrRep& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
