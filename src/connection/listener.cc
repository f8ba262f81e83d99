// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/listener.h"

#include <deque>
#include <optional>
#include <utility>

#include "async/describe.h"
#include "connection/connection_state.h"
#include "connection/reject_reason.h"

namespace verbena {

class ListenerState;

// A request of a peer, from its arrival to its answer.
struct PendingRequest final : EventHandler {
  PendingRequest(EngineState& its_engine, AttachedDevice& its_device, const provider::Event& event)
      : engine(its_engine), device(its_device), id(event.connection), private_data(event.private_data) {
    device.connections[static_cast<std::uint64_t>(id)] = this;
    if (auto parameters = device.context().connection_parameters(id))
      peer = {parameters->remote.to_string(), parameters->port};
  }
  // The peer that has no answer yet is told no; or, when the listener has gone, that nobody listens, and tries again.
  ~PendingRequest() override {
    if (spent) return;
    // Who took it says no, with his listener or after it.
    if (waits_in == nullptr && !gone) static_cast<void>(device.context().reject(id, {}, refusal));
    device.connections.erase(static_cast<std::uint64_t>(id));
    static_cast<void>(device.context().destroy_connection(id));
  }
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  // Whatever happens before the answer: the peer does not wait for it any more. May destroy this.
  void handle_event(const provider::Event&) override;

  // What an answer needs to be true; null when it is.
  std::unique_ptr<Error> obstacle(const char* verb) const {
    const std::string what = std::string(verb) + " " + peer.to_string() + ": ";
    if (spent)
      return std::make_unique<Error>(ErrorCode::WrongState, what + "the request was answered already");
    if (gone) return std::make_unique<Error>(given_up_error(verb, peer.to_string()));
    return nullptr;
  }
  Result<void> reject(std::span<const std::byte> ours, provider::Refusal why);

  EngineState& engine;
  AttachedDevice& device;
  const provider::ConnectionId id;
  const std::vector<std::byte> private_data;  // of the peer
  Endpoint peer;
  ListenerState* waits_in = nullptr;  // until the program takes it
  bool gone = false;
  bool spent = false;
  provider::Refusal refusal = provider::Refusal::Consumer;  // of who goes without an answer
};

class ListenerState final : public EventHandler {
 public:
  ListenerState(EngineState& engine, AttachedDevice& device, provider::ListenerId id)
      : engine_(engine), device_(device), id_(id), arrived_(engine) {
    device_.listeners[static_cast<std::uint64_t>(id_)] = this;
  }
  ~ListenerState() override { finish(); }
  // The listener is being destroyed. Only those who wait below still hold this; they end as Cancelled. May be repeated.
  void finish() {
    if (ended_) return;
    ended_.emplace(ErrorCode::Cancelled, "accept at " + address().to_string() + ": it was destroyed meanwhile");
    device_.listeners.erase(static_cast<std::uint64_t>(id_));
    static_cast<void>(device_.context().stop_listening(id_));
    waiting_.clear();
    arrived_.notify();
  }
  ListenerState(const ListenerState&) = delete;
  ListenerState& operator=(const ListenerState&) = delete;

  void handle_event(const provider::Event& event) override {
    waiting_.push_back(std::make_unique<PendingRequest>(engine_, device_, event));
    waiting_.back()->waits_in = this;
    arrived_.notify();
    // The callback may destroy this listener: it must not go down with it while it runs.
    if (const auto callback = on_request) callback();
  }

  std::unique_ptr<PendingRequest> next() {
    if (waiting_.empty()) return nullptr;
    std::unique_ptr<PendingRequest> first = std::move(waiting_.front());
    waiting_.pop_front();
    first->waits_in = nullptr;
    return first;
  }
  // The backlog counts it no more, so it takes no place of those that come.
  void drop(const PendingRequest& gone) {
    std::erase_if(waiting_, [&gone](const auto& pending) { return pending.get() == &gone; });
  }

  // `self` is this, which lives as long as the task.
  using Self = std::shared_ptr<ListenerState>;
  Task<Result<ConnectionRequest>> request(Self self, Duration timeout);
  Task<Result<Connection>> accept(Self self, ConnectionOptions options, Duration timeout);

  EngineState& engine() { return engine_; }
  Endpoint address() {
    auto port = device_.context().listener_port(id_);
    return {device_.info().address.to_string(), port ? *port : std::uint16_t{0}};
  }

  std::function<void()> on_request;

