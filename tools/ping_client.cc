// SPDX-License-Identifier: Apache-2.0
#include "tools/ping_client.h"

#include <algorithm>

namespace verbena::tools {

namespace {

// A pattern that differs from message to message.
std::byte pattern(std::uint64_t sequence, std::size_t at) {
  return static_cast<std::byte>(sequence * 131 + at * 7 + 1);
}

}  // namespace

Result<std::unique_ptr<PingClient>> PingClient::connect(ProgressEngine& engine, Device& device, const Endpoint& server,
                                                        const PingRequest& request,
                                                        const ConnectionOptions& options) {
  std::unique_ptr<PingClient> client(new PingClient(engine, request));
  auto region = device.allocate_memory(2 * std::max<std::size_t>(request.size, 8), Access::LocalWrite);
  if (!region) return std::move(region).error();
  client->region_ = std::move(*region);
  auto connection = Connection::connect(engine, server.to_string(), options, request.to_bytes());
  if (!connection) return std::move(connection).error();
  client->connection_.emplace(std::move(*connection));
  auto remote = RemoteMemory::from_bytes(client->connection_->private_data());
  if (!remote || remote->length < std::max<std::uint64_t>(8, request.size))
    return Error(ErrorCode::ProtocolError, "what listens at " + server.to_string() + " is no verbena ping server");
  client->remote_ = *remote;
  return client;
}

Result<Duration> PingClient::ping(std::uint64_t sequence, Duration timeout) {
  prepare(sequence);
  const bool is_send = request_.operation == PingOperation::Send;
  const Instant begun = engine_.now();
  start(sequence);
  const auto done = [&] { return operation_.done() && (!is_send || receive_.done() || !operation_.result()); };
  if (!engine_.run_until(done, timeout))
    return Error(ErrorCode::TimedOut, "no answer to ping " + std::to_string(sequence) + " from " +
                                          connection_->peer().to_string());
  const Duration taken = engine_.now() - begun;
  if (auto outcome = operation_.result(); !outcome) return std::move(outcome).error();
  if (is_send)
    if (auto outcome = receive_.result(); !outcome) return std::move(outcome).error();
  if (auto right = check(sequence); !right) return std::move(right).error();
  return taken;
}

void PingClient::prepare(std::uint64_t sequence) {
  const std::size_t half = region_.size() / 2;
  if (request_.operation != PingOperation::Send && request_.operation != PingOperation::Write) return;
  for (std::size_t i = 0; i < request_.size; ++i) region_.data()[i] = pattern(sequence, i);
  if (request_.operation == PingOperation::Send)
    connection_->receive(receive_, segments_of(region_.local(half, request_.size)));
}

void PingClient::start(std::uint64_t sequence) {
  const ScatterGather local = region_.local(0, request_.size);
  RemoteMemory remote = remote_;
  remote.length = request_.size;
  switch (request_.operation) {
    case PingOperation::Send: connection_->send(operation_, segments_of(local)); break;
    case PingOperation::Write: connection_->write(operation_, segments_of(local), remote); break;
    case PingOperation::Read: connection_->read(operation_, segments_of(local), remote); break;
    case PingOperation::CompareAndSwap:
      connection_->compare_and_swap(operation_, remote_, cell_, sequence);
      break;
    case PingOperation::FetchAndAdd: connection_->fetch_and_add(operation_, remote_, 1); break;
  }
}

Result<void> PingClient::check(std::uint64_t sequence) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorCode::CorruptData, "ping " + std::to_string(sequence) + ": " + what);
  };
  if (request_.operation == PingOperation::Send) {
    if (receive_.result()->bytes != request_.size) return wrong("the answer has another length");
    const std::byte* sent = region_.data();
    if (!std::equal(sent, sent + request_.size, sent + region_.size() / 2)) return wrong("other bytes came back");
  }
  if (!is_atomic(request_.operation)) return {};
  if (operation_.result()->value != cell_) return wrong("the remote cell held another value than it must");
  cell_ = request_.operation == PingOperation::FetchAndAdd ? cell_ + 1 : sequence;
  return {};
}

}  // namespace verbena::tools
