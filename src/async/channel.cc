// SPDX-License-Identifier: Apache-2.0
// A channel's life: making, ending, keep-alive. The way of operations stands in channel_operations.cc.
#include "async/channel.h"

#include <utility>

#include "async/describe.h"
#include "async/receive_pool_state.h"
#include "device/queue_pair_steps.h"

namespace verbena {

namespace {
constexpr Duration kLastWords = Duration::milliseconds(10);
}

Channel::Channel(EngineState& engine, AttachedDevice& device, const ChannelOptions& options, Owner& owner)
    : OperationQueue(engine), device_(device), options_(options), owner_(owner) {}

Result<std::unique_ptr<Channel>> Channel::create(EngineState& engine, AttachedDevice& device,
                                                 const ChannelOptions& options, Owner& owner) {
  std::unique_ptr<Channel> channel{new Channel(engine, device, options, owner)};
  if (auto ok = channel->open(); !ok) return ok.error();
  return channel;
}

Result<void> Channel::open() {
  const QueuePairCapabilities& queues = options_.queues;
  provider::QueuePairSpec spec;
  spec.pd = options_.domain;
  spec.capabilities = queues;
  spec.single_threaded = true;  // as the engine and all that is made with it
  ++spec.capabilities.max_send_requests;  // a keep-alive always finds room
  const std::uint32_t wanted = spec.capabilities.max_send_requests + queues.max_receive_requests;
  auto shard = device_.reserve(wanted);
  if (!shard) return shard.error();
  shard_ = *shard;
  promised_ = wanted;
  spec.send_cq = spec.receive_cq = shard_->id;
  if (options_.pool != nullptr) {
    spec.srq = options_.pool->id();
    spec.receive_cq = options_.pool->shard().id;
  }
  provider::Context& context = device_.context();
  auto made = context.create_qp(spec);
  if (!made) return made.error();
  qpn_ = made->qpn;
  ops_ = context.qp(qpn_);
  device_.queue_pairs[qpn_.value()] = this;
  if (options_.pool != nullptr) options_.pool->join(*this);
  key_ = engine_.add_channel(*this);
  registered_ = true;

  sends_.open(queues.max_send_requests);
  receives_.open(queues.max_receive_requests);
  return queue_pair_steps::to_init(context, qpn_, spec.type, options_.reliability.access);
}

// The shared completion queue outlives the channel: nothing of it may stay there.
void Channel::finish() {
  if (ops_ == nullptr) return;
  on_completion_ = nullptr;
  end(End::Closed, Error(ErrorCode::Flushed, "the connection was destroyed here"));
  wants_owner_ = false;
  if (overran()) engine_.tend_soon(key_);
  engine_.drain_until([this] { return has_nothing_out(); });
  fall_silent();
  engine_.drain_until([this] { return untold() == 0; });
}

Channel::~Channel() {
  finish();
  if (ops_ != nullptr) {
    device_.queue_pairs.erase(qpn_.value());
    if (options_.pool != nullptr) options_.pool->leave(*this);
    static_cast<void>(device_.context().destroy_qp(qpn_));
  }
  expect_keep_alive(Instant::never());
  end_keep_alive();
  if (registered_) engine_.remove_channel(key_);
  if (cells_registered_) static_cast<void>(device_.context().deregister_memory(cells_key_));
  if (shard_ != nullptr) AttachedDevice::release(*shard_, promised_);
}

bool Channel::overran() const {
  return shard_->broken || (options_.pool != nullptr && options_.pool->shard().broken);
}

bool Channel::completes_in(const CompletionShard& shard) const {
  return shard_ == &shard || (options_.pool != nullptr && &options_.pool->shard() == &shard);
}

void Channel::set_connected(Duration grace) {
  if (options_.keep_alive > Duration{} && !end_) expect_keep_alive(engine_.now() + grace + options_.keep_alive);
}

void Channel::end(End how, Error reason) {
  if (end_) return;
  end_ = how;
  reason_ = std::make_unique<Error>(std::move(reason));
  if (how == End::Closed) settle();
  static_cast<void>(queue_pair_steps::to_error(device_.context(), qpn_));
  if (how == End::Failed) owner_.channel_failed();
}

void Channel::settle() {
  constexpr int kTurns = 8;
  for (int turn = 0; turn < kTurns && device_.context().progress(); ++turn) {
  }
}

void Channel::request_tending() {
  wants_owner_ = true;
  engine_.tend_soon(key_);
}

// What completes may say more precisely what happened, so completions go first.
void Channel::handle_event(const provider::Event& event) {
  if (event.kind != provider::Event::Kind::Async || end_ || reported_) return;
  const auto report = [this](const std::string& what) {
    reported_ = std::make_unique<Error>(ErrorCode::ConnectionLost, "connection with " + owner_.peer_name() + what);
  };
  switch (event.async) {
    case AsyncEventType::QpAccessError:
      report(": this side refused a request of the peer; its key, range or permission is wrong");
      break;
    case AsyncEventType::QpRequestError:
      report(": the peer sent a request this side had to refuse");
      break;
    case AsyncEventType::QpFatal:
      report(": memory this side has registered is not mapped, or protected (QP_FATAL); deregister it before");
      break;
    case AsyncEventType::DeviceFatal:
      report(": " + std::string(to_string(event.async)));
      break;
    case AsyncEventType::PathRefused:
      report(": the peer shares no memory with it, which path=local asks for: it has ended, or goes by RoCE");
      break;
    case AsyncEventType::PeerEnded:
      return expect_keep_alive_soon();  // which fails, and says so
    default:
      return;
  }
  engine_.tend_soon(key_);
}

void Channel::tend() {
  if (overran()) {
    end(End::Failed, Error(ErrorCode::ConnectionLost, "connection with " + owner_.peer_name() +
                                                          ": the completion queue that it shares overran"));
    // A callback may throw: the next run goes on behind it.
    if (sends_in_flight() + receives_.in_flight() != 0) engine_.tend_soon(key_);
    if (!fail_what_is_lost()) return;
  }
  if (reported_ && !end_) end(End::Failed, *reported_);
  if (!wants_owner_) return;
  wants_owner_ = false;
  owner_.tend();  // `this` may be gone
}

void Channel::expect_keep_alive(Instant at) {
  engine_.move_keep_alive(next_keep_alive_, at, key_);
  next_keep_alive_ = at;
}

// What the peer said by connection management, in its last moment, comes before.
void Channel::expect_keep_alive_soon() {
  heard_ = false;
  expect_keep_alive(engine_.now() + kLastWords);
}

void Channel::check_alive() {
  const bool has_keep_alive = !end_ && !next_keep_alive_.is_never();
  if (has_keep_alive && next_keep_alive_ > engine_.now() + kLastWords) expect_keep_alive_soon();
}

// Each channel keeps its own time, however late it is looked at: together they would be too many at once.
void Channel::keep_alive(Instant now) {
  const Duration every = options_.keep_alive;
  const std::int64_t missed = every > Duration{} ? (now - next_keep_alive_).ns / every.ns : 0;
  const bool wants_more = !end_ && every > Duration{};
  expect_keep_alive(wants_more ? next_keep_alive_ + every * (missed + 1) : Instant::never());
  if (end_) return;
  const bool silent = !heard_ && sends_in_flight() == 0 && keep_alive_out_ == 0;
  heard_ = false;
  if (!silent) return;
  SendRequest request;
  request.id = id_of(kKeepAlive);
  request.opcode = SendOpcode::RdmaWrite;
  if (ops_->post_send({&request, 1})) keep_alive_out_ = engine_.keep_alive_window().take(now);
}

void Channel::end_keep_alive() {
  if (keep_alive_out_ != 0) engine_.keep_alive_window().give_back(std::exchange(keep_alive_out_, 0));
}

void Channel::complete_keep_alive(const Completion& completion) {
  end_keep_alive();
  if (completion.status == CompletionStatus::Success || completion.status == CompletionStatus::Flushed)
    return;
  end(End::Failed, Error(to_error_code(completion.status),
                         "keep-alive to " + owner_.peer_name() + " by our qpn " + describe::qpn(qpn_) + ": " +
                             describe::outcome(completion, {}, options_.reliability),
                         static_cast<int>(completion.status), ErrorDomain::WorkCompletion));
}

}  // namespace verbena
