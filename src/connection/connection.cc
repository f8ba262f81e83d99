// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/connection.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "async/describe.h"
#include "async/receive_pool_state.h"
#include "connection/connection_state.h"

namespace verbena {

std::string_view to_string(ConnectionPhase phase) {
  switch (phase) {
    case ConnectionPhase::Prepared:
      return "prepared";
    case ConnectionPhase::Connecting:
      return "connecting";
    case ConnectionPhase::Established:
      return "established";
    case ConnectionPhase::Closed:
      return "closed";
    case ConnectionPhase::Broken:
      return "broken";
  }
  return "unknown";
}

Connection::Connection(std::shared_ptr<ConnectionState> state) : state_(std::move(state)) {}
Connection::Connection(Connection&& other) noexcept = default;
Connection& Connection::operator=(Connection&& other) noexcept {
  if (this == &other) return *this;
  auto next = std::move(other.state_);
  finish();
  state_ = std::move(next);
  return *this;
}
Connection::~Connection() { finish(); }

// Callbacks that run meanwhile find it whole. What they assign to it ends as well.
void Connection::finish() {
  while (state_ != nullptr) {
    const std::shared_ptr<ConnectionState> ending = state_.pointer();
    ending->finish();
    if (state_ == ending) return;
  }
}

Result<Connection> Connection::prepare(ProgressEngine& engine, const ConnectionOptions& options) {
  auto state = ConnectionState::prepare(engine.state(), options);
  if (!state) return state.error();
  return Connection{std::move(*state)};
}

Result<Connection> Connection::connect(ProgressEngine& engine, std::string_view address,
                                       const ConnectionOptions& options,
                                       std::span<const std::byte> private_data) {
  auto connection = prepare(engine, options);
  if (!connection) return connection;
  if (auto ok = connection->connect_to(address, private_data); !ok) return ok.error();
  return connection;
}

Result<void> Connection::connect_to(std::string_view address, std::span<const std::byte> private_data) {
  return state_->engine().run(async_connect_to(address, private_data));
}
Result<ConnectionDescription> Connection::describe(std::span<const std::byte> user_data) {
  return state_->describe(user_data);
}
Result<void> Connection::connect_to(const ConnectionDescription& peer) { return state_->connect_to(peer); }
Result<Connection> Connection::from_description(ProgressEngine& engine, const ConnectionDescription& peer,
                                                const ConnectionOptions& options) {
  auto connection = prepare(engine, options);
  if (!connection) return connection;
  if (auto ok = connection->connect_to(peer); !ok) return ok.error();
  return connection;
}
Result<void> Connection::wait_established(Duration timeout) {
  return state_->engine().run(async_established(timeout));
}

namespace {

Task<Result<Connection>> connect_prepared(Connection connection, std::string address,
                                          std::vector<std::byte> private_data) {
  auto ok = co_await connection.async_connect_to(address, private_data);
  if (!ok) co_return ok.error();
  co_return std::move(connection);
}

Task<Result<Connection>> fail_to_connect(Error error) { co_return error; }

}  // namespace

Task<Result<Connection>> Connection::async_connect(ProgressEngine& engine, std::string_view address,
                                                   const ConnectionOptions& options,
                                                   std::span<const std::byte> private_data) {
  auto connection = prepare(engine, options);
  if (!connection) return fail_to_connect(connection.error());
  return connect_prepared(std::move(*connection), std::string(address), {private_data.begin(), private_data.end()});
}
Task<Result<void>> Connection::async_connect_to(std::string_view address,
                                                std::span<const std::byte> private_data) {
  return state_->connect_to(state_.pointer(), std::string(address),
                            {private_data.begin(), private_data.end()});
}
Task<Result<void>> Connection::async_established(Duration timeout) {
  return state_->established(state_.pointer(), timeout);
}

// ---- Operations.

Operation::Request& Connection::request(Operation& operation, SendOpcode opcode, Segments local,
                                        const RemoteMemory& remote, SendFlags flags) {
  Operation::Request& r = operation.request(opcode, local, flags);
  r.remote_address = remote.address;
  r.remote_length = remote.length;
  r.rkey = remote.rkey;
  return r;
}

void Connection::request_atomic(Operation& operation, SendOpcode opcode, const RemoteMemory& remote,
                                std::uint64_t compare, std::uint64_t swap_or_add) {
  Operation::Request& r = request(operation, opcode, Segments{}, remote, SendFlags::None);
  r.bytes = 8;
  r.compare = compare;
  r.swap_or_add = swap_or_add;
}

Operation& Connection::start(Operation& operation) {
  state_->channel().start(operation);
  return operation;
}

Operation& Connection::send(Operation& operation, Segments local, SendFlags flags) {
  operation.request(SendOpcode::Send, local, flags);
  return start(operation);
}
Operation& Connection::send_with_immediate(Operation& operation, Segments local, std::uint32_t immediate,
                                           SendFlags flags) {
  operation.request(SendOpcode::SendWithImmediate, local, flags).immediate = immediate;
  return start(operation);
}
// The address stands for bytes that are copied while posting; no key is needed.
Operation& Connection::send_inline(Operation& operation, std::span<const std::byte> bytes, SendFlags flags) {
  const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), UINT32_MAX));  // refused there
  const ScatterGather piece{reinterpret_cast<std::uintptr_t>(bytes.data()), length, LKey{}};
  return send(operation, bytes.empty() ? Segments{} : Segments{piece}, flags | SendFlags::Inline);
}
Operation& Connection::receive(Operation& operation, Segments local) {
  operation.request_receive(local);
  return start(operation);
}
Operation& Connection::write(Operation& operation, Segments local, const RemoteMemory& remote, SendFlags flags) {
  request(operation, SendOpcode::RdmaWrite, local, remote, flags);
  return start(operation);
}
Operation& Connection::write_with_immediate(Operation& operation, Segments local, const RemoteMemory& remote,
                                            std::uint32_t immediate, SendFlags flags) {
  request(operation, SendOpcode::RdmaWriteWithImmediate, local, remote, flags).immediate = immediate;
  return start(operation);
}
Operation& Connection::read(Operation& operation, Segments local, const RemoteMemory& remote, SendFlags flags) {
  request(operation, SendOpcode::RdmaRead, local, remote, flags);
  return start(operation);
}
Operation& Connection::compare_and_swap(Operation& operation, const RemoteMemory& remote, std::uint64_t expected,
                                        std::uint64_t desired) {
  request_atomic(operation, SendOpcode::CompareAndSwap, remote, expected, desired);
  return start(operation);
}
Operation& Connection::fetch_and_add(Operation& operation, const RemoteMemory& remote, std::uint64_t addend) {
  request_atomic(operation, SendOpcode::FetchAndAdd, remote, 0, addend);
  return start(operation);
}

