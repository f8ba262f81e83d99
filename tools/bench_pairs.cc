// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

namespace verbena::tools {

namespace {

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte one : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(one));
  return text;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

}  // namespace

Result<std::unique_ptr<BenchPairs>> BenchPairs::create(ProgressEngine& engine, Device& device,
                                                       const BenchSettings& settings) {
  std::unique_ptr<BenchPairs> pairs(new BenchPairs(engine, device, settings));
  if (auto ready = pairs->prepare(); !ready) return std::move(ready).error();
  return pairs;
}

// What may stand in the completion queue at once, if all pairs have one.
std::uint64_t BenchPairs::completions() const {
  return std::uint64_t{settings_.pairs} * settings_.send_depth + settings_.receives();
}

Result<void> BenchPairs::check_limits() const {
  const DeviceInfo& info = device_.info();
  struct Limit {
    const char* flag;
    std::uint64_t wanted, most;
  };
  const char* flags = !settings_.two_sided()         ? "-q times -t"
                      : settings_.shared_receives ? "-q times -t, plus -r"
                                                  : "-q times (-t plus -r)";
  const Limit limits[] = {{"-t", settings_.send_depth, info.max_requests},
                          {"-r", settings_.two_sided() ? settings_.receive_depth : 0, info.max_requests},
                          {"-I", settings_.inline_bytes, info.max_inline_bytes},
                          {"-m", settings_.mtu, info.active_mtu},
                          {"-o", settings_.outstanding, info.max_rd_atomic},
                          {"-q", settings_.pairs, info.max_queue_pairs},
                          {flags, completions(), info.max_completion_entries}};
  for (const Limit& one : limits)
    if (one.wanted > one.most)
      return Error(ErrorCode::InvalidArgument, fmt::format("{} is {}, and the device at {} takes {} at most", one.flag,
                                                           one.wanted, info.address.to_string(), one.most));
  return {};
}

QueuePairCapabilities BenchPairs::capabilities() const {
  QueuePairCapabilities wanted;
  wanted.max_send_requests = settings_.send_depth;
  wanted.max_receive_requests = settings_.two_sided() && !settings_.shared_receives ? settings_.receive_depth : 1;
  wanted.max_send_segments = wanted.max_receive_segments = 1;
  wanted.max_inline_bytes = settings_.inline_bytes;
  return wanted;
}

ReliabilityOptions BenchPairs::reliability() const {
  ReliabilityOptions options;
  options.timeout = static_cast<std::uint8_t>(settings_.timeout_code);
  options.max_dest_rd_atomic = device_.info().max_rd_atomic;
  options.max_rd_atomic =
      settings_.outstanding == 0 ? options.max_dest_rd_atomic : static_cast<std::uint8_t>(settings_.outstanding);
  return options;
}

Result<void> BenchPairs::prepare() {
  if (auto fits = check_limits(); !fits) return fits;
  if (settings_.managed) return {};
  auto queue = device_.create_completion_queue(static_cast<std::uint32_t>(completions()));
  if (!queue) return std::move(queue).error();
  completions_.emplace(std::move(*queue));
  QueuePairOptions options;
  options.capabilities = capabilities();
  if (settings_.shared_receives) {
    auto shared = device_.create_shared_receive_queue({.max_requests = settings_.receive_depth, .max_segments = 1});
    if (!shared) return std::move(shared).error();
    options.shared_receive_queue = &shared_.emplace(std::move(*shared));
  }
  for (std::uint32_t i = 0; i < settings_.pairs; ++i) {
    auto pair = device_.create_queue_pair(*completions_, options);
    if (!pair) return std::move(pair).error();
    if (auto done = pair->to_init(); !done) return done;
    by_hand_.push_back(std::move(*pair));
  }
  return {};
}

Result<void> BenchPairs::connect(BenchControl& control, const std::string& host, const StopQuestion& stopped) {
  if (!settings_.managed) return exchange_addresses(control);
  return settings_.client ? make_connections(control, host) : accept_connections(control, stopped);
}

Result<void> BenchPairs::exchange_addresses(BenchControl& control) {
  nlohmann::json ours = nlohmann::json::array();
  for (const QueuePair& pair : by_hand_) {
    QueuePairAddress address = pair.address();
    if (settings_.mtu != 0) address.mtu = std::min(address.mtu, settings_.mtu);
    ours.push_back(hex_of(address.to_bytes()));
  }
  if (auto sent = control.send({{"pairs", ours}}); !sent) return sent;
  auto message = control.receive();
  if (!message) return std::move(message).error();
  const auto theirs = message->find("pairs");
  if (theirs == message->end() || !theirs->is_array() || theirs->size() != by_hand_.size())
    return Error(ErrorCode::ProtocolError, "the other side tells of another number of queue pairs");
  const PacketMarks marks{.traffic_class = settings_.traffic_class};
  for (std::size_t i = 0; i < by_hand_.size(); ++i) {
    const nlohmann::json& text = (*theirs)[i];
    auto address = QueuePairAddress::from_bytes(bytes_of(text.is_string() ? text.get<std::string>() : ""));
    if (!address) return std::move(address).error();
    const std::uint32_t own = settings_.mtu == 0 ? by_hand_[i].address().mtu : settings_.mtu;
    mtu_ = address->mtu = std::min(address->mtu, own);
    if (auto done = by_hand_[i].connect(*address, reliability(), marks); !done) return done;
  }
  return {};
}

