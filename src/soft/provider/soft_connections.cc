// SPDX-License-Identifier: Apache-2.0
// Connection management and events of the software device.
#include <variant>

#include "soft/provider/soft_queues.h"

namespace verbena::soft {

using provider::ConnectionId;
using provider::ConnectionParameters;
using provider::Event;
using provider::ListenerId;

namespace {

cm::ConnectionId to_cm(ConnectionId id) { return {static_cast<std::uint64_t>(id)}; }
std::uint32_t service_of(std::uint16_t port) {
  return static_cast<std::uint32_t>(cm::PortSpace::Tcp) << 16 | port;
}
cm::ListenerId to_cm(ListenerId id) { return {static_cast<std::uint64_t>(id)}; }

Event::Kind to_provider(cm::EventType type) {
  switch (type) {
    case cm::EventType::ConnectRequest:
      return Event::Kind::ConnectRequest;
    case cm::EventType::ConnectResponse:
      return Event::Kind::ConnectResponse;
    case cm::EventType::Established:
      return Event::Kind::Established;
    case cm::EventType::Rejected:
      return Event::Kind::Rejected;
    case cm::EventType::Unreachable:
      return Event::Kind::Unreachable;
    case cm::EventType::ConnectError:
      return Event::Kind::ConnectError;
    case cm::EventType::Disconnected:
      return Event::Kind::Disconnected;
    case cm::EventType::TimewaitExit:
      break;
  }
  return Event::Kind::TimewaitExit;
}

Event to_provider(const core::Event& from) {
  Event event;
  event.kind = from.kind == core::Event::Kind::Completion ? Event::Kind::Completion : Event::Kind::Async;
  event.async = from.type;
  event.qpn = from.qpn;
  event.cq = provider::CqId{from.cq.value};
  event.srq = provider::SrqId{from.srq.value};
  return event;
}

Event to_provider(const std::unique_ptr<cm::Event>& from) {
  Event event;
  event.kind = to_provider(from->type);
  event.qpn = from->parameters.local_qpn;
  event.listener = ListenerId{from->listener.value};
  event.connection = ConnectionId{from->connection.value};
  event.reason = from->reason;
  const auto data = from->private_data.span();
  event.private_data.assign(data.begin(), data.end());
  return event;
}

}  // namespace

Psn SoftContext::chosen_psn(Psn wanted) {
  if (wanted.value() != 0) return wanted;
  return Psn{static_cast<std::uint32_t>(random() >> 40)};
}

// Other processes may share the address: a port is ours when they agree. A picked one that is not is picked again.
Result<ListenerId> SoftContext::listen(std::uint16_t port, int backlog) {
  constexpr int kPicks = 64;
  const auto waiting = static_cast<std::uint32_t>(backlog > 0 ? backlog : 1);
  for (int picks = 1;; ++picks) {
    auto id = device_->with_nic(
        [&](Nic& nic, Instant now) { return nic.cm().listen(now, cm::PortSpace::Tcp, port, waiting); });
    if (!id) return id.error();
    const auto chosen = device_->with_nic([&](Nic& nic, Instant) { return nic.cm().listening_port(*id); });
    if (!chosen) return chosen.error();
    auto announced = device_->announce(service_of(*chosen));
    if (announced) return ListenerId{id->value};
    auto stopped =
        device_->with_nic([&](Nic& nic, Instant now) { return nic.cm().stop_listening(now, *id); });
    if (!stopped) return stopped.error();
    const Error& refusal = announced.error();
    if (port == 0 && refusal.code() == ErrorCode::AddressInUse && picks < kPicks) continue;
    return Error(refusal.code(), "listen " + info_.address.to_string() + ": " + refusal.context(), refusal.native(),
                 refusal.domain());
  }
}

Result<std::uint16_t> SoftContext::listener_port(ListenerId listener) const {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.cm().listening_port(to_cm(listener)); });
}

Result<void> SoftContext::stop_listening(ListenerId listener) {
  const auto port = device_->with_nic([&](Nic& nic, Instant) { return nic.cm().listening_port(to_cm(listener)); });
  if (!port) return port.error();
  auto stopped = device_->with_nic(
      [&](Nic& nic, Instant now) { return nic.cm().stop_listening(now, to_cm(listener)); });
  if (!stopped) return stopped;
  // Those that the program has not looked at are told now; it may never look.
  for (const cm::ConnectionId unseen : device_->take_back_requests(to_cm(listener)))
    device_->with_nic([&](Nic& nic, Instant now) { static_cast<void>(nic.cm().destroy(now, unseen)); });
  return device_->withdraw(service_of(*port));
}