 private:
  EngineState& engine_;
  AttachedDevice& device_;
  const provider::ListenerId id_;
  std::deque<std::unique_ptr<PendingRequest>> waiting_;
  Changes arrived_;
  std::optional<Error> ended_;  // the listener is gone
};

void PendingRequest::handle_event(const provider::Event&) {
  gone = true;
  if (waits_in != nullptr) waits_in->drop(*this);
}

Result<void> PendingRequest::reject(std::span<const std::byte> ours, provider::Refusal why) {
  if (auto wrong = obstacle("reject")) return *wrong;
  if (ours.size() > kMaxRejectPrivateData)
    return Error(ErrorCode::InvalidArgument, "reject " + peer.to_string() + ": " + std::to_string(ours.size()) +
                                                 " bytes of private data, at most " +
                                                 std::to_string(kMaxRejectPrivateData));
  if (auto ok = device.context().reject(id, ours, why); !ok)
    return ok.error().code() == ErrorCode::WrongState ? given_up_error("reject", peer.to_string()) : ok.error();
  spent = true;
  device.connections.erase(static_cast<std::uint64_t>(id));
  return device.context().destroy_connection(id);
}

namespace {
std::span<const std::byte> as_private_data(std::string_view words) {
  return std::as_bytes(std::span{words.substr(0, kMaxRejectPrivateData)});
}
}  // namespace

// ---- ConnectionRequest.

ConnectionRequest::ConnectionRequest(std::unique_ptr<PendingRequest> pending)
    : pending_(std::move(pending)) {}
ConnectionRequest::ConnectionRequest(ConnectionRequest&& other) noexcept = default;
ConnectionRequest& ConnectionRequest::operator=(ConnectionRequest&& other) noexcept = default;
ConnectionRequest::~ConnectionRequest() = default;

Endpoint ConnectionRequest::peer() const { return pending_->peer; }
std::span<const std::byte> ConnectionRequest::private_data() const { return pending_->private_data; }

Result<Connection> ConnectionRequest::accept(const ConnectionOptions& options,
                                             std::span<const std::byte> private_data) {
  auto state = ConnectionState::prepare(pending_->engine, pending_->device, options);
  if (!state) {
    if (state.error().code() == ErrorCode::ResourceExhausted) pending_->refusal = provider::Refusal::NoResources;
    return state.error();
  }
  return accept(Connection{std::move(*state)}, private_data);
}

Result<Connection> ConnectionRequest::accept(Connection prepared, std::span<const std::byte> private_data) {
  PendingRequest& p = *pending_;
  const std::string what = "accept " + p.peer.to_string() + ": ";
  if (auto obstacle = p.obstacle("accept")) return *obstacle;
  if (private_data.size() > kMaxAcceptPrivateData)
    return Error(ErrorCode::InvalidArgument, what + std::to_string(private_data.size()) +
                                                 " bytes of private data, at most " +
                                                 std::to_string(kMaxAcceptPrivateData));
  if (prepared.phase() != ConnectionPhase::Prepared || &prepared.state_->device() != &p.device)
    return Error(ErrorCode::InvalidArgument,
                 what + "the connection was not prepared on the listener's device");
  p.spent = true;
  if (auto ok = prepared.state_->accept(p.id, p.private_data, private_data); !ok) return ok.error();
  return prepared;
}

Result<void> ConnectionRequest::reject(std::span<const std::byte> private_data) {
  return pending_->reject(private_data, provider::Refusal::Consumer);
}
Result<void> ConnectionRequest::reject_in_words(std::string_view why) { return reject(as_private_data(why)); }
Result<void> ConnectionRequest::reject_for_now(std::string_view why) {
  return pending_->reject(as_private_data(why), provider::Refusal::NoResources);
}

// ---- Listener.

Listener::Listener(std::shared_ptr<ListenerState> state) : state_(std::move(state)) {}
Listener::Listener(Listener&& other) noexcept = default;
Listener& Listener::operator=(Listener&& other) noexcept {
  if (this == &other) return *this;
  if (state_ != nullptr) state_->finish();
  state_ = std::move(other.state_);
  return *this;
}
Listener::~Listener() {
  if (state_ != nullptr) state_->finish();
}

Result<Listener> Listener::create(ProgressEngine& engine, const ListenOptions& options) {
  AttachedDevice* const device = engine.state().find(options.device);
  if (device == nullptr)
    return Error(ErrorCode::InvalidArgument, "listen: the device is not attached to the engine");
  if (options.backlog < 1)
    return Error(ErrorCode::InvalidArgument, "listen: a backlog of " + std::to_string(options.backlog) +
                                                 ", at least 1: nobody could ask");
  auto id = device->context().listen(options.port, options.backlog);
  if (!id) return id.error();
  return Listener{std::make_shared<ListenerState>(engine.state(), *device, *id)};
}

std::uint16_t Listener::port() const { return address().port; }
Endpoint Listener::address() const { return state_->address(); }
void Listener::on_request(std::function<void()> handler) { state_->on_request = std::move(handler); }

std::optional<ConnectionRequest> Listener::poll_request() {
  auto pending = state_->next();
  if (!pending) return std::nullopt;
  return ConnectionRequest{std::move(pending)};
}

Task<Result<ConnectionRequest>> ListenerState::request(Self /*self*/, Duration timeout) {
  const Instant deadline = engine_.now() + timeout;
  std::unique_ptr<PendingRequest> pending = next();
  bool in_time = true;
  while (in_time && !pending && !ended_) {
    in_time = co_await arrived_.wait(deadline);
    pending = next();
  }
  if (pending) co_return ConnectionRequest{std::move(pending)};
  if (ended_) co_return *ended_;
  co_return Error(ErrorCode::TimedOut, "accept at " + address().to_string() + ": nobody connected within " +
                                           describe::duration(timeout));
}

Task<Result<Connection>> ListenerState::accept(Self self, ConnectionOptions options, Duration timeout) {
  EngineState& engine = engine_;
  const Instant deadline = engine.now() + timeout;
  auto request_of_peer = co_await request(self, timeout);
  if (!request_of_peer) co_return request_of_peer.error();
  auto connection = request_of_peer->accept(options);
  if (!connection) co_return connection.error();
  const Duration rest = deadline.is_never() ? Duration::seconds(5) : deadline - engine.now();
  auto ok = co_await connection->async_established(rest);
  if (!ok) co_return ok.error();
  co_return std::move(*connection);
}

Task<Result<ConnectionRequest>> Listener::async_request(Duration timeout) {
  return state_->request(state_.pointer(), timeout);
}
Task<Result<Connection>> Listener::async_accept(const ConnectionOptions& options, Duration timeout) {
  return state_->accept(state_.pointer(), options, timeout);
}
Result<ConnectionRequest> Listener::wait_request(Duration timeout) {
  return state_->engine().run(async_request(timeout));
}
Result<Connection> Listener::accept(const ConnectionOptions& options, Duration timeout) {
  return state_->engine().run(async_accept(options, timeout));
}

}  // namespace verbena
