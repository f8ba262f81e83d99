// SPDX-License-Identifier: Apache-2.0
// What peers say, except REQ. Every message is judged by ids, source and state before anything changes.
#include <algorithm>
#include <variant>

#include "base/byte_order.h"
#include "soft/cm/manager.h"

namespace verbena::cm {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace

void Manager::handle_mad(Instant now, const wire::Path& path, std::span<const std::byte> mad) {
  wire::MadHeader header;
  wire::CmMessage message;
  if (wire::parse_cm(mad, header, message) != wire::DropReason::None) {  // C-18
    ++counters_.cm_drop_malformed;
    return;
  }
  if (path.destination != config_.local) {
    ++counters_.cm_drop_destination;
    return;
  }
  std::visit(Overloaded{
                 [&](const wire::CmReq& m) { on_req(now, path, header, m); },
                 [&](const wire::CmRep& m) { on_rep(now, path, header, m); },
                 [&](const wire::CmRtu& m) { on_rtu(path, header, m); },
                 [&](const wire::CmRej& m) { on_rej(now, path, header, m); },
                 [&](const wire::CmMra& m) { on_mra(now, path, header, m); },
                 [&](const wire::CmDreq& m) { on_dreq(now, path, header, m); },
                 [&](const wire::CmDrep& m) { on_drep(now, path, m); },
                 [&](const wire::CmSidrReq& m) { on_sidr_req(path, header, m); },
                 [&](const wire::CmSidrRep&) { ++counters_.cm_drop_attribute; },
                 [&](const wire::CmUnknown&) { ++counters_.cm_drop_attribute; },
             },
             message);
}

Connection* Manager::match_own(const wire::Path& path, std::uint32_t our_id) {
  Connection* c = table_.find_local(our_id);
  if (c == nullptr) {
    ++counters_.cm_drop_unknown_id;
  } else if (c->parameters.remote != path.source) {
    ++counters_.cm_drop_source;
    return nullptr;
  }
  return c;
}

Connection* Manager::match(const wire::Path& path, std::uint32_t our_id, std::uint32_t their_id) {
  Connection* c = match_own(path, our_id);
  // A requester without REP knows no id of its peer; 0 must not open that state to everybody.
  if (c != nullptr && (c->remote_comm_id != their_id || awaits_rep(c->state))) {
    ++counters_.cm_drop_unknown_id;
    return nullptr;
  }
  return c;
}

void Manager::on_rep(Instant now, const wire::Path& path, const wire::MadHeader& header,
                     const wire::CmRep& rep) {
  ++counters_.cm_rep_rcvd;
  if (rep.local_comm_id == 0 || !is_usable(rep.local_qpn)) {
    ++counters_.cm_drop_malformed;
    return;
  }
  Connection* c = table_.find_local(rep.remote_comm_id);
  if (c == nullptr) {
    // The accepting side learns at once that nobody waits for it (C-10).
    ++counters_.cm_rej_unknown_id;
    return send(path.source, without_ecn(path.traffic_class),
                build_stateless_reject(header.transaction_id, rep.remote_comm_id, rep.local_comm_id,
                                       wire::CmMessageKind::Rep, RejectReason::InvalidCommunicationId));
  }
  if (c->parameters.remote != path.source) {
    ++counters_.cm_drop_source;
    return;
  }
  if (header.transaction_id != c->transaction) {
    ++counters_.cm_drop_transaction;
    return;
  }
  if (awaits_rep(c->state)) return on_first_rep(now, *c, header, rep);
  if (c->passive || c->remote_comm_id != rep.local_comm_id) {
    ++counters_.cm_drop_unknown_id;
    return;
  }
  ++counters_.cm_duplicates;
  if (c->state == State::Established || c->state == State::RejectSent) {
    send(*c, c->message);  // C-06
  } else if (c->state == State::RepReceived && now - c->asked_at >= config_.mra_after) {
    send(*c, build_mra(*c, wire::CmMessageKind::Rep, config_.mra_service_code));
  }
}

void Manager::on_first_rep(Instant now, Connection& c, const wire::MadHeader& header,
                           const wire::CmRep& rep) {
  c.remote_comm_id = rep.local_comm_id;
  c.remote_guid = rep.local_ca_guid;
  ConnectionParameters& p = c.parameters;
  p.remote_qpn = rep.local_qpn;
  p.remote_psn = rep.starting_psn;
  if (!table_.register_remote(c)) {
    ++counters_.cm_rej_stale;
    Connection* old = table_.find_remote_qpn(p.remote, c.remote_guid, p.remote_qpn);
    send(c, build_stateless_reject(header.transaction_id, c.local_comm_id, c.remote_comm_id,
                                   wire::CmMessageKind::Rep, RejectReason::StaleConnection));
    if (old != nullptr) tear_down_stale(now, *old);
    return fail(c, EventType::ConnectError, static_cast<std::uint16_t>(RejectReason::StaleConnection));
  }
  p.responder_resources = std::min(p.responder_resources, rep.initiator_depth);  // C-19
  p.initiator_depth = std::min(p.initiator_depth, rep.responder_resources);
  p.rnr_retry_count = rep.rnr_retry_count;
  p.remote_srq = rep.srq;
  if (!c.explicit_ack_timeout) {
    p.ack_timeout_code = ack_timeout_code(capped(rep.target_ack_delay), config_.packet_lifetime_code);
  }
  keep(c.private_data, rep.private_data);
  c.asked_at = now;
  table_.disarm(c);
  table_.set_state(c, State::RepReceived);
  raise(c, EventType::ConnectResponse);
}

void Manager::on_rtu(const wire::Path& path, const wire::MadHeader& header, const wire::CmRtu& rtu) {
  ++counters_.cm_rtu_rcvd;
  Connection* c = table_.find_local(rtu.remote_comm_id);
  if (c != nullptr && c->parameters.remote != path.source) {
    ++counters_.cm_drop_source;
    return;
  }
  if (c == nullptr || c->remote_comm_id != rtu.local_comm_id || awaits_rep(c->state)) {
    // It takes for established what is not; the answer ends that.
    ++counters_.cm_rej_unknown_id;
    return send(path.source, without_ecn(path.traffic_class),
                build_stateless_reject(header.transaction_id, rtu.remote_comm_id, rtu.local_comm_id,
                                       wire::CmMessageKind::Other, RejectReason::InvalidCommunicationId));
  }
  if (awaits_rtu(c->state)) {
    to_established(*c);
  } else if (c->passive && c->state == State::Established) {
    ++counters_.cm_duplicates;
  } else {
    ++counters_.cm_drop_state;
  }
}

Connection* Manager::rejected(const wire::Path& path, const wire::MadHeader& header, const wire::CmRej& rej) {
  if (rej.rejected == wire::CmMessageKind::Req) {
    Connection* c = match_own(path, rej.remote_comm_id);
    if (c == nullptr) return nullptr;
    if (!awaits_rep(c->state)) {  // C-09
      ++counters_.cm_drop_state;
      return nullptr;
    }
    if (header.transaction_id != c->transaction) {
      ++counters_.cm_drop_transaction;
      return nullptr;
    }
    return c;
  }
  // A requester that gave up or died may not know our id, and names itself by GUID and its own id.
  if (rej.reason == RejectReason::Timeout && rej.information_bytes >= 8) {
    const std::uint64_t guid = load_be64(rej.information.data());
    Connection* c = table_.find_remote(path.source, guid, rej.local_comm_id);
    if (c != nullptr && (rej.remote_comm_id == 0 || rej.remote_comm_id == c->local_comm_id)) return c;
    if (rej.remote_comm_id == 0) {
      ++counters_.cm_drop_unknown_id;
      return nullptr;
    }
  }
  return match(path, rej.remote_comm_id, rej.local_comm_id);
}

void Manager::on_rej(Instant now, const wire::Path& path, const wire::MadHeader& header,
                     const wire::CmRej& rej) {
  ++counters_.cm_rej_rcvd;
  Connection* c = rejected(path, header, rej);
  if (c == nullptr) return;
  const auto reason = static_cast<std::uint16_t>(rej.reason);
  switch (c->state) {
    case State::ReqSent:
    case State::MraReqReceived:
    case State::RepReceived:
    case State::ReqReceived:
    case State::MraReqSent:
    case State::RepSent:
    case State::MraRepReceived:
      keep(c->private_data, rej.private_data);
      return fail(*c, EventType::Rejected, reason);
    case State::Established:
      c->reason = reason;
      return enter_timewait(now, *c);
    case State::DreqSent:
      return enter_timewait(now, *c);
    case State::Idle:
    case State::TimeWait:
    case State::RejectSent:  // C-09
      ++counters_.cm_drop_state;
      return;
  }
}

void Manager::on_mra(Instant now, const wire::Path& path, const wire::MadHeader& header,
                     const wire::CmMra& mra) {
  ++counters_.cm_mra_rcvd;
  Connection* c = nullptr;
  if (mra.acknowledged == wire::CmMessageKind::Req) {
    c = match_own(path, mra.remote_comm_id);
  } else if (mra.acknowledged == wire::CmMessageKind::Rep) {
    c = match(path, mra.remote_comm_id, mra.local_comm_id);
  } else {
    ++counters_.cm_drop_attribute;
  }
  if (c == nullptr) return;
  const bool of_req = mra.acknowledged == wire::CmMessageKind::Req;
  if (c->state != (of_req ? State::ReqSent : State::RepSent)) {
    ++counters_.cm_drop_state;
    return;
  }
  if (header.transaction_id != c->transaction) {
    ++counters_.cm_drop_transaction;
    return;
  }
  const std::uint8_t code = std::min(mra.service_timeout, config_.mra_service_code_limit);
  table_.set_state(*c, of_req ? State::MraReqReceived : State::MraRepReceived);
  table_.arm(*c, now + code_duration(code) + jittered(c->interval, random_));
}

void Manager::on_dreq(Instant now, const wire::Path& path, const wire::MadHeader& header,
                      const wire::CmDreq& dreq) {
  ++counters_.cm_dreq_rcvd;
  const MadBytes drep = build_drep(header.transaction_id, dreq.remote_comm_id, dreq.local_comm_id);
  Connection* c = table_.find_local(dreq.remote_comm_id);
  if (c != nullptr && c->parameters.remote != path.source) {
    ++counters_.cm_drop_source;
    return;
  }
  if (c == nullptr || c->remote_comm_id != dreq.local_comm_id || awaits_rep(c->state)) {  // C-07
    ++counters_.cm_drop_unknown_id;
    return send(path.source, without_ecn(path.traffic_class), drep);
  }
  if (dreq.remote_qpn != c->parameters.local_qpn) {  // C-08
    ++counters_.cm_drop_qpn;
    return;
  }
  switch (c->state) {
    case State::RepSent:
    case State::MraRepReceived:  // it could not end what it had not begun: the RTU is lost
      raise(*c, EventType::Established);
      [[fallthrough]];
    case State::Established:
    case State::DreqSent:
      send(*c, drep);
      return enter_timewait(now, *c);
    case State::RepReceived:  // the peer has stopped waiting for our RTU
      send(*c, drep);
      return fail(*c, EventType::ConnectError, static_cast<std::uint16_t>(RejectReason::Timeout));
    case State::TimeWait:
    case State::RejectSent:
      ++counters_.cm_duplicates;
      return send(*c, drep);
    default:
      ++counters_.cm_drop_state;
      return;
  }
}

void Manager::on_drep(Instant now, const wire::Path& path, const wire::CmDrep& drep) {
  ++counters_.cm_drep_rcvd;
  Connection* c = match(path, drep.remote_comm_id, drep.local_comm_id);
  if (c == nullptr) return;
  if (c->state == State::DreqSent) {
    enter_timewait(now, *c);
  } else {
    ++counters_.cm_drop_state;
  }
}

void Manager::on_sidr_req(const wire::Path& path, const wire::MadHeader& header,
                          const wire::CmSidrReq& sidr) {
  ++counters_.cm_sidr_req_rcvd;
  send(path.source, without_ecn(path.traffic_class),
       build_sidr_refusal(header.transaction_id, sidr.request_id, sidr.service_id));
}

}  // namespace verbena::cm
