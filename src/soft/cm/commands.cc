// SPDX-License-Identifier: Apache-2.0
// What the owner of the device asks for.
#include <algorithm>
#include <string>
#include <vector>

#include "soft/cm/manager.h"

namespace verbena::cm {
namespace {

Error invalid(const std::string& what) { return Error(ErrorCode::InvalidArgument, what); }

std::string number(std::uint64_t n) { return std::to_string(n); }

Result<void> check_private(const char* command, std::span<const std::byte> data, std::size_t limit) {
  if (data.size() <= limit) return {};
  return invalid(std::string(command) + ": " + number(data.size()) + " bytes of private data, at most " +
                 number(limit));
}

Result<void> check_qpn(const char* command, Qpn qpn) {
  if (is_usable(qpn)) return {};
  return invalid(std::string(command) + ": queue pair number " + number(qpn.value()));
}

bool connects(PortSpace s) { return s == PortSpace::Tcp || s == PortSpace::Ib; }

constexpr std::uint16_t kFirstEphemeralPort = 49152;
constexpr std::uint16_t kEphemeralPorts = 16384;

}  // namespace

Result<std::uint16_t> Manager::pick_port(PortSpace port_space) {
  const auto start = static_cast<std::uint32_t>(random_.below(kEphemeralPorts));
  for (std::uint32_t i = 0; i < kEphemeralPorts; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirstEphemeralPort + (start + i) % kEphemeralPorts);
    if (!listeners_.contains({port_space, port})) return port;
  }
  return Error(ErrorCode::AddressInUse, "listen: no free port");
}

Result<ListenerId> Manager::listen(Instant, PortSpace port_space, std::uint16_t port, std::uint32_t backlog) {
  if (!connects(port_space)) return Error(ErrorCode::NotSupported, "listen: port space without connections");
  if (backlog == 0) return invalid("listen: backlog 0");
  if (listeners_.size() >= config_.listeners)
    return Error(ErrorCode::ResourceExhausted, "listen: too many listeners");
  if (port == 0) {
    auto picked = pick_port(port_space);
    if (!picked) return picked.error();
    port = *picked;
  }
  const ListenerId id{last_listener_ + 1};
  if (!listeners_.emplace(Port{port_space, port}, Listener{id, backlog}).second) {
    return Error(ErrorCode::AddressInUse, "listen " + config_.local.to_string() + " port " + number(port));
  }
  ports_.emplace(id.value, Port{port_space, port});
  last_listener_ = id.value;
  return id;
}

Result<std::uint16_t> Manager::listening_port(ListenerId id) const {
  const auto found = ports_.find(id.value);
  if (found == ports_.end()) return Error(ErrorCode::NotFound, "listening_port: no such listener");
  return found->second.second;
}

Result<void> Manager::stop_listening(Instant now, ListenerId id) {
  const auto found = ports_.find(id.value);
  if (found == ports_.end()) return Error(ErrorCode::NotFound, "stop_listening: no such listener");
  listeners_.erase(found->second);
  ports_.erase(found);
  std::vector<Connection*> unseen;
  for (const auto& [number_, c] : table_.all())
    if (c->listener == id && is_pending(*c) && !c->announced) unseen.push_back(c.get());
  for (Connection* c : unseen) turn_away(now, *c);
  return {};
}

Result<void> Manager::check(const ConnectParams& p) const {
  if (p.remote.is_zero()) return invalid("connect: no address");
  const std::string to = "connect " + p.remote.to_string() + " port " + number(p.port);
  if (p.remote.is_ipv4() != config_.local.is_ipv4())
    return invalid(to + ": not of this device's address family");
  if (!connects(p.port_space)) return Error(ErrorCode::NotSupported, to + ": port space without connections");
  if (p.port == 0) return invalid(to);
  if (auto r = check_qpn(to.c_str(), p.qpn); !r) return r;
  if (mtu_code(p.path_mtu_bytes) == 0 || p.path_mtu_bytes > config_.max_path_mtu_bytes) {
    return invalid(to + ": path MTU " + number(p.path_mtu_bytes));
  }
  if (p.retry_count > 7 || p.rnr_retry_count > 7 || p.ack_timeout_code > 31) {
    return invalid(to + ": retry counts up to 7, ACK timeout code up to 31");
  }
  if (auto r = check_private(to.c_str(), p.private_data, kConnectPrivateBytes); !r) return r;
  if (table_.size() >= config_.connections) {
    return Error(ErrorCode::ResourceExhausted, to + ": " + number(config_.connections) + " connections");
  }
  return {};
}

Result<ConnectionId> Manager::connect(Instant now, const ConnectParams& params) {
  if (auto ok = check(params); !ok) return ok.error();
  Connection& c = table_.create(random_, config_.ids);
  c.transaction = random_.next_u64();
  ConnectionParameters& p = c.parameters;
  p.remote = params.remote;
  p.port_space = params.port_space;
  p.local_port = static_cast<std::uint16_t>(kFirstEphemeralPort + random_.below(kEphemeralPorts));
  p.remote_port = params.port;
  p.local_qpn = params.qpn;
  p.local_psn = params.starting_psn;
  p.path_mtu_bytes = params.path_mtu_bytes;
  p.responder_resources = std::min(params.responder_resources, config_.max_responder_resources);
  p.initiator_depth = std::min(params.initiator_depth, config_.max_initiator_depth);
  p.retry_count = params.retry_count;
  p.traffic_class = params.traffic_class;
  p.flow_label = params.flow_label != 0 ? params.flow_label & 0xfffff : random_.next_u32() >> 12;
  c.explicit_ack_timeout = params.ack_timeout_code != 0;
  p.ack_timeout_code = c.explicit_ack_timeout
                           ? params.ack_timeout_code
                           : ack_timeout_code(config_.target_ack_delay_code, config_.packet_lifetime_code);
  c.max_retries = config_.max_retries;
  c.interval = retry_interval(config_.packet_lifetime_code, config_.response_timeout_code);
  c.message = build_req(c, config_, params);
  table_.set_state(c, State::ReqSent);
  begin_retries(now, c);
  return c.id;
}