// The same, made where the caller wants it.
Operation Connection::send(Segments local, SendFlags flags) {
  return Operation([&](Operation& made) { send(made, local, flags); });
}
Operation Connection::send_with_immediate(Segments local, std::uint32_t immediate, SendFlags flags) {
  return Operation([&](Operation& made) { send_with_immediate(made, local, immediate, flags); });
}
Operation Connection::send_inline(std::span<const std::byte> bytes, SendFlags flags) {
  return Operation([&](Operation& made) { send_inline(made, bytes, flags); });
}
Operation Connection::receive(Segments local) {
  return Operation([&](Operation& made) { receive(made, local); });
}
Operation Connection::write(Segments local, const RemoteMemory& remote, SendFlags flags) {
  return Operation([&](Operation& made) { write(made, local, remote, flags); });
}
Operation Connection::write_with_immediate(Segments local, const RemoteMemory& remote, std::uint32_t immediate,
                                           SendFlags flags) {
  return Operation([&](Operation& made) { write_with_immediate(made, local, remote, immediate, flags); });
}
Operation Connection::read(Segments local, const RemoteMemory& remote, SendFlags flags) {
  return Operation([&](Operation& made) { read(made, local, remote, flags); });
}
Operation Connection::compare_and_swap(const RemoteMemory& remote, std::uint64_t expected, std::uint64_t desired) {
  return Operation([&](Operation& made) { compare_and_swap(made, remote, expected, desired); });
}
Operation Connection::fetch_and_add(const RemoteMemory& remote, std::uint64_t addend) {
  return Operation([&](Operation& made) { fetch_and_add(made, remote, addend); });
}

