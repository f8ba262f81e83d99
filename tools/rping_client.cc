// SPDX-License-Identifier: Apache-2.0
#include "tools/rping_client.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::tools {

Result<std::unique_ptr<RpingClient>> RpingClient::connect(ProgressEngine& engine, Device& device,
                                                          const Endpoint& server, const RpingSettings& settings) {
  std::unique_ptr<RpingClient> client(new RpingClient(engine, settings));
  auto source = device.allocate_memory(settings.bytes, Access::RemoteRead);
  if (!source) return std::move(source).error();
  client->source_ = std::move(*source);
  auto sink = device.allocate_memory(settings.bytes, Access::LocalWrite | Access::RemoteWrite);
  if (!sink) return std::move(sink).error();
  client->sink_ = std::move(*sink);
  auto messages = device.allocate_memory(2 * RpingAdvertisement::kWireBytes, Access::LocalWrite);
  if (!messages) return std::move(messages).error();
  client->messages_ = std::move(*messages);
  auto connection = Connection::prepare(engine, rping_connection_options());
  if (!connection) return std::move(connection).error();
  client->connection_.emplace(std::move(*connection));
  client->connection_->receive(client->receive_, client->inbox());
  if (auto done = client->connection_->connect_to(server.to_string()); !done) return std::move(done).error();
  client->tell(fmt::format("connected to {}", server.to_string()));
  return client;
}

Result<void> RpingClient::ping(std::uint64_t number, Duration timeout) {
  const Instant deadline = engine_.now() + timeout;
  fill_rping_payload(source_.bytes(), number);
  std::ranges::fill(sink_.bytes(), std::byte{0});
  if (auto done = advertise(source_, "source", deadline); !done) return done;
  if (auto done = advertise(sink_, "sink", deadline); !done) return done;
  if (settings_.validate) return check_rping_payload(sink_.bytes(), number);
  return {};
}

Result<void> RpingClient::advertise(const MemoryRegion& memory, std::string_view name, Instant deadline) {
  const RpingAdvertisement advertisement{memory.remote().address, memory.rkey(),
                                         static_cast<std::uint32_t>(memory.size())};
  std::ranges::copy(advertisement.to_bytes(), messages_.data() + RpingAdvertisement::kWireBytes);
  connection_->send(send_, outbox());
  tell(fmt::format("sent the {}: {}", name, advertisement.to_string()));
  const auto answered = [&] {
    return (send_.done() && !send_.result()) || (receive_.done() && (send_.done() || !receive_.result()));
  };
  if (!engine_.run_until(answered, deadline))
    return Error(ErrorCode::TimedOut,
                 fmt::format("{} does not answer the advertisement of the {}", connection_->peer().to_string(), name));
  if (receive_.done())
    if (auto outcome = receive_.result(); !outcome) return std::move(outcome).error();
  if (auto outcome = send_.result(); !outcome) return std::move(outcome).error();
  const auto answer = RpingAdvertisement::from_bytes(messages_.bytes().first(receive_.result()->bytes));
  if (!answer) return answer.error();
  tell(fmt::format("the server has answered the {}", name));
  connection_->receive(receive_, inbox());
  return {};
}

}  // namespace verbena::tools
