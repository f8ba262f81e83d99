// SPDX-License-Identifier: Apache-2.0
// A REQ: known, refused, or admitted. The only place where a peer makes the manager hold something.
#include <algorithm>

#include "soft/cm/manager.h"

namespace verbena::cm {
namespace {

// C-11, C-17: the header is one we know and speaks of this very path.
bool addressed_here(const wire::Path& path, const wire::CmReq& req, wire::CmaHeader& cma) {
  return wire::parse_cma_header(wire::cma_part(req.private_data), cma) && cma.source == path.source &&
         cma.destination == path.destination;
}

}  // namespace

const Manager::Listener* Manager::listener_for(std::uint64_t service_id) const {
  if (wire::service_id_space(service_id) > 0xffff) return nullptr;
  const auto found = listeners_.find(
      {static_cast<PortSpace>(wire::service_id_space(service_id)), wire::service_id_port(service_id)});
  return found == listeners_.end() ? nullptr : &found->second;
}

std::optional<RejectReason> Manager::judge(const wire::Path& path, const wire::CmReq& req,
                                           const Listener* listener) {
  if (req.transport != wire::CmTransport::Rc) {
    ++counters_.cm_rej_unsupported;
    return RejectReason::InvalidTransport;
  }
  if (mtu_bytes(req.path_mtu) == 0 || mtu_bytes(req.path_mtu) > config_.max_path_mtu_bytes) {
    ++counters_.cm_rej_unsupported;
    return RejectReason::InvalidMtu;
  }
  if (listener == nullptr) {
    ++counters_.cm_rej_no_listener;
    return RejectReason::InvalidServiceId;
  }
  wire::CmaHeader cma;
  if (req.primary.remote_gid != path.destination) {
    ++counters_.cm_rej_bad_address;
    return RejectReason::InvalidGid;
  }
  if (!addressed_here(path, req, cma)) {
    ++counters_.cm_rej_bad_address;
    return RejectReason::Consumer;
  }
  if (table_.pending(listener->id) >= listener->backlog) {
    ++counters_.cm_rej_backlog;
    return RejectReason::NoResources;
  }
  if (table_.half_open() >= config_.half_open_total ||
      table_.half_open(path.source) >= config_.half_open_per_source || table_.size() >= config_.connections) {
    ++counters_.cm_rej_limit;
    return RejectReason::NoResources;
  }
  return std::nullopt;
}

void Manager::on_req(Instant now, const wire::Path& path, const wire::MadHeader& header,
                     const wire::CmReq& req) {
  ++counters_.cm_req_rcvd;
  if (req.local_comm_id == 0 || !is_usable(req.local_qpn)) {
    ++counters_.cm_drop_malformed;
    return;
  }
  if (req.primary.local_gid != path.source) {  // C-17
    ++counters_.cm_drop_source;
    return;
  }
  if (Connection* c = table_.find_remote(path.source, req.local_ca_guid, req.local_comm_id)) {
    return on_duplicate_req(now, *c, path, header, req);
  }
  const Listener* listener = listener_for(req.service_id);
  std::optional<RejectReason> reason;
  if (Connection* old = table_.find_remote_qpn(path.source, req.local_ca_guid, req.local_qpn)) {  // C-02
    ++counters_.cm_rej_stale;
    reason = RejectReason::StaleConnection;
    tear_down_stale(now, *old);
  } else {
    reason = judge(path, req, listener);
  }
  if (reason) {
    return send(path.source, without_ecn(req.primary.traffic_class),
                build_stateless_reject(header.transaction_id, 0, req.local_comm_id, wire::CmMessageKind::Req,
                                       *reason));
  }
  admit(now, path, header, req, *listener);
}

void Manager::admit(Instant now, const wire::Path& path, const wire::MadHeader& header,
                    const wire::CmReq& req, const Listener& listener) {
  wire::CmaHeader cma;
  addressed_here(path, req, cma);
  Connection& c = table_.create(random_, config_.ids);
  c.passive = true;
  c.announced = false;
  c.listener = listener.id;
  c.transaction = header.transaction_id;
  c.remote_comm_id = req.local_comm_id;
  c.remote_guid = req.local_ca_guid;
  ConnectionParameters& p = c.parameters;
  p.remote = path.source;
  p.port_space = static_cast<PortSpace>(wire::service_id_space(req.service_id));
  p.local_port = wire::service_id_port(req.service_id);
  p.remote_port = cma.source_port;
  p.remote_qpn = req.local_qpn;
  p.remote_psn = req.starting_psn;
  p.path_mtu_bytes = mtu_bytes(req.path_mtu);
  p.responder_resources = std::min(req.initiator_depth, config_.max_responder_resources);  // C-19
  p.initiator_depth = std::min(req.responder_resources, config_.max_initiator_depth);
  // Without a timeout our queue pair would wait for a dead peer for ever.
  p.ack_timeout_code = req.primary.ack_timeout == 0
                           ? ack_timeout_code(config_.target_ack_delay_code, config_.packet_lifetime_code)
                           : capped(req.primary.ack_timeout);
  p.retry_count = req.retry_count;
  p.rnr_retry_count = req.rnr_retry_count;
  p.traffic_class = without_ecn(req.primary.traffic_class);
  p.flow_label = req.primary.flow_label;
  p.remote_srq = req.srq;
  keep(c.private_data, wire::user_part(req.private_data));
  c.max_retries = req.max_cm_retries;
  c.interval = retry_interval(config_.packet_lifetime_code,
                              capped(std::max(req.local_response_timeout, req.remote_response_timeout)));
  c.asked_at = now;
  table_.register_remote(c);
  table_.set_state(c, State::ReqReceived);
  table_.arm(c, now + c.interval * (c.max_retries + 2));  // C-20
  raise(c, EventType::ConnectRequest);
}

// C-01: one message in, at most one out, never a second connection.
void Manager::on_duplicate_req(Instant now, Connection& c, const wire::Path& path,
                               const wire::MadHeader& header, const wire::CmReq& req) {
  ++counters_.cm_duplicates;
  switch (c.state) {
    case State::ReqReceived:
    case State::MraReqSent: {
      if (now - c.asked_at < config_.mra_after) return;
      // Some wait for this time alone from now on: it is no less than what they grant anyway.
      const std::uint8_t patience = std::max(config_.mra_service_code, capped(req.remote_response_timeout));
      table_.set_state(c, State::MraReqSent);
      table_.arm(c, std::max(c.deadline, now + code_duration(patience) + c.interval * 2));
      return send(c, build_mra(c, wire::CmMessageKind::Req, patience));
    }
    case State::RepSent:
    case State::RejectSent:
      return send(c, c.message);
    case State::DreqSent:
    case State::TimeWait:
      ++counters_.cm_rej_stale;
      return send(path.source, c.parameters.traffic_class,
                  build_stateless_reject(header.transaction_id, 0, req.local_comm_id,
                                         wire::CmMessageKind::Req, RejectReason::StaleConnection));
    default:  // the requester has had its answer
      return;
  }
}

}  // namespace verbena::cm
