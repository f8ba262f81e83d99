// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/receive_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "async/channel.h"
#include "async/describe.h"
#include "async/receive_pool_state.h"
#include "base/assert.h"
#include "base/byte_order.h"

namespace verbena {

// ---- Making and ending.

Result<std::unique_ptr<ReceivePoolState>> ReceivePoolState::create(EngineState& engine,
                                                                   const ReceivePoolOptions& options) {
  AttachedDevice* const device = engine.find(options.device);
  if (device == nullptr)
    return Error(ErrorCode::InvalidArgument,
                 "create a receive pool: its device is not attached to the engine");
  std::unique_ptr<ReceivePoolState> state{new ReceivePoolState(engine, *device, options)};
  if (auto ok = state->open(); !ok) return ok.error();
  return state;
}

Result<void> ReceivePoolState::open() {
  provider::Context& context = device_.context();
  const ProtectionDomain& domain =
      options_.protection_domain != nullptr ? *options_.protection_domain : *device_.state().domain;
  if (!domain.is_of(context))
    return Error(ErrorCode::InvalidArgument, "create a receive pool: its protection domain is of another device");
  if (options_.max_segments > Operation::kMaxSegments)
    return Error(ErrorCode::InvalidArgument, "create a receive pool: receives of " +
                                                 std::to_string(options_.max_segments) + " segments, at most " +
                                                 std::to_string(Operation::kMaxSegments));
  auto made = context.create_srq({provider::PdId{domain.id()}, options_.max_receives, options_.max_segments, true});
  if (!made) return made.error();
  id_ = *made;
  ops_ = context.srq(id_);
  device_.receive_pools[static_cast<std::uint32_t>(id_)] = this;
  key_ = engine_.add_channel(*this);
  auto shard = device_.reserve(options_.max_receives);
  if (!shard) return shard.error();
  shard_ = *shard;
  slots_.open(options_.max_receives);
  return {};
}

ReceivePoolState::~ReceivePoolState() {
  VERBENA_REQUIRE(channels_.empty(), "destroys a ReceivePool before the connections that were made with it");
  if (ops_ == nullptr) return;
  on_low_ = nullptr;
  if (shard_ != nullptr) {
    if (shard_->broken)
      engine_.tend_soon(key_);
    else
      end("the pool of receives was destroyed here");
    engine_.drain_until([this] { return slots_.in_flight() == 0; });
    fall_silent();
    engine_.drain_until([this] { return untold() == 0; });
    AttachedDevice::release(*shard_, options_.max_receives);
  }
  engine_.remove_channel(key_);
  device_.receive_pools.erase(static_cast<std::uint32_t>(id_));
  static_cast<void>(device_.context().destroy_srq(id_));
}

// What was taken by a message or a connection that ended completes by itself, unless the completion queue is
// broken.
void ReceivePoolState::end(std::string why) {
  ended_ = std::move(why);
  for (std::uint32_t i = 0; i < slots_.all().size(); ++i) {
    if (!slots_.all()[i].taken || (!ops_->withdraw(id_of(i)) && !shard_->broken)) continue;
    Operation& operation = *slots_.give_back(i).operation;
    engine_.forget(operation);
    fail_later(operation, refuse(ErrorCode::Flushed, subject(operation, nullptr) + ": " + *ended_));
  }
}

void ReceivePoolState::tend() {
  if (shard_->broken) end("the completion queue that the pool of receives shares overran");
}

void ReceivePoolState::join(Channel& channel) { channels_[channel.qpn().value()] = &channel; }
void ReceivePoolState::leave(Channel& channel) { channels_.erase(channel.qpn().value()); }

Channel* ReceivePoolState::channel_of(Qpn qpn) const {
  const auto found = channels_.find(qpn.value());
  return found == channels_.end() ? nullptr : found->second;
}

// ---- The limit.

Result<void> ReceivePoolState::on_low(std::uint32_t limit, std::function<void()> f) {
  if (limit > options_.max_receives)
    return Error(ErrorCode::InvalidArgument, "watch a receive pool for fewer than " + std::to_string(limit) +
                                                 " receives: it holds " +
                                                 std::to_string(options_.max_receives));
  if (limit == 0) f = nullptr;
  on_low_.swap(f);  // the one before may be all that holds this pool
  return device_.context().modify_srq(id_, limit);
}

// An event that comes while a limit is armed is that of an earlier one.
void ReceivePoolState::handle_event(const provider::Event&) {
  const auto queue = device_.context().query_srq(id_);
  if (!queue || queue->limit != 0) return;
  // The callback may destroy the pool: it must not go down with it while it runs.
  if (const auto callback = std::exchange(on_low_, nullptr)) callback();
}

// ---- Operations.

std::string ReceivePoolState::subject(const Operation& operation, const Channel* channel) const {
  const Operation::Request& r = operation.request_;
  return describe::subject({r.opcode, true, r.bytes, 0, {}},
                           channel != nullptr ? channel->peer_name() : "any connection of a pool");
}

OperationQueue::Refusal ReceivePoolState::post(Operation& operation) {
  const Operation::Request& r = operation.request_;
  const auto what = [&] { return subject(operation, nullptr) + ": "; };
  if (ended_) return refuse(ErrorCode::Flushed, what() + *ended_);
  if (r.asked_segments > Operation::kMaxSegments || r.asked_segments > options_.max_segments)
    return refuse(ErrorCode::InvalidArgument,
                  what() + std::to_string(r.asked_segments) + " segments, at most " +
                      std::to_string(std::min<std::size_t>(Operation::kMaxSegments, options_.max_segments)));
  if (slots_.none_free())
    return refuse(ErrorCode::QueueFull, what() + std::to_string(slots_.in_flight()) +
                                            " are in flight; wait for one, or make the pool larger");
  const std::uint32_t slot = slots_.next();
  const ReceiveRequest request{id_of(slot), {r.segments.data(), r.segment_count}};
  const PostStatus status = ops_->post({&request, 1}).status;
  if (status != PostStatus::Ok)
    return refuse(ErrorCode::InvalidArgument, what() + describe::refusal(status), to_errno(status), ErrorDomain::Errno);
  slots_.take(&operation);
  operation.slot_ = slot;
  return {};
}

void ReceivePoolState::abort(Operation& operation, Operation::Ending ending) {
  if (operation.state_ != Operation::State::Posted || operation.ending_ != Operation::Ending::Natural) return;
  operation.ending_ = ending;
  if (!ops_->withdraw(id_of(operation.slot_))) return;  // a message fills it: it ends with that
  slots_.give_back(operation.slot_);
  engine_.forget(operation);
  fail_later(operation, refuse(flush_error(operation, Qpn{})));
}

Error ReceivePoolState::flush_error(const Operation& operation, Qpn qpn) const {
  const Channel* const channel = channel_of(qpn);
  const std::string what = subject(operation, channel) + ": ";
  if (operation.ending_ == Operation::Ending::Cancelled)
    return Error(ErrorCode::Cancelled, what + "cancelled");
  if (operation.ending_ == Operation::Ending::Expired)
    return Error(ErrorCode::DeadlineExceeded, what + "not done before its deadline");
  const int native = static_cast<int>(CompletionStatus::Flushed);
  if (channel != nullptr)
    return Error(channel->end_code(), what + channel->end_text(), native, ErrorDomain::WorkCompletion);
  return Error(ErrorCode::Flushed,
               what + "the connection with qpn " + describe::qpn(qpn) + " ended before its message did",
               native, ErrorDomain::WorkCompletion);
}

// The operation's callback comes last: it may destroy the pool.
void ReceivePoolState::handle_completion(const Completion& completion) {
  Operation& operation = *slots_.give_back(static_cast<std::uint32_t>(completion.id)).operation;
  engine_.forget(operation);
  Channel* const channel = channel_of(completion.qpn);
  if (completion.status == CompletionStatus::Success) {
    if (channel != nullptr) channel->note_heard();
    OperationOutcome& outcome = operation.outcome_;  // cleared since it was started
    outcome.kind = completion.opcode;
    outcome.bytes = completion.byte_count;
    outcome.qpn = completion.qpn;
    if (completion.with_immediate) outcome.immediate = load_be32(completion.immediate.data());
    return operation.end();
  }
  if (completion.status == CompletionStatus::Flushed)
    return operation.fail(flush_error(operation, completion.qpn));
  Error error(
      to_error_code(completion.status),
      subject(operation, channel) + " by our qpn " + describe::qpn(completion.qpn) + ": " +
          describe::outcome(completion, {SendOpcode::Send, true, operation.request_.bytes, 0, {}}, {}),
      static_cast<int>(completion.status), ErrorDomain::WorkCompletion);
  if (channel != nullptr) channel->end(Channel::End::Failed, error);
  operation.fail(std::move(error));
}

// ---- ReceivePool.

ReceivePool::ReceivePool(std::unique_ptr<ReceivePoolState> state) : state_(std::move(state)) {}
ReceivePool::ReceivePool(ReceivePool&& other) noexcept = default;
ReceivePool& ReceivePool::operator=(ReceivePool&& other) noexcept = default;
ReceivePool::~ReceivePool() = default;

Result<ReceivePool> ReceivePool::create(ProgressEngine& engine, const ReceivePoolOptions& options) {
  auto state = ReceivePoolState::create(engine.state(), options);
  if (!state) return state.error();
  return ReceivePool{std::move(*state)};
}

Operation ReceivePool::receive(Segments local) {
  return Operation([&](Operation& made) { receive(made, local); });
}
Operation& ReceivePool::receive(Operation& operation, Segments local) {
  operation.request_receive(local);
  state_->start(operation);
  return operation;
}

Result<void> ReceivePool::on_low(std::uint32_t limit, std::function<void()> f) {
  return state_->on_low(limit, std::move(f));
}
std::size_t ReceivePool::receives_in_flight() const { return state_->in_flight(); }
const ReceivePoolOptions& ReceivePool::options() const { return state_->options(); }

}  // namespace verbena
