// SPDX-License-Identifier: Apache-2.0
#include "soft/core/queue_pair.h"

#include <algorithm>
#include <array>
#include <utility>

#include "soft/core/planted.h"

namespace verbena::core {

CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaWriteWithImmediate:
      return CompletionOpcode::RdmaWrite;
    case SendOpcode::Send:
    case SendOpcode::SendWithImmediate:
      return CompletionOpcode::Send;
    case SendOpcode::RdmaRead:
      return CompletionOpcode::RdmaRead;
    case SendOpcode::CompareAndSwap:
      return CompletionOpcode::CompareAndSwap;
    case SendOpcode::FetchAndAdd:
      return CompletionOpcode::FetchAndAdd;
  }
  return CompletionOpcode::Send;
}

QueuePair::QueuePair(Qpn qpn, const QueuePairInit& init, EventQueue& events)
    : qpn_(qpn),
      init_(init),
      events_(events),
      send_queue_(init.capabilities, init.posters),
      receive_queue_(init.srq != nullptr ? 0 : std::max(init.capabilities.max_receive_requests, 1u),
                     init.capabilities.max_receive_segments, init.posters) {
  ++init_.send_cq->users;
  ++init_.receive_cq->users;
  if (init_.srq != nullptr) ++init_.srq->users;
}

PostResult QueuePair::post_send(std::span<const SendRequest> requests) {
  switch (state()) {
    case QueuePairState::Reset:
    case QueuePairState::Init:
    case QueuePairState::Rtr:
      return {PostStatus::WrongState, 0};
    case QueuePairState::Rts:
    case QueuePairState::Sqd:
    case QueuePairState::Sqe:
    case QueuePairState::Error:
      break;
  }
  return send_queue_.post(requests);
}

PostResult QueuePair::post_receive(std::span<const ReceiveRequest> requests, bool* flushes) {
  if (init_.srq != nullptr) return {PostStatus::SharedReceives, 0};
  if (state() == QueuePairState::Reset) return {PostStatus::WrongState, 0};
  return receive_queue_.post(requests, flushes);
}

Result<void> QueuePair::modify(const QueuePairAttributes& values, AttributeMask mask,
                               const AttributeLimits& limits) {
  const QueuePairState from = state();
  const QueuePairState to = any(mask & AttributeMask::State) ? values.state : from;
  if (auto checked = check_transition(init_.type, from, to, mask, values, limits); !checked) return checked;
  if (to == QueuePairState::Error) {
    enter_error(std::nullopt);
    return {};
  }
  // Those in other states went to ERR when it broke.
  if (from == QueuePairState::Reset && to != from && (init_.send_cq->is_broken() || init_.receive_cq->is_broken()))
    return Error{ErrorCode::WrongState, "modify queue pair: its completion queue overran, and takes nothing any more"};
  if (from == QueuePairState::Rts) attributes_.sq_drained_event = false;  // is asked for each time
  apply(values, mask);
  attributes_.state = to;
  if (to != QueuePairState::Sqd) drained_said_ = false;
  state_.store(to, std::memory_order_release);
  if (to == QueuePairState::Reset) {
    send_queue_.clear();
    receive_queue_.clear();
    open_receive = {};
    attributes_ = {};
    init_.send_cq->remove(qpn_);
    init_.receive_cq->remove(qpn_);
  }
  return {};
}

