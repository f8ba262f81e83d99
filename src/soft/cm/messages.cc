// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/messages.h"

#include "base/assert.h"
#include "base/byte_order.h"
#include "soft/wire/cm_message.h"

namespace verbena::cm {
namespace {

constexpr std::uint8_t kHopLimit = 64;

template <class Message>
MadBytes whole_mad(std::uint64_t transaction, const Message& message) {
  MadBytes out{};
  wire::MadHeader header;
  header.transaction_id = transaction;
  wire::emit_mad(header, message, out);
  return out;
}

template <class Message>
Message with_ids(const Connection& c) {
  Message m;
  m.local_comm_id = c.local_comm_id;
  m.remote_comm_id = c.remote_comm_id;
  return m;
}

void fill(std::span<std::byte> to, std::span<const std::byte> from) {
  const bool fits = wire::fill_private_data(to, from);
  VERBENA_ASSERT(fits);  // commands have checked the size (C-12)
}

wire::CmaHeader cma_header(const ConnectionParameters& p, const Gid& local) {
  wire::CmaHeader cma;
  cma.ip_version = local.is_ipv4() ? 4 : 6;
  cma.source_port = p.local_port;
  cma.source = local;
  cma.destination = p.remote;
  return cma;
}

}  // namespace

MadBytes build_req(const Connection& c, const ManagerConfig& config, const ConnectParams& params) {
  const ConnectionParameters& p = c.parameters;
  wire::CmReq req;
  req.local_comm_id = c.local_comm_id;
  req.service_id = wire::service_id(p.port_space, p.remote_port);
  req.local_ca_guid = config.ca_guid;
  req.local_qpn = p.local_qpn;
  req.responder_resources = p.responder_resources;
  req.initiator_depth = p.initiator_depth;
  req.remote_response_timeout = config.response_timeout_code;
  req.local_response_timeout = config.response_timeout_code;
  req.starting_psn = p.local_psn;
  req.retry_count = p.retry_count;
  req.path_mtu = mtu_code(p.path_mtu_bytes);
  req.rnr_retry_count = params.rnr_retry_count;
  req.max_cm_retries = config.max_retries;
  req.srq = params.srq;
  req.primary.local_gid = config.local;
  req.primary.remote_gid = p.remote;
  req.primary.flow_label = p.flow_label;
  req.primary.traffic_class = p.traffic_class;
  req.primary.hop_limit = kHopLimit;
  req.primary.ack_timeout = p.ack_timeout_code;
  wire::emit(cma_header(p, config.local), wire::cma_part(req.private_data));
  fill(wire::user_part(req.private_data), params.private_data);
  return whole_mad(c.transaction, req);
}

MadBytes build_rep(const Connection& c, const ManagerConfig& config, const AcceptParams& params) {
  auto rep = with_ids<wire::CmRep>(c);
  rep.local_qpn = c.parameters.local_qpn;
  rep.starting_psn = c.parameters.local_psn;
  rep.responder_resources = c.parameters.responder_resources;
  rep.initiator_depth = c.parameters.initiator_depth;
  rep.target_ack_delay = config.target_ack_delay_code;
  rep.rnr_retry_count = params.rnr_retry_count;
  rep.srq = params.srq;
  rep.local_ca_guid = config.ca_guid;
  fill(rep.private_data, params.private_data);
  return whole_mad(c.transaction, rep);
}

MadBytes build_rtu(const Connection& c) { return whole_mad(c.transaction, with_ids<wire::CmRtu>(c)); }

MadBytes build_dreq(const Connection& c, std::uint64_t transaction) {
  auto dreq = with_ids<wire::CmDreq>(c);
  dreq.remote_qpn = c.parameters.remote_qpn;
  return whole_mad(transaction, dreq);
}

MadBytes build_drep(std::uint64_t transaction, std::uint32_t our_id, std::uint32_t their_id) {
  wire::CmDrep drep;
  drep.local_comm_id = our_id;
  drep.remote_comm_id = their_id;
  return whole_mad(transaction, drep);
}

MadBytes build_mra(const Connection& c, wire::CmMessageKind of, std::uint8_t service_code) {
  auto mra = with_ids<wire::CmMra>(c);
  mra.acknowledged = of;
  mra.service_timeout = service_code;
  return whole_mad(c.transaction, mra);
}

MadBytes build_reject(const Connection& c, std::span<const std::byte> private_data, RejectReason reason) {
  auto rej = with_ids<wire::CmRej>(c);
  // A requester that has had no MRA knows no id of ours.
  if (c.state == State::ReqReceived) rej.local_comm_id = 0;
  rej.rejected = c.passive ? wire::CmMessageKind::Req : wire::CmMessageKind::Rep;
  rej.reason = reason;
  fill(rej.private_data, private_data);
  return whole_mad(c.transaction, rej);
}

MadBytes build_timeout_reject(const Connection& c, std::uint64_t ca_guid) {
  auto rej = with_ids<wire::CmRej>(c);
  rej.rejected = wire::CmMessageKind::Other;
  rej.reason = RejectReason::Timeout;
  rej.information_bytes = sizeof ca_guid;
  store_be64(rej.information.data(), ca_guid);
  return whole_mad(c.transaction, rej);
}

MadBytes build_stateless_reject(std::uint64_t transaction, std::uint32_t our_id, std::uint32_t their_id,
                                wire::CmMessageKind of, RejectReason reason) {
  wire::CmRej rej;
  rej.local_comm_id = our_id;
  rej.remote_comm_id = their_id;
  rej.rejected = of;
  rej.reason = reason;
  return whole_mad(transaction, rej);
}

MadBytes build_sidr_refusal(std::uint64_t transaction, std::uint32_t request_id, std::uint64_t service_id) {
  wire::CmSidrRep rep;
  rep.request_id = request_id;
  rep.status = wire::CmSidrStatus::Unsupported;
  rep.service_id = service_id;
  return whole_mad(transaction, rep);
}

}  // namespace verbena::cm
