// SPDX-License-Identifier: Apache-2.0
#include "connection/connection_state.h"

#include <algorithm>
#include <utility>

#include "async/describe.h"
#include "async/receive_pool_state.h"
#include "connection/reject_reason.h"
#include "device/queue_pair_steps.h"
#include "device/wire_bytes.h"

namespace verbena {

using Phase = ConnectionPhase;

namespace {

// Between requests that the peer took for stale: it ends what it holds of an earlier one of this queue pair, and for
// that it may have to hear from us.
constexpr Duration kFirstPause = Duration::milliseconds(10);
constexpr Duration kLongestPause = Duration::seconds(1);

}  // namespace

namespace {

// A number that is more than there may be, said of `name`.
std::string beyond(std::string_view name, std::uint64_t value, std::uint64_t most, std::string_view why = {}) {
  if (value <= most) return {};
  return std::string(name) + " " + std::to_string(value) + ", at most " + std::to_string(most) + std::string(why);
}

// What no queue pair of the device can have; empty: nothing.
std::string wrong_queues(const QueuePairCapabilities& queues, const DeviceInfo& device, bool pooled) {
  if (queues.max_send_requests == 0 || (!pooled && queues.max_receive_requests == 0)) return "queues of no length";
  if (auto wrong = beyond("max_send_requests", queues.max_send_requests, device.max_requests - 1,
                          " (DeviceInfo::max_requests, and one is for keep-alives)");
      !wrong.empty())
    return wrong;
  return pooled ? "" : beyond("max_receive_requests", queues.max_receive_requests, device.max_requests);
}

std::string wrong_reliability(const ReliabilityOptions& r, std::uint8_t most_reads) {
  constexpr std::string_view kWhy = " (DeviceInfo::max_rd_atomic)";
  for (const std::string& wrong :
       {beyond("timeout", r.timeout, 31), beyond("retry_count", r.retry_count, 7), beyond("rnr_retry", r.rnr_retry, 7),
        beyond("min_rnr_timer", r.min_rnr_timer, 31), beyond("max_rd_atomic", r.max_rd_atomic, most_reads, kWhy),
        beyond("max_dest_rd_atomic", r.max_dest_rd_atomic, most_reads, kWhy)})
    if (!wrong.empty()) return wrong;
  return {};
}

std::string wrong_options(const ConnectionOptions& options, const AttachedDevice& device, ReceivePoolState* pool) {
  const DeviceInfo& info = device.info();
  if (auto wrong = wrong_queues(options.queues, info, pool != nullptr); !wrong.empty()) return wrong;
  if (pool != nullptr && &pool->device() != &device)
    return "its receive pool is of another device; make one per device";
  if (options.keep_alive < Duration{} || options.connect_timeout < Duration{})
    return "a negative keep_alive or connect_timeout";
  if (auto wrong = beyond("flow label", options.flow_label, 0xfffff); !wrong.empty()) return wrong;
  if (options.path_mtu != 0 && !wire_bytes::is_path_mtu(options.path_mtu))
    return "path_mtu " + std::to_string(options.path_mtu) + ", which is not 256, 512, 1024, 2048 or 4096";
  return wrong_reliability(options.reliability, info.max_rd_atomic);
}

}  // namespace

Result<std::shared_ptr<ConnectionState>> ConnectionState::prepare(EngineState& engine, ConnectionOptions options) {
  AttachedDevice* const device = engine.find(options.device);
  if (device == nullptr)
    return Error(ErrorCode::InvalidArgument,
                 "prepare a connection: its device is not attached to the engine");
  return prepare(engine, *device, std::move(options));
}

Result<std::shared_ptr<ConnectionState>> ConnectionState::prepare(EngineState& engine, AttachedDevice& device,
                                                                  ConnectionOptions options) {
  ReceivePoolState* const pool = options.receive_pool != nullptr ? &options.receive_pool->state() : nullptr;
  for (std::uint8_t* const reads : {&options.reliability.max_rd_atomic, &options.reliability.max_dest_rd_atomic})
    if (*reads == ReliabilityOptions{}.max_rd_atomic) *reads = std::min(*reads, device.info().max_rd_atomic);
  if (const std::string wrong = wrong_options(options, device, pool); !wrong.empty())
    return Error(ErrorCode::InvalidArgument, "prepare a connection: " + wrong);
  std::shared_ptr<ConnectionState> state{new ConnectionState(engine, device, options)};
  ChannelOptions channel_options;
  channel_options.queues = options.queues;
  channel_options.pool = pool;
  if (pool != nullptr) channel_options.queues.max_receive_requests = 0;
  channel_options.reliability = options.reliability;
  channel_options.keep_alive = options.keep_alive;
  const ProtectionDomain& domain =
      options.protection_domain != nullptr ? *options.protection_domain : *device.state().domain;
  channel_options.domain = provider::PdId{domain.id()};
  if (!domain.is_of(device.context()))
    return Error(ErrorCode::InvalidArgument, "prepare a connection: its protection domain is of another device");
  auto channel = Channel::create(engine, device, channel_options, *state);
  if (!channel) return channel.error();
  state->channel_ = std::move(*channel);
  return state;
}

void ConnectionState::finish() {
  if (ending_) return;  // a callback that runs below destroys its owner, or assigns to it
  ending_ = told_owner_ = true;
  changed_.notify();  // a callback may drive the engine until those who wait have come back
  if (id_) device_.connections.erase(static_cast<std::uint64_t>(*id_));
  if (channel_ == nullptr) return;
  // Operations end first, while the peer's name is known; then the peer is told.
  channel_->finish();
  channel_.reset();
  drop_id();
  phase_ = Phase::Broken;
  error_ = destroyed();
}

Error ConnectionState::destroyed() const {
  return {ErrorCode::Cancelled, "connection with " + peer_.to_string() + ": it was destroyed meanwhile"};
}

ConnectionState::~ConnectionState() { finish(); }

void ConnectionState::adopt(provider::ConnectionId id) {
  id_ = id;
  device_.connections[static_cast<std::uint64_t>(id)] = this;
}

void ConnectionState::drop_id() {
  if (!id_) return;
  device_.connections.erase(static_cast<std::uint64_t>(*id_));
  static_cast<void>(context().destroy_connection(*id_));
  id_.reset();
}

// ---- Connecting.

Result<void> ConnectionState::check_reachable(const Gid& remote) const {
  const Gid& own = device_.info().address;
  if (!wire_bytes::is_address_of_a_host(remote))
    return Error(ErrorCode::InvalidArgument, "connect to " + peer_.to_string() + ": that is no address of a host");
  if (own.is_ipv4() != remote.is_ipv4())
    return Error(ErrorCode::Unreachable, "connect to " + peer_.to_string() + ": the device has the address " +
                                             own.to_string() + ", which is of the other IP version");
  if (own.is_loopback() && !remote.is_loopback())
    return Error(ErrorCode::Unreachable, "connect to " + peer_.to_string() +
                                             ": the device has the loopback address " + own.to_string() +
                                             "; open one on an address of that network");
  return {};
}

Result<void> ConnectionState::request(const Gid& remote, std::span<const std::byte> private_data) {
  provider::ConnectionParameters p;
  p.remote = remote;
  p.port = peer_.port;
  p.local_qpn = channel_->qpn();
  if (asked_mtu_ == 0) asked_mtu_ = options_.path_mtu != 0 ? options_.path_mtu : device_.info().active_mtu;
  p.path_mtu = asked_mtu_;
  p.responder_resources = options_.reliability.max_dest_rd_atomic;
  p.initiator_depth = options_.reliability.max_rd_atomic;
  p.retry_count = options_.reliability.retry_count;
  p.rnr_retry = options_.reliability.rnr_retry;
  p.timeout = options_.reliability.timeout;
  p.min_rnr_timer = options_.reliability.min_rnr_timer;
  p.shared_receives = options_.receive_pool != nullptr;
  p.traffic_class = options_.traffic_class;
  p.flow_label = options_.flow_label;
  unreachable_ = mtu_refused_ = false;
  stale_.reset();
  phase_ = Phase::Connecting;
  auto id = context().connect(p, private_data);
  if (!id) {
    give_up(id.error());
    return id.error();
  }
  adopt(*id);
  return {};
}

// What can be known to be wrong before anything is sent.
Result<void> ConnectionState::find_peer(const std::string& address, std::size_t private_bytes) {
  if (phase_ != Phase::Prepared)
    return Error(ErrorCode::WrongState,
                 "connect to " + address + ": this connection was used already");
  if (Url::looks_like_url(address)) {
    auto url = Url::parse(address);
    if (!url) return url.error();
    peer_ = url->endpoint;
  } else {
    auto endpoint = Endpoint::parse(address);
    if (!endpoint) return endpoint.error();
    peer_ = std::move(*endpoint);
  }
  if (private_bytes > kMaxConnectPrivateData)
    return Error(ErrorCode::InvalidArgument,
                 "connect to " + peer_.to_string() + ": " + std::to_string(private_bytes) +
                     " bytes of private data, at most " + std::to_string(kMaxConnectPrivateData));
  auto remote = peer_.resolve(device_.info().address);
  if (!remote) return remote.error();
  remote_ = *remote;
  return check_reachable(remote_);
}

// Who gives up connect_to() in the middle leaves a connection that has failed.
struct ConnectionState::Connecting {
  ConnectionState& state;
  ~Connecting() {
    if (state.ending_ || state.phase_ != Phase::Connecting) return;
    state.drop_id();
    state.give_up(Error(ErrorCode::Cancelled, "connect to " + state.peer_.to_string() + ": given up meanwhile"));
  }
};

Task<Result<void>> ConnectionState::connect_to(Self /*self*/, std::string address,
                                               std::vector<std::byte> private_data) {
  if (ending_) co_return destroyed();
  if (auto ok = find_peer(address, private_data.size()); !ok) co_return ok;
  const Connecting connecting{*this};
  const Instant deadline = engine_.now() + options_.connect_timeout;
  Duration pause = kFirstPause;
  for (;;) {
    if (auto ok = request(remote_, private_data); !ok) co_return ok;
    bool in_time = true;
    while (in_time && is_connecting() && !unreachable_ && !mtu_refused_ && !stale_)
      in_time = co_await changed_.wait(deadline);
    if (was_established_) co_return {};
    if (ending_) co_return destroyed();
    if (phase_ != Phase::Connecting) co_return why_not_connected();
    const auto asked = context().connection_parameters(*id_);
    const bool request_is_there = asked && asked->request_is_there;
    drop_id();
    if (mtu_refused_) {
      asked_mtu_ /= 2;
      continue;
    }
    if (unreachable_ && engine_.now() < deadline) continue;
    if (stale_ && engine_.now() + pause < deadline) {
      co_await detail::Sleep(engine_, engine_.now() + pause);
      if (ending_) co_return destroyed();
      if (phase_ != Phase::Connecting) co_return why_not_connected();
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    give_up(stale_ ? *stale_ : timeout_error(request_is_there));
    co_return *error_;
  }
}

Error ConnectionState::why_not_connected() const {
  if (phase_ != Phase::Closed || error_->code() != ErrorCode::Flushed) return *error_;
  return {ErrorCode::Cancelled, "connect to " + peer_.to_string() + ": the connection was closed meanwhile"};
}

Error ConnectionState::timeout_error(bool request_is_there) {
  const std::string what =
      "connect to " + peer_.to_string() + ": no answer within " + describe::duration(options_.connect_timeout) + "; ";
  if (request_is_there)
    return Error(ErrorCode::TimedOut,
                 what + "the device there has the request, and its program has not answered: does its engine run?");
  const std::string hint = context().hint_about(remote_);
  return Error(ErrorCode::Unreachable, what + (hint.empty() ? "is a program listening there, and UDP port 4791 open?"
                                                            : "the network says: " + hint));
}

// ---- The queue pair, with what the handshake settled.

Result<void> ConnectionState::bring_up(std::optional<Psn> own) {
  auto settled = context().connection_parameters(*id_);
  if (!settled) return settled.error();
  parameters_ = std::move(*settled);
  provider::ConnectionParameters& p = parameters_;
  if (own) p.local_psn = *own;
  if (options_.traffic_class != 0) p.traffic_class = options_.traffic_class;
  p.flow_label = options_.flow_label;  // each direction has its own
  // A starting PSN is the first one its sender accepts: we expect ours and send from the peer's.
  return bring_up(p.local_psn, p.remote_psn);
}

Result<void> ConnectionState::bring_up(Psn expected, Psn first) {
  const provider::ConnectionParameters& p = parameters_;
  ReliabilityOptions reliability = options_.reliability;
  reliability.max_rd_atomic = std::min(reliability.max_rd_atomic, p.initiator_depth);
  reliability.max_dest_rd_atomic = std::min(reliability.max_dest_rd_atomic, p.responder_resources);
  channel_->allow_fetches(reliability.max_rd_atomic != 0);
  const Qpn qpn = channel_->qpn();
  constexpr auto kType = QueuePairType::ReliableConnected;
  if (auto ok = queue_pair_steps::to_rtr(
          context(), qpn, kType,
          {p.remote, p.remote_qpn, expected, p.path_mtu, p.traffic_class, p.flow_label}, reliability);
      !ok)
    return ok;
  auto ok = queue_pair_steps::to_rts(context(), qpn, kType, first, reliability);
  const provider::QueuePairOps* const queues = context().qp(qpn);
  if (ok || queues == nullptr || queues->state() != QueuePairState::Error) return ok;
  return Error(ErrorCode::ConnectionLost,
               "connection with " + peer_.to_string() +
                   ": it failed while it was made: the peer has ended, or shares no memory, which path=local asks for");
}

Result<void> ConnectionState::accept(provider::ConnectionId id, std::vector<std::byte> theirs,
                                     std::span<const std::byte> ours) {
  passive_ = true;
  adopt(id);
  private_data_ = std::move(theirs);
  provider::ConnectionParameters p;
  p.local_qpn = channel_->qpn();
  p.local_psn = Psn{static_cast<std::uint32_t>(context().random() >> 40) | 1};
  p.responder_resources = options_.reliability.max_dest_rd_atomic;
  p.initiator_depth = options_.reliability.max_rd_atomic;
  p.rnr_retry = options_.reliability.rnr_retry;
  p.shared_receives = options_.receive_pool != nullptr;
  auto requested = context().connection_parameters(id);
  if (!requested) return requested.error();
  remote_ = requested->remote;
  peer_ = {remote_.to_string(), requested->port};
  // The queue pair answers before the peer knows of it.
  phase_ = Phase::Connecting;
  auto ok = bring_up(p.local_psn);
  if (ok) {
    ok = context().accept(id, p, ours);
    if (!ok && ok.error().code() == ErrorCode::WrongState) ok = given_up_error("accept", peer_.to_string());
  }
  if (!ok) give_up(ok.error());
  return ok;
}

void ConnectionState::on_response() {
  if (auto ok = bring_up(std::nullopt); !ok) {
    static_cast<void>(context().reject(*id_, {}, provider::Refusal::Consumer));
    failed_rise_ = ok.error();
    return channel_->request_tending();
  }
  const auto ok = context().confirm(*id_);
  // The peer did not wait so long: the event behind this one says how that ended.
  if (!ok && ok.error().code() != ErrorCode::WrongState) give_up(ok.error());
}

void ConnectionState::give_up(Error error) {
  phase_ = Phase::Broken;
  peer_is_gone_ = true;
  error_ = error;
  channel_->end(Channel::End::Failed, std::move(error));
  if (passive_) channel_->request_tending();  // no call of connect() says so
}

// ---- Events.

void ConnectionState::handle_event(const provider::Event& event) {
  changed_.notify();
  using Kind = provider::Event::Kind;
  switch (event.kind) {
    case Kind::ConnectResponse:
      private_data_ = event.private_data;
      return on_response();
    case Kind::Established:
      if (phase_ != Phase::Connecting) return;
      phase_ = Phase::Established;
      was_established_ = true;
      return channel_->set_connected();
    case Kind::Rejected:
      return on_rejected(event);
    case Kind::Unreachable:
      unreachable_ = true;
      if (passive_ && phase_ == Phase::Connecting)
        give_up(
            Error(ErrorCode::ConnectionLost, "accept " + peer_.to_string() + ": the peer did not confirm"));
      return;
    case Kind::ConnectError:
      if (phase_ == Phase::Connecting)
        give_up(Error(ErrorCode::ConnectionLost, "handshake with " + peer_.to_string() + ": it broke off (" +
                                                     reject_reason_text(event.reason) + ")"));
      return;
    case Kind::Disconnected:
      return on_disconnected();
    default:
      return;
  }
}

void ConnectionState::on_rejected(const provider::Event& event) {
  if (phase_ != Phase::Connecting) return;
  constexpr std::uint32_t kSmallestMtu = 256;
  mtu_refused_ = event.reason == kRejectInvalidMtu && asked_mtu_ > kSmallestMtu;
  if (mtu_refused_) return;
  if (event.reason == kRejectStale && !passive_) {
    stale_ = rejection_error(peer_.to_string(), event.reason, {});
    return;
  }
  if (passive_)
    return give_up(Error(ErrorCode::ConnectionLost,
                         "accept " + peer_.to_string() + ": the peer has given up (" +
                             reject_reason_text(event.reason) + ")",
                         event.reason, ErrorDomain::CmReject));
  private_data_ = event.private_data;
  const bool is_ourselves = remote_ == device_.info().address;
  give_up(rejection_error(peer_.to_string(), event.reason, event.private_data, is_ourselves));
}

// What completed before may say more precisely why the peer has gone, or why the queue pair did not come up, so
// completions go first: see tend().
void ConnectionState::on_disconnected() {
  peer_is_gone_ = true;
  if (phase_ == Phase::Established || phase_ == Phase::Connecting) channel_->request_tending();
}

void ConnectionState::tend() {
  changed_.notify();
  if (failed_rise_ && phase_ == Phase::Connecting) give_up(*failed_rise_);
  if (peer_is_gone_ && (phase_ == Phase::Established || phase_ == Phase::Connecting)) end_by_peer();
  if (told_owner_ || !closed()) return;
  told_owner_ = true;
  if (!was_established_ && !passive_) return;  // connect() says why
  // The callback may destroy this connection: it must not go down with it while it runs.
  if (const auto callback = std::exchange(on_closed, nullptr)) callback();
}

void ConnectionState::end_by_peer() {
  unsent_ = channel_->sends_in_flight() != 0;
  phase_ = Phase::Closed;
  error_ = Error(ErrorCode::Disconnected, "connection with " + peer_.to_string() + ": the peer closed it");
  channel_->end(Channel::End::PeerClosed, *error_);
}

void ConnectionState::channel_failed() {
  if (phase_ == Phase::Broken || phase_ == Phase::Closed) return;
  phase_ = Phase::Broken;
  if (!error_) error_ = *channel_->failure();
  if (id_ && !peer_is_gone_) static_cast<void>(context().disconnect(*id_));
  channel_->request_tending();
}

// ---- Ending.

Task<Result<void>> ConnectionState::established(Self /*self*/, Duration timeout) {
  if (ending_) co_return destroyed();
  if (phase_ == Phase::Prepared)
    co_return Error(ErrorCode::WrongState, "wait for a connection: it is prepared, and nobody connects it");
  const Instant deadline = engine_.now() + timeout;
  bool in_time = true;
  while (in_time && is_connecting()) in_time = co_await changed_.wait(deadline);
  if (was_established_) co_return {};
  if (ending_) co_return destroyed();
  if (phase_ == Phase::Connecting)
    co_return Error(ErrorCode::TimedOut,
                 "handshake with " + peer_.to_string() + ": not over within " + describe::duration(timeout));
  co_return status();
}

Result<void> ConnectionState::status() const {
  if (error_) return *error_;
  return {};
}

// Who gives up close() in the middle leaves a connection that is closed, or one that lives.
struct ConnectionState::Closing {
  ConnectionState& state;
  ~Closing() {
    if (state.ending_) return;
    if (state.phase_ == Phase::Established || state.phase_ == Phase::Connecting) state.told_owner_ = false;
    if (state.phase_ == Phase::Closed) state.end_channel();
  }
};

void ConnectionState::end_channel() {
  channel_->end(Channel::End::Closed, *error_);
  changed_.notify();
}

// Nobody is told, for nobody knows of it, or answers.
void ConnectionState::end_here() {
  phase_ = Phase::Closed;
  error_ = closed_here();
  drop_id();
  end_channel();
}

Task<Result<void>> ConnectionState::close(Self self, Duration timeout) {
  if (ending_) co_return destroyed();
  const Instant deadline = engine_.now() + timeout;
  const Closing closing{*this};
  Result<void> outcome;
  if (phase_ == Phase::Closed && unsent_) outcome = status();
  if (phase_ == Phase::Prepared) end_here();
  if (phase_ == Phase::Connecting) {
    told_owner_ = true;
    outcome = co_await established(self, timeout);
    if (is_connecting()) end_here();
    else if (phase_ == Phase::Closed) outcome = {};  // by somebody else, as is wanted
  }
  if (phase_ == Phase::Established && !ending_) outcome = co_await leave(deadline, timeout);
  while (phase_ == Phase::Closed && !ending_ && !channel_->ended())  // somebody else's close() is under way
    if (!co_await changed_.wait(deadline)) co_return close_timeout("not over", timeout);
  if (ending_) co_return destroyed();
  if (phase_ == Phase::Broken) co_return status();
  // Receives in flight are told, in as many runs as that may take; not those that a callback posts anew.
  std::uint32_t runs = engine_.runs_to_hand_out();
  do co_await detail::Sleep(engine_, engine_.now());
  while (!ending_ && channel_->receives_in_flight() != 0 && runs-- != 0 && engine_.now() < deadline);
  co_return outcome;
}

// All that was sent is done, or the time is up; then the peer is told.
Task<Result<void>> ConnectionState::leave(Instant deadline, Duration timeout) {
  told_owner_ = true;
  bool in_time = true;
  channel_->tell_when_sent();
  while (in_time && phase_ == Phase::Established && !ending_ && channel_->sends_in_flight() != 0)
    in_time = co_await changed_.wait(deadline);
  if (ending_) co_return {};  // close() says so
  if (phase_ == Phase::Closed && unsent_) co_return status();
  if (phase_ != Phase::Established) co_return {};  // or close() says why
  const bool sent = channel_->sends_in_flight() == 0;
  phase_ = Phase::Closed;
  error_ = closed_here();
  channel_->settle();
  if (described_)
    peer_is_gone_ = true;  // nobody to tell
  else
    static_cast<void>(context().disconnect(*id_));
  while (in_time && phase_ == Phase::Closed && !ending_ && !peer_is_gone_)
    in_time = co_await changed_.wait(deadline);
  if (ending_ || phase_ == Phase::Broken) co_return {};
  end_channel();
  if (sent && peer_is_gone_) co_return {};
  co_return close_timeout(sent ? "no answer" : "not everything was sent", timeout);
}

Error ConnectionState::closed_here() { return {ErrorCode::Flushed, "the connection was closed here"}; }
Error ConnectionState::close_timeout(const std::string& what, Duration after) const {
  return {ErrorCode::TimedOut, "close the connection with " + peer_.to_string() + ": " + what + " within " +
                                   describe::duration(after)};
}

}  // namespace verbena
