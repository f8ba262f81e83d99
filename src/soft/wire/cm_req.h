// SPDX-License-Identifier: Apache-2.0
// CM REQ: asks for a connection (format reference 9.2). Offsets in bytes; a field within a byte is listed
// from its top bit.
//
//     0  local communication id              44  starting PSN (3)
//     4  reserved                            47  local response timeout (5 bits) | retry count (3)
//     8  service id (8)                      48  P_Key (2)
//    16  local CA GUID (8)                   50  path MTU (4) | RDC exists | RNR retry count (3)
//    24  reserved                            51  max CM retries (4) | SRQ | extended transport (3)
//    28  local Q_Key                         52  primary path (44)
//    32  local QPN (3)                       96  alternate path (44), zero when there is none
//    35  responder resources (1)            140  private data (92)
//    36  local EECN (3)
//    39  initiator depth (1)
//    40  remote EECN (3)
//    43  remote response timeout (5 bits) | transport service (2) | end-to-end flow control
//
//   a path
//     0  local LID (2)                       40  traffic class (1)
//     2  remote LID (2)                      41  hop limit (1)
//     4  local GID (16)                      42  service level (4 bits) | subnet local | reserved
//    20  remote GID (16)                     43  local ACK timeout (5 bits) | reserved
//    36  flow label (20 bits) | reserved (6) | packet rate (6)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/mad.h"
#include "verbena/base/gid.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

enum class CmTransport : std::uint8_t { Rc = 0, Uc = 1, Rd = 2, Extended = 3 };

struct CmPath {
  std::uint16_t local_lid = 0xffff;  // RoCE: permissive
  std::uint16_t remote_lid = 0xffff;
  Gid local_gid;
  Gid remote_gid;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t packet_rate = 0;  // 6 bits
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  std::uint8_t ack_timeout = 0;  // 5 bits: 4.096 us * 2^t

  static constexpr CmPath absent() {
    CmPath path;
    path.local_lid = path.remote_lid = 0;
    path.hop_limit = 0;
    return path;
  }
  bool operator==(const CmPath&) const = default;
};

struct CmReq {
  static constexpr CmAttribute kAttribute = CmAttribute::Req;

  std::uint32_t local_comm_id = 0;
  std::uint64_t service_id = 0;
  std::uint64_t local_ca_guid = 0;
  std::uint32_t local_qkey = 0;
  Qpn local_qpn;
  std::uint8_t responder_resources = 0;
  std::uint32_t local_eecn = 0;  // 24 bits
  std::uint8_t initiator_depth = 0;
  std::uint32_t remote_eecn = 0;             // 24 bits
  std::uint8_t remote_response_timeout = 0;  // 5 bits
  CmTransport transport = CmTransport::Rc;
  bool end_to_end_flow_control = false;
  Psn starting_psn;  // the first this side will accept: the receiver of this message starts sending there
  std::uint8_t local_response_timeout = 0;  // 5 bits
  std::uint8_t retry_count = 0;             // 3 bits
  std::uint16_t pkey = 0xffff;
  std::uint8_t path_mtu = 0;  // 1..5: 256 << (code - 1) bytes
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bits
  std::uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  std::uint8_t extended_transport = 0;  // 3 bits
  CmPath primary;
  CmPath alternate = CmPath::absent();
  std::array<std::byte, 92> private_data{};  // with librdmacm's protocol the first 36 are a CmaHeader

  bool operator==(const CmReq&) const = default;
};

// Reserved bits are ignored and emitted as zero. Every 232 bytes are a REQ.
CmReq parse_cm_req(std::span<const std::byte, kCmBytes> from);
void emit(const CmReq& message, std::span<std::byte, kCmBytes> to);

}  // namespace verbena::wire