Result<void> BenchPairs::accept_connections(BenchControl& control, const StopQuestion& stopped) {
  ListenOptions listen;
  listen.backlog = static_cast<int>(settings_.pairs);
  auto listener = Listener::create(engine_, listen);
  if (!listener) return std::move(listener).error();
  // Whoever else connects there does not know it.
  const std::uint64_t token = std::uint64_t{std::random_device()()} << 32 | std::random_device()();
  if (auto told = control.send({{"port", listener->port()}, {"token", token}}); !told) return told;
  ConnectionOptions options;
  options.queues = capabilities();
  options.reliability = reliability();
  options.path_mtu = settings_.mtu;
  options.traffic_class = settings_.traffic_class;
  const Instant deadline = engine_.now() + settings_.patience;
  while (connections_.size() < settings_.pairs) {
    std::optional<ConnectionRequest> request;
    const auto come = [&] { return (request = listener->poll_request()).has_value() || stopped() || control.ready(); };
    if (!engine_.run_until(come, deadline))
      return Error(ErrorCode::TimedOut, fmt::format("{} of {} connections came", connections_.size(), settings_.pairs));
    if (stopped()) return Error(ErrorCode::Cancelled, "interrupted");
    if (!request) {
      auto told = control.receive();
      return told ? Error(ErrorCode::ProtocolError, "a message out of turn") : std::move(told).error();
    }
    if (!std::ranges::equal(request->private_data().first(sizeof token), std::as_bytes(std::span{&token, 1})))
      continue;
    auto connection = request->accept(options);
    if (!connection) return std::move(connection).error();
    connections_.push_back(std::move(*connection));
    watch(connections_.back());
    if (auto up = connections_.back().wait_established(settings_.patience); !up) return up;
  }
  mtu_ = connections_.back().path_mtu();
  return {};
}

Result<void> BenchPairs::make_connections(BenchControl& control, const std::string& host) {
  auto message = control.receive();
  if (!message) return std::move(message).error();
  const auto port = number_of(*message, "port");
  if (!port) return port.error();
  const auto token = number_of(*message, "token");
  if (!token) return token.error();
  ConnectionOptions options;
  options.queues = capabilities();
  options.reliability = reliability();
  options.path_mtu = settings_.mtu;
  options.traffic_class = settings_.traffic_class;
  const Endpoint peer{host, static_cast<std::uint16_t>(*port)};
  for (std::uint32_t i = 0; i < settings_.pairs; ++i) {
    auto connection = Connection::connect(engine_, peer.to_string(), options, std::as_bytes(std::span{&*token, 1}));
    if (!connection) return std::move(connection).error();
    connections_.push_back(std::move(*connection));
    watch(connections_.back());
  }
  mtu_ = connections_.back().path_mtu();
  return {};
}

PathTaken BenchPairs::wait_path() const {
  const Qpn qpn = settings_.managed ? connections_.front().local_qpn() : by_hand_.front().qpn();
  return tools::wait_path(engine_, device_, qpn);
}

void BenchPairs::watch(Connection& connection) {
  connection.on_completion([this](const Completion& completion) { seen_.push_back(completion); });
}

Result<void> BenchPairs::post_send(std::uint32_t index, std::span<const SendRequest> requests) {
  const PostResult posted =
      settings_.managed ? connections_[index].post_send(requests) : by_hand_[index].post_send(requests);
  if (posted) return {};
  if (settings_.managed)
    if (auto status = connections_[index].status(); !status) return status;
  return Error(ErrorCode::Internal, fmt::format("queue pair {}: {}", index, to_string(posted.status)));
}

Result<void> BenchPairs::post_receive(std::uint32_t index, const ScatterGather& piece) {
  ReceiveRequest request;
  request.id = receive_id(index);
  request.local = {&piece, 1};
  const PostResult posted = settings_.managed ? connections_[index].post_receive({&request, 1})
                            : shared_         ? shared_->post(request)
                                              : by_hand_[index].post_receive(request);
  if (posted) return {};
  return Error(ErrorCode::Internal, fmt::format("receive on queue pair {}: {}", index, to_string(posted.status)));
}

bool BenchPairs::poll(const Handler& handler) {
  std::array<Completion, 64> batch;
  std::size_t count = 0;
  if (!settings_.managed) {
    count = completions_->poll(batch);
    for (std::size_t i = 0; i < count; ++i) handler(batch[i]);
    return count != 0;
  }
  if (seen_.empty()) engine_.run_once();
  while (!seen_.empty() && count++ < batch.size()) {
    const Completion completion = seen_.front();
    seen_.pop_front();
    handler(completion);
  }
  return count != 0;
}

void BenchPairs::wait(Instant until, const Handler& handler) {
  if (engine_.run_once() || !settings_.events) return;
  if (completions_) {
    completions_->arm();
    // What came before arming raises no event.
    if (poll(handler)) return;
  }
  engine_.wait(until);
}

}  // namespace verbena::tools