Result<Connection*> Manager::owned(ConnectionId id, const char* command) const {
  Connection* c = table_.find(id);
  if (c == nullptr || !c->owned)
    return Error(ErrorCode::NotFound, std::string(command) + ": no such connection");
  return c;
}

Result<void> Manager::wrong_state(const Connection& c, const char* command) const {
  return Error(ErrorCode::WrongState, std::string(command) + " with " + c.parameters.remote.to_string() +
                                          ": state is " + std::string(to_string(c.state)));
}

Result<void> Manager::accept(Instant now, ConnectionId id, const AcceptParams& params) {
  auto found = owned(id, "accept");
  if (!found) return found.error();
  Connection& c = **found;
  if (!is_pending(c)) return wrong_state(c, "accept");
  if (auto r = check_private("accept", params.private_data, kAcceptPrivateBytes); !r) return r;
  if (auto r = check_qpn("accept", params.qpn); !r) return r;
  if (params.rnr_retry_count > 7) return invalid("accept: RNR retry count up to 7");
  ConnectionParameters& p = c.parameters;
  p.local_qpn = params.qpn;
  p.local_psn = params.starting_psn;
  p.responder_resources = std::min(p.responder_resources, params.responder_resources);
  p.initiator_depth = std::min(p.initiator_depth, params.initiator_depth);
  c.announced = true;
  c.message = build_rep(c, config_, params);
  table_.set_state(c, State::RepSent);
  begin_retries(now, c);
  return {};
}

Result<void> Manager::reject(Instant now, ConnectionId id, std::span<const std::byte> private_data,
                             RejectReason reason) {
  auto found = owned(id, "reject");
  if (!found) return found.error();
  Connection& c = **found;
  if (!is_pending(c) && c.state != State::RepReceived) return wrong_state(c, "reject");
  if (auto r = check_private("reject", private_data, kRejectPrivateBytes); !r) return r;
  if (reason == RejectReason::Consumer) ++counters_.cm_rej_consumer;
  c.announced = true;
  send_reject(now, c, private_data, reason);
  return {};
}

Result<void> Manager::confirm(Instant, ConnectionId id) {
  auto found = owned(id, "confirm");
  if (!found) return found.error();
  Connection& c = **found;
  if (c.state != State::RepReceived) return wrong_state(c, "confirm");
  c.message = build_rtu(c);
  send(c, c.message);
  to_established(c);
  return {};
}

Result<void> Manager::establish(Instant, ConnectionId id) {
  auto found = owned(id, "establish");
  if (!found) return found.error();
  Connection& c = **found;
  if (c.state == State::Established) return {};
  if (!awaits_rtu(c.state)) return wrong_state(c, "establish");
  to_established(c);
  return {};
}

Result<void> Manager::disconnect(Instant now, ConnectionId id) {
  auto found = owned(id, "disconnect");
  if (!found) return found.error();
  Connection& c = **found;
  if (c.state == State::DreqSent || c.state == State::TimeWait) return {};
  if (c.state != State::Established && !awaits_rtu(c.state)) return wrong_state(c, "disconnect");
  start_disconnect(now, c);
  return {};
}

// By whom it belongs to, without an answer. Where its listener has gone, nobody there said no.
void Manager::turn_away(Instant now, Connection& c) {
  const bool unheard = is_pending(c) && !ports_.contains(c.listener.value);
  ++(unheard ? counters_.cm_rej_no_listener : counters_.cm_rej_consumer);
  send_reject(now, c, {}, unheard ? RejectReason::InvalidServiceId : RejectReason::Consumer);
}

Result<void> Manager::destroy(Instant now, ConnectionId id) {
  auto found = owned(id, "destroy");
  if (!found) return found.error();
  Connection& c = **found;
  c.owned = false;
  events_.withdraw_all(c);
  switch (c.state) {
    case State::Idle:
      finish(c);
      break;
    case State::ReqSent:
    case State::MraReqReceived:
      send_timeout_reject(c);
      finish(c);
      break;
    case State::ReqReceived:
    case State::MraReqSent:
    case State::RepReceived:
      turn_away(now, c);
      break;
    case State::RepSent:
    case State::MraRepReceived:
    case State::Established:
      start_disconnect(now, c);
      break;
    case State::DreqSent:
    case State::TimeWait:
    case State::RejectSent:
      break;
  }
  return {};
}

Result<ConnectionInfo> Manager::query(ConnectionId id) const {
  auto found = owned(id, "query");
  if (!found) return found.error();
  const Connection& c = **found;
  return ConnectionInfo{c.state, c.passive, c.parameters, c.private_data, c.reason};
}

}  // namespace verbena::cm
