// SPDX-License-Identifier: Apache-2.0
// The messages a connection sends, as whole MADs, with the conventions of RDMA-CM on RoCE (9.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/cm/connection.h"

namespace verbena::cm {

using MadBytes = std::array<std::byte, kMadBytes>;

MadBytes build_req(const Connection& c, const ManagerConfig& config, const ConnectParams& params);
MadBytes build_rep(const Connection& c, const ManagerConfig& config, const AcceptParams& params);
MadBytes build_rtu(const Connection& c);
MadBytes build_dreq(const Connection& c, std::uint64_t transaction);
MadBytes build_drep(std::uint64_t transaction, std::uint32_t our_id, std::uint32_t their_id);
// Asks for patience with the peer's REQ or REP.
MadBytes build_mra(const Connection& c, wire::CmMessageKind of, std::uint8_t service_code);
// Answers the message the connection's state has seen last.
MadBytes build_reject(const Connection& c, std::span<const std::byte> private_data, RejectReason reason);
// Reason 4, names us by our GUID: the peer may not know our id yet.
MadBytes build_timeout_reject(const Connection& c, std::uint64_t ca_guid);
// For requests and replies of which no state is kept.
MadBytes build_stateless_reject(std::uint64_t transaction, std::uint32_t our_id, std::uint32_t their_id,
                                wire::CmMessageKind of, RejectReason reason);
// Status 1: no datagram service here.
MadBytes build_sidr_refusal(std::uint64_t transaction, std::uint32_t request_id, std::uint64_t service_id);

}  // namespace verbena::cm