void QueuePair::apply(const QueuePairAttributes& v, AttributeMask mask) {
  using Mask = AttributeMask;
  const auto has = [mask](Mask bit) { return any(mask & bit); };
  QueuePairAttributes& a = attributes_;
  if (has(Mask::SqDrainedEvent)) a.sq_drained_event = v.sq_drained_event;
  if (has(Mask::Access)) a.access = v.access;
  if (has(Mask::PkeyIndex)) a.pkey_index = v.pkey_index;
  if (has(Mask::Port)) a.port = v.port;
  if (has(Mask::Qkey)) a.qkey = v.qkey;
  if (has(Mask::Address)) a.address = v.address;
  if (has(Mask::PathMtu)) a.path_mtu = v.path_mtu;
  if (has(Mask::Timeout)) a.timeout = v.timeout;
  if (has(Mask::RetryCount)) a.retry_count = v.retry_count;
  if (has(Mask::RnrRetry)) a.rnr_retry = v.rnr_retry;
  if (has(Mask::RqPsn)) a.rq_psn = v.rq_psn;
  if (has(Mask::MaxRdAtomic)) a.max_rd_atomic = v.max_rd_atomic;
  if (has(Mask::MinRnrTimer)) a.min_rnr_timer = v.min_rnr_timer;
  if (has(Mask::SqPsn)) a.sq_psn = v.sq_psn;
  if (has(Mask::MaxDestRdAtomic)) a.max_dest_rd_atomic = v.max_dest_rd_atomic;
  if (has(Mask::DestinationQpn)) a.destination = v.destination;
}

void QueuePair::follow_up(const CompletionQueue& cq, CompletionQueue::Pushed pushed) {
  switch (pushed) {
    [[likely]] case CompletionQueue::Pushed::Stored:
    case CompletionQueue::Pushed::Lost:
      return;
    case CompletionQueue::Pushed::Notify:
      return events_.completion(cq.id());
    case CompletionQueue::Pushed::Overrun:
      return events_.overrun(cq.id());
  }
}

void QueuePair::report_oldest_send(CompletionStatus status, std::uint32_t byte_count, std::uint32_t vendor_error) {
  const SendWqe& wqe = send_queue_.at(send_queue_.retired());
  const bool wanted = is_signaled(wqe);
  const bool failed = status != CompletionStatus::Success;
  if (failed && recall_ != nullptr) recall_->recall();
  const std::uint64_t id = wqe.id;  // whoever posts may have its place
  const CompletionOpcode opcode = completion_opcode(wqe.opcode);
  send_queue_.retire_oldest();
  if (!wanted && (!failed || planted(PlantedBug::LoseUnsignaledError))) return;
  const auto pushed = init_.send_cq->push(failed, [&](Completion& completion) {
    completion.id = id;
    completion.status = status;
    completion.opcode = opcode;
    completion.with_immediate = false;
    completion.immediate = {};
    completion.byte_count = byte_count;
    completion.qpn = qpn_;
    completion.vendor_error = vendor_error;
  });
  follow_up(*init_.send_cq, pushed);
}

void QueuePair::enter_error(std::optional<AsyncEventType> event) {
  const bool enters = state() != QueuePairState::Error;
  if (recall_ != nullptr) recall_->recall();
  if (enters) {
    attributes_.state = QueuePairState::Error;
    state_.store(QueuePairState::Error, std::memory_order_release);
    receive_queue_.close();
    if (event) raise(*event);
  }
  flush();
  if (enters && init_.srq != nullptr) raise(AsyncEventType::LastWqeReached);
}

void QueuePair::flush() {
  flush_sends();
  if (!planted(PlantedBug::SkipFlush)) flush_receives();
}

void QueuePair::flush_sends() {
  if (planted(PlantedBug::FlushInReverse) && send_queue_.posted() - send_queue_.retired() >= 2)
    std::swap(send_queue_.at(send_queue_.retired()).id, send_queue_.at(send_queue_.retired() + 1).id);
  while (send_queue_.retired() != send_queue_.posted()) complete_oldest_send(CompletionStatus::Flushed, 0);
}

void QueuePair::flush_receives() {
  Completion completion;
  completion.status = CompletionStatus::Flushed;
  completion.opcode = CompletionOpcode::Receive;
  completion.qpn = qpn_;
  if (open_receive.open) {
    completion.id = open_receive.id;
    complete_receive(completion, false);
  }
  ReceiveWqe wqe;
  std::array<ScatterGather, kMaxSegments> sges;
  while (receive_queue_.take(wqe, sges)) {
    completion.id = wqe.id;
    complete_receive(completion, false);
  }
}

}  // namespace verbena::core
