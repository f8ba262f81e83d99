// SPDX-License-Identifier: Apache-2.0
#include "tools/ping_server.h"

#include <algorithm>

namespace verbena::tools {

Result<std::unique_ptr<PingVisit>> PingVisit::create(ProgressEngine& engine, Device& device,
                                                     const PingRequest& request, ConnectionRequest& from) {
  std::unique_ptr<PingVisit> visit(new PingVisit(request, from.peer().to_string()));
  if (auto accepted = visit->accept(engine, device, from); !accepted) return std::move(accepted).error();
  return visit;
}

Result<void> PingVisit::accept(ProgressEngine& engine, Device& device, ConnectionRequest& from) {
  const bool is_send = request_.operation == PingOperation::Send;
  const std::size_t bytes = is_atomic(request_.operation) ? 8 : std::max<std::size_t>(request_.size, 8);
  auto region = device.allocate_memory(is_send ? kBuffers * bytes : bytes, is_send ? Access::LocalWrite : Access::All);
  if (!region) return std::move(region).error();
  region_ = std::move(*region);
  auto connection = Connection::prepare(engine);
  if (!connection) return std::move(connection).error();
  for (std::size_t i = 0; is_send && i < kBuffers; ++i) {
    receives_[i].on_done([this, i](Operation& receive) {
      if (receive.result()) send_back(i);
    });
    sends_[i].on_done([this, i](Operation& send) {
      if (send.result()) receive_again(i);
    });
    connection->receive(receives_[i], segments_of(buffer(i, request_.size)));
  }
  const auto memory = region_.remote().to_bytes();
  auto accepted = from.accept(std::move(*connection), memory);
  if (!accepted) return std::move(accepted).error();
  connection_.emplace(std::move(*accepted));
  return {};
}

// What its connection ends, or still finds done, is nobody's to answer.
PingVisit::~PingVisit() {
  for (Operation& receive : receives_) receive.on_done([](Operation&) {});
  for (Operation& send : sends_) send.on_done([](Operation&) {});
}

ScatterGather PingVisit::buffer(std::size_t index, std::uint32_t bytes) const {
  return region_.local(index * (region_.size() / kBuffers), bytes);
}

void PingVisit::send_back(std::size_t index) {
  const std::uint32_t bytes = receives_[index].result()->bytes;
  connection_->send(sends_[index], segments_of(buffer(index, bytes)));
}

void PingVisit::receive_again(std::size_t index) {
  connection_->receive(receives_[index], segments_of(buffer(index, request_.size)));
}

Result<std::unique_ptr<PingServer>> PingServer::create(ProgressEngine& engine, Device& device, std::uint16_t port) {
  std::unique_ptr<PingServer> server(new PingServer(engine, device));
  ListenOptions options;
  options.port = port;
  auto listener = Listener::create(engine, options);
  if (!listener) return std::move(listener).error();
  server->listener_.emplace(std::move(*listener));
  return server;
}

bool PingServer::pump(const Teller& on_begin, const Teller& on_over) {
  bool further = false;
  while (auto request = listener_->poll_request()) {
    welcome(std::move(*request), on_begin);
    further = true;
  }
  for (auto& visit : visits_) {
    if (!visit->over()) continue;
    on_over(*visit);
    visit.reset();
    further = true;
  }
  visits_.erase(std::remove(visits_.begin(), visits_.end(), nullptr), visits_.end());
  return further;
}

void PingServer::welcome(ConnectionRequest request, const Teller& on_begin) {
  auto wanted = PingRequest::from_bytes(request.private_data());
  if (!wanted) return (void)request.reject_in_words(wanted.error().context());
  std::uint64_t lent = wanted->size * 2ull;
  for (const auto& visit : visits_) lent += visit->memory_bytes();
  if (visits_.size() >= kMaxVisits || lent > kMaxMemoryBytes)
    return (void)request.reject_for_now("the ping server is busy with " + std::to_string(visits_.size()) + " clients");
  auto visit = PingVisit::create(engine_, device_, *wanted, request);
  if (!visit)
    return (void)request.reject_for_now("the ping server cannot take another client: " + visit.error().context());
  on_begin(**visit);
  visits_.push_back(std::move(*visit));
}

}  // namespace verbena::tools
