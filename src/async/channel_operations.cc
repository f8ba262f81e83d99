// SPDX-License-Identifier: Apache-2.0
// From an operation to the queue, and from a completion back to it.
#include "async/channel.h"

#include <algorithm>
#include <vector>

#include "async/describe.h"
#include "base/assert.h"
#include "base/byte_order.h"

namespace verbena {

namespace {

describe::Subject subject_of(SendOpcode opcode, bool is_receive, std::uint64_t bytes, std::uint64_t address,
                             RKey rkey) {
  return {opcode, is_receive, bytes, address, rkey};
}

bool is_atomic(SendOpcode opcode) { return opcode >= SendOpcode::CompareAndSwap; }

}  // namespace

bool Channel::has_nothing_out() const {
  return sends_.in_flight() + receives_.in_flight() == 0 && keep_alive_out_ == 0;
}

// ---- Operations.

std::string Channel::subject(const Operation& operation) const {
  const Operation::Request& r = operation.request_;
  return describe::subject(subject_of(r.opcode, r.is_receive, r.bytes, r.remote_address, r.rkey),
                           owner_.peer_name());
}

// What this side can know to be wrong before the device sees it.
OperationQueue::Refusal Channel::refusal(const Operation& operation) const {
  const Operation::Request& r = operation.request_;
  if (end_) return refuse(end_code(), subject(operation) + ": " + end_text());
  if (r.is_receive && options_.pool != nullptr)
    return refuse(ErrorCode::InvalidArgument,
                  subject(operation) + ": this connection takes its receives from a ReceivePool; start them there");
  if (r.asked_segments > Operation::kMaxSegments)
    return refuse(ErrorCode::InvalidArgument, subject(operation) + ": " + std::to_string(r.asked_segments) +
                                                  " segments, at most " + std::to_string(Operation::kMaxSegments));
  const bool one_sided =
      !r.is_receive && r.opcode != SendOpcode::Send && r.opcode != SendOpcode::SendWithImmediate;
  const std::uint64_t needs = is_atomic(r.opcode) ? 8 : r.bytes;
  if (one_sided && needs > r.remote_length)
    return refuse(ErrorCode::InvalidArgument, subject(operation) + ": the remote memory named is only " +
                                                  std::to_string(r.remote_length) + " bytes long");
  if (one_sided && r.opcode >= SendOpcode::RdmaRead && !may_fetch_)
    return refuse(ErrorCode::InvalidArgument,
                  subject(operation) + ": this connection carries no READs and atomics, as max_rd_atomic here or "
                                       "max_dest_rd_atomic there is 0");
  if (one_sided && is_atomic(r.opcode) && r.remote_address % 8 != 0)
    return refuse(ErrorCode::InvalidArgument, subject(operation) + ": the remote address is not a multiple of 8");
  return {};
}

OperationQueue::Refusal Channel::post(Operation& operation) {
  if (Refusal error = refusal(operation)) return error;
  Slots& slots = slots_of(operation);
  if (slots.none_free())
    return refuse(ErrorCode::QueueFull, subject(operation) + ": " + std::to_string(slots.in_flight()) +
                                            " are in flight; " + describe::refusal(PostStatus::QueueFull));
  const std::uint32_t slot = slots.next();
  Refusal error = operation.request_.is_receive ? post_receive(operation, slot) : post_send(operation, slot);
  if (error) return error;
  slots.take(&operation);
  operation.slot_ = slot;
  return {};
}

OperationQueue::Refusal Channel::refused(const Operation& operation, PostStatus status) const {
  ErrorCode code = ErrorCode::InvalidArgument;
  if (status == PostStatus::QueueFull) code = ErrorCode::QueueFull;
  if (status == PostStatus::WrongState) code = ErrorCode::WrongState;
  return refuse(code, subject(operation) + ": " + describe::refusal(status), to_errno(status), ErrorDomain::Errno);
}

OperationQueue::Refusal Channel::post_send(Operation& operation, std::uint32_t slot) {
  const Operation::Request& r = operation.request_;
  SendRequest request;
  request.id = id_of(slot);
  request.opcode = r.opcode;
  request.flags = r.flags | SendFlags::Signaled;
  request.local = {r.segments.data(), r.segment_count};
  request.remote_address = r.remote_address;
  request.rkey = r.rkey;
  request.compare = r.compare;
  request.swap_or_add = r.swap_or_add;
  store_be32(request.immediate.data(), r.immediate);
  ScatterGather cell;
  if (is_atomic(r.opcode)) {
    auto found = atomic_cell(slot);
    if (!found) return std::make_unique<Error>(found.error());
    cell = *found;
    request.local = {&cell, 1};
  }
  const PostStatus status = ops_->post_send({&request, 1}).status;
  return status == PostStatus::Ok ? nullptr : refused(operation, status);
}

OperationQueue::Refusal Channel::post_receive(Operation& operation, std::uint32_t slot) {
  const Operation::Request& r = operation.request_;
  const ReceiveRequest request{id_of(kReceive | slot), {r.segments.data(), r.segment_count}};
  const PostStatus status = ops_->post_receive({&request, 1}).status;
  return status == PostStatus::Ok ? nullptr : refused(operation, status);
}

Result<ScatterGather> Channel::atomic_cell(std::uint32_t slot) {
  if (!cells_registered_) {
    cells_ = std::make_unique<std::uint64_t[]>(sends_.all().size());
    const auto address = reinterpret_cast<std::uintptr_t>(cells_.get());
    auto info = device_.context().register_memory(options_.domain, cells_.get(), sends_.all().size() * 8,
                                                  address, Access::LocalWrite, -1);
    if (!info) return info.error();
    cells_key_ = info->lkey;
    cells_registered_ = true;
  }
  return ScatterGather{reinterpret_cast<std::uintptr_t>(&cells_[slot]), 8, cells_key_};
}

void Channel::abort(Operation& operation, Operation::Ending ending) {
  if (operation.state_ != Operation::State::Posted || operation.ending_ != Operation::Ending::Natural) return;
  operation.ending_ = ending;
  const bool cancelled = ending == Operation::Ending::Cancelled;
  end(End::Failed, Error(cancelled ? ErrorCode::Cancelled : ErrorCode::DeadlineExceeded,
                         subject(operation) + (cancelled ? " was cancelled" : " passed its deadline") +
                             ", which takes the connection out of service"));
}

// ---- Requests of the user's own.

namespace {

// All are signaled to the device: a slot is free again when its request is done, whatever follows it.
void signal(SendRequest& request) { request.flags = request.flags | SendFlags::Signaled; }
void signal(ReceiveRequest&) {}
bool tells_success(const SendRequest& request) { return has_flag(request.flags, SendFlags::Signaled); }
bool tells_success(const ReceiveRequest&) { return true; }
PostResult hand_over(provider::QueuePairOps& to, std::span<const SendRequest> list) { return to.post_send(list); }
PostResult hand_over(provider::QueuePairOps& to, std::span<const ReceiveRequest> list) { return to.post_receive(list); }

}  // namespace

// As many as there are slots for, under the numbers of those, in one list. What is posted singly needs none.
template <class Request>
PostResult Channel::post_own(Slots& slots, std::uint32_t direction, std::span<const Request> requests,
                             std::vector<Request>& list) {
  if (requests.empty()) return {};
  if (overran()) return {PostStatus::WrongState, 0};
  if (slots.none_free()) return {PostStatus::QueueFull, 0};
  const std::span<const Request> fitting = requests.first(std::min(requests.size(), slots.free()));
  const auto number = [&](Request& request, std::size_t ahead) {
    request.id = id_of(direction | slots.next(ahead));
    signal(request);
  };
  PostResult result;
  if (fitting.size() == 1) {
    Request one = fitting[0];
    number(one, 0);
    result = hand_over(*ops_, std::span<const Request>(&one, 1));
  } else {
    list.assign(fitting.begin(), fitting.end());
    for (std::size_t i = 0; i < list.size(); ++i) number(list[i], i);
    result = hand_over(*ops_, std::span<const Request>(list));
  }
  for (const Request& request : fitting.first(result.posted))
    slots.take(nullptr, request.id, tells_success(request));
  if (result && fitting.size() < requests.size()) result.status = PostStatus::QueueFull;
  return result;
}

PostResult Channel::post_send(std::span<const SendRequest> requests) {
  engine_.note_activity();
  return post_own(sends_, 0, requests, engine_.send_list());
}

PostResult Channel::post_receive(std::span<const ReceiveRequest> requests) {
  if (options_.pool != nullptr) return {PostStatus::SharedReceives, 0};
  return post_own(receives_, kReceive, requests, engine_.receive_list());
}

void Channel::on_completion(std::function<void(const Completion&)> handler) {
  on_completion_ = handler ? std::make_shared<const std::function<void(const Completion&)>>(std::move(handler))
                           : nullptr;
}

// ---- Completions.

void Channel::handle_completion(const Completion& completion) {
  const auto low = static_cast<std::uint32_t>(completion.id);
  if (completion.status == CompletionStatus::Success) heard_ = true;
  if (low == kKeepAlive) return complete_keep_alive(completion);
  const std::uint32_t index = low & ~kReceive;
  const Slot slot = ((low & kReceive) != 0 ? receives_ : sends_).give_back(index);
  if (tells_when_sent_ && sends_in_flight() == 0) request_tending();
  if (slot.operation != nullptr) return complete(*slot.operation, completion, index);
  if (completion.status == CompletionStatus::Success && !slot.tells_success) return;
  if (completion.status != CompletionStatus::Success && completion.status != CompletionStatus::Flushed)
    end(End::Failed, failure_of_own(completion, (low & kReceive) != 0));
  Completion theirs = completion;
  theirs.id = slot.id;
  // The handler may destroy the channel: it must not go down with it while it runs.
  if (const auto handler = on_completion_) (*handler)(theirs);
}

// Of a request that the user posted: what it was about, only the user knows.
Error Channel::failure_of_own(const Completion& completion, bool is_receive) const {
  describe::Subject what;
  what.is_receive = is_receive;
  const bool told_by_peer = completion.status == CompletionStatus::RemoteAccessError;  // and what range, nobody
  return Error(to_error_code(completion.status),
               (is_receive ? "receive posted for " : "request posted to ") + owner_.peer_name() + " by our qpn " +
                   describe::qpn(qpn_) + ": " +
                   (told_by_peer ? std::string(to_string(completion.status))
                                 : describe::outcome(completion, what, options_.reliability)),
               static_cast<int>(completion.status), ErrorDomain::WorkCompletion);
}

// The completion queue lost what was to come, and the queue pair is in ERR: nothing else would end these requests.
// False when that destroyed the channel.
bool Channel::fail_what_is_lost() {
  EngineState& engine = engine_;
  const std::uint32_t key = key_;
  for (const std::uint32_t direction : {0u, kReceive}) {
    const Slots& slots = direction == 0 ? sends_ : receives_;
    for (std::uint32_t i = 0; i < slots.all().size(); ++i) {
      if (!slots.all()[i].taken) continue;
      Completion lost;
      lost.id = id_of(direction | i);
      lost.status = CompletionStatus::Flushed;
      lost.opcode = direction == 0 ? CompletionOpcode::Send : CompletionOpcode::Receive;
      lost.qpn = qpn_;
      handle_completion(lost);
      if (engine.channel_of(key) != this) return false;
    }
  }
  end_keep_alive();
  return true;
}

// The operation's callback comes last: it may destroy the channel.
void Channel::complete(Operation& operation, const Completion& completion, std::uint32_t slot) {
  engine_.forget(operation);
  const Operation::Request& r = operation.request_;
  if (completion.status == CompletionStatus::Success) {
    OperationOutcome& outcome = operation.outcome_;  // cleared since it was started
    outcome.kind = completion.opcode;
    outcome.qpn = qpn_;
    outcome.bytes = r.is_receive ? completion.byte_count : static_cast<std::uint32_t>(r.bytes);
    if (completion.with_immediate) outcome.immediate = load_be32(completion.immediate.data());
    if (!r.is_receive && is_atomic(r.opcode)) {
      outcome.bytes = 8;
      outcome.value = cells_[slot];
    }
    return operation.end();
  }
  if (completion.status == CompletionStatus::Flushed) return operation.fail(flush_error(operation));
  const auto what = subject_of(r.opcode, r.is_receive, r.bytes, r.remote_address, r.rkey);
  Error error(to_error_code(completion.status),
              subject(operation) + " by our qpn " + describe::qpn(qpn_) + ": " +
                  describe::outcome(completion, what, options_.reliability),
              static_cast<int>(completion.status), ErrorDomain::WorkCompletion);
  end(End::Failed, error);
  operation.fail(std::move(error));
}

ErrorCode Channel::end_code() const {
  if (!end_) return ErrorCode::ConnectionLost;
  if (*end_ == End::PeerClosed) return ErrorCode::Disconnected;
  if (*end_ == End::Closed) return ErrorCode::Flushed;
  const bool asked =
      reason_->code() == ErrorCode::Cancelled || reason_->code() == ErrorCode::DeadlineExceeded;
  return asked ? ErrorCode::Flushed : ErrorCode::ConnectionLost;
}

std::string Channel::end_text() const {
  if (!end_) return reported_ ? reported_->context() : "the connection left service";
  if (*end_ == End::Failed) return "the connection is lost: " + reason_->to_string();
  return reason_->context();
}

Error Channel::flush_error(const Operation& operation) const {
  if (operation.ending_ == Operation::Ending::Cancelled)
    return Error(ErrorCode::Cancelled, subject(operation) + ": cancelled; the connection is out of service");
  if (operation.ending_ == Operation::Ending::Expired)
    return Error(ErrorCode::DeadlineExceeded,
                 subject(operation) + ": not done before its deadline; the connection is out of service");
  return Error(end_code(), subject(operation) + ": " + end_text(),
               static_cast<int>(CompletionStatus::Flushed), ErrorDomain::WorkCompletion);
}

}  // namespace verbena