Result<ConnectionId> SoftContext::connect(const ConnectionParameters& parameters,
                                          std::span<const std::byte> private_data) {
  cm::ConnectParams params;
  params.remote = parameters.remote;
  params.port = parameters.port;
  params.qpn = parameters.local_qpn;
  params.starting_psn = chosen_psn(parameters.local_psn);
  params.responder_resources = parameters.responder_resources;
  params.initiator_depth = parameters.initiator_depth;
  params.retry_count = parameters.retry_count;
  params.rnr_retry_count = parameters.rnr_retry;
  params.path_mtu_bytes = parameters.path_mtu != 0 ? parameters.path_mtu : info_.active_mtu;
  params.ack_timeout_code = parameters.timeout;
  params.traffic_class = parameters.traffic_class;
  params.srq = parameters.shared_receives;
  params.flow_label = parameters.flow_label;
  params.private_data = private_data;
  auto id = device_->with_nic([&](Nic& nic, Instant now) { return nic.cm().connect(now, params); });
  if (!id) return id.error();
  return ConnectionId{id->value};
}

Result<void> SoftContext::accept(ConnectionId connection, const ConnectionParameters& parameters,
                                 std::span<const std::byte> private_data) {
  cm::AcceptParams params;
  params.qpn = parameters.local_qpn;
  params.starting_psn = chosen_psn(parameters.local_psn);
  params.responder_resources = parameters.responder_resources;
  params.initiator_depth = parameters.initiator_depth;
  params.rnr_retry_count = parameters.rnr_retry;
  params.srq = parameters.shared_receives;
  params.private_data = private_data;
  {
    const std::lock_guard guard(mutex_);
    accepted_[params.qpn.value()] = connection;
  }
  return device_->with_nic([&](Nic& nic, Instant now) {
    nic.await_first_request(params.qpn);
    return nic.cm().accept(now, to_cm(connection), params);
  });
}

Result<void> SoftContext::reject(ConnectionId connection, std::span<const std::byte> private_data,
                                 provider::Refusal why) {
  const cm::RejectReason reason =
      why == provider::Refusal::NoResources ? cm::RejectReason::NoResources : cm::RejectReason::Consumer;
  return device_->with_nic(
      [&](Nic& nic, Instant now) { return nic.cm().reject(now, to_cm(connection), private_data, reason); });
}

Result<void> SoftContext::confirm(ConnectionId connection) {
  return device_->with_nic([&](Nic& nic, Instant now) { return nic.cm().confirm(now, to_cm(connection)); });
}

Result<void> SoftContext::disconnect(ConnectionId connection) {
  return device_->with_nic(
      [&](Nic& nic, Instant now) { return nic.cm().disconnect(now, to_cm(connection)); });
}

Result<void> SoftContext::destroy_connection(ConnectionId connection) {
  return device_->with_nic([&](Nic& nic, Instant now) { return nic.cm().destroy(now, to_cm(connection)); });
}

Result<ConnectionParameters> SoftContext::connection_parameters(ConnectionId connection) const {
  auto info = device_->with_nic([&](Nic& nic, Instant) { return nic.cm().query(to_cm(connection)); });
  if (!info) return info.error();
  const cm::ConnectionParameters& from = info->parameters;
  ConnectionParameters to;
  to.remote = from.remote;
  to.port = from.remote_port;
  to.local_qpn = from.local_qpn;
  to.local_psn = from.local_psn;
  to.remote_qpn = from.remote_qpn;
  to.remote_psn = from.remote_psn;
  to.path_mtu = from.path_mtu_bytes;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.retry_count = from.retry_count;
  to.rnr_retry = from.rnr_retry_count;
  to.timeout = from.ack_timeout_code;
  to.traffic_class = from.traffic_class;
  to.flow_label = from.flow_label;
  to.request_is_there = info->state == cm::State::MraReqReceived;
  return to;
}

void SoftContext::establish_on(Qpn qpn) {
  ConnectionId connection{};
  {
    const std::lock_guard guard(mutex_);
    const auto found = accepted_.find(qpn.value());
    if (found == accepted_.end()) return;
    connection = found->second;
    accepted_.erase(found);
  }
  static_cast<void>(
      device_->with_nic([&](Nic& nic, Instant now) { return nic.cm().establish(now, to_cm(connection)); }));
}

std::optional<Event> SoftContext::poll_event() {
  auto from = device_->poll_event();
  if (!from) return std::nullopt;
  Event event = std::visit([](const auto& e) { return to_provider(e); }, *from);
  if (event.kind == Event::Kind::Async && event.async == AsyncEventType::CommEstablished)
    establish_on(event.qpn);
  if (event.kind == Event::Kind::Established) {
    const std::lock_guard guard(mutex_);
    accepted_.erase(event.qpn.value());
  }
  return event;
}

}  // namespace verbena::soft