PostResult Connection::post_send(std::span<const SendRequest> requests) {
  return state_->channel().post_send(requests);
}
void Connection::check_alive() { state_->channel().check_alive(); }
PostResult Connection::post_receive(std::span<const ReceiveRequest> requests) {
  return state_->channel().post_receive(requests);
}
bool Connection::try_write_now(const ShortWrite& write) { return state_->channel().try_write_now(write); }
bool Connection::try_write_now(std::span<const std::byte> bytes, const RemoteMemory& remote) {
  return bytes.size() <= remote.length && try_write_now({bytes, remote.address, remote.rkey});
}
bool Connection::try_read_now(const ShortRead& read) { return state_->channel().try_read_now(read); }
bool Connection::try_read_now(std::span<std::byte> bytes, const RemoteMemory& remote) {
  return bytes.size() <= remote.length && try_read_now({bytes, remote.address, remote.rkey});
}
void Connection::on_completion(std::function<void(const Completion&)> handler) {
  state_->channel().on_completion(std::move(handler));
}

// ---- Ending, and what it is.

Result<void> Connection::close(Duration timeout) { return state_->engine().run(async_close(timeout)); }
Task<Result<void>> Connection::async_close(Duration timeout) { return state_->close(state_.pointer(), timeout); }
ConnectionPhase Connection::phase() const { return state_->phase(); }
Result<void> Connection::status() const { return state_->status(); }
void Connection::on_closed(std::function<void()> handler) { state_->on_closed = std::move(handler); }

Endpoint Connection::peer() const { return state_->peer(); }
Gid Connection::local_address() const { return state_->device().info().address; }
Qpn Connection::local_qpn() const { return state_->channel().qpn(); }
Qpn Connection::remote_qpn() const { return state_->parameters().remote_qpn; }
std::uint32_t Connection::path_mtu() const { return state_->parameters().path_mtu; }
const QueuePairCapabilities& Connection::queues() const { return state_->channel().options().queues; }
std::span<const std::byte> Connection::private_data() const { return state_->private_data(); }

std::vector<std::string> Connection::explain() const {
  const ReliabilityOptions& r = state_->channel().options().reliability;
  const provider::ConnectionParameters& p = state_->parameters();
  const DeviceInfo& device = state_->device().info();
  const Duration period = Duration::nanoseconds(std::int64_t{4096} << r.timeout);
  const QueuePairCapabilities& q = queues();
  const ReceivePoolState* const pool = state_->channel().options().pool;
  std::vector<std::string> lines{
      (state_->is_passive() ? "accepted from " : "connected to ") + state_->peer_name() +
          (state_->is_described() ? " by its description, " : ", ") + std::string(to_string(phase())),
      "device " + device.name + " at " + device.address.to_string(),
      "path: " + state_->context().explain_path(local_qpn()),
      "queue pair " + describe::qpn(local_qpn()) + " here, " + describe::qpn(p.remote_qpn) +
          " there, path MTU " + std::to_string(p.path_mtu) + " (the smaller of both devices')",
      "queues: " + std::to_string(q.max_send_requests) + " sends, " +
          (pool != nullptr ? "receives from a pool of " + std::to_string(pool->options().max_receives)
                           : std::to_string(q.max_receive_requests) + " receives") +
          " in flight; " + std::to_string(q.max_inline_bytes) + " bytes inline",
      r.timeout == 0 ? "requests wait for the peer's answer without end"
                     : "the peer counts as dead after " + std::to_string(r.retry_count + 1) + " periods of " +
                           describe::duration(period) + " without progress",
  };
  if (p.traffic_class != 0 || p.flow_label != 0)
    lines.push_back("packets carry traffic class " + std::to_string(p.traffic_class) + " (DSCP " +
                    std::to_string(p.traffic_class >> 2) + "), flow label " + std::to_string(p.flow_label) +
                    (p.flow_label != 0 ? ", which picks the UDP source port" : ""));
  if (state_->is_described())
    lines.push_back("no connection management: an end is noticed by retries and keep-alives alone");
  if (auto ok = status(); !ok) lines.push_back("ended: " + ok.error().to_string());
  return lines;
}

}  // namespace verbena
