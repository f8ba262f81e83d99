// SPDX-License-Identifier: Apache-2.0
// A queue pair as the application knows it: attributes, state, the two queues, completion and flush.
// Knows no packet: what moves requests to the peer stands beside it and tells it outcomes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/assert.h"
#include "soft/core/attribute_rules.h"
#include "soft/core/completion_queue.h"
#include "soft/core/memory_table.h"
#include "soft/core/shared_receive_queue.h"
#include "soft/core/work_queues.h"

namespace verbena::core {

inline constexpr std::uint32_t kMaxSegments = 32;

using verbena::kVendorPeerEnded;

struct QueuePairInit {
  QueuePairType type = QueuePairType::ReliableConnected;
  PdId pd;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  // where receives come from; null: from a queue of its own
  QueuePairCapabilities capabilities;
  bool signal_all = false;  // every send request is signaled
  Posters posters = Posters::AnyThread;
};

// Told before a request ends that was perhaps not carried out, and before a flush: with a completion the program has
// its memory back.
class RequestRecall {
 public:
  virtual ~RequestRecall() = default;
  // Whoever reads that memory from now on must not count what it read.
  virtual void recall() = 0;
};

class QueuePair {
 public:
  QueuePair(Qpn qpn, const QueuePairInit& init, EventQueue& events);

  // Any thread. Refusals are decided here; the device is told by its owner (doorbell).
  PostResult post_send(std::span<const SendRequest> requests);
  // `flushes`, where wanted: the queue pair is in ERR, and whether its flush saw these requests is not known.
  PostResult post_receive(std::span<const ReceiveRequest> requests, bool* flushes = nullptr);
  QueuePairState state() const { return state_.load(std::memory_order_acquire); }
  Qpn qpn() const { return qpn_; }
  const QueuePairInit& init() const { return init_; }

  // Everything below is the device's side: one thread at a time.

  // Checks and applies; with an error nothing has changed. Flushes on ERR, clears on RESET
  //
  Result<void> modify(const QueuePairAttributes& values, AttributeMask mask, const AttributeLimits& limits);
  const QueuePairAttributes& attributes() const { return attributes_; }

  SendQueue& send_queue() { return send_queue_; }
  ReceiveQueue& receive_queue() { return receive_queue_; }  // its own
  // The next receive, from the queue it has: its own or the shared one. What was taken belongs to the queue pair.
  bool take_receive(ReceiveWqe& wqe, std::span<ScatterGather> sges) {
    return init_.srq != nullptr ? init_.srq->take(wqe, sges) : receive_queue_.take(wqe, sges);
  }
  std::uint32_t max_receive_segments() const {
    return init_.srq != nullptr ? init_.srq->max_sges() : receive_queue_.max_sges();
  }
  // Where the keys of its receives must be valid.
  PdId receive_pd() const { return init_.srq != nullptr ? init_.srq->pd() : init_.pd; }

  // Outcome of the oldest request of the send queue, which leaves the queue.
  void complete_oldest_send(CompletionStatus status, std::uint32_t byte_count, std::uint32_t vendor_error = 0) {
    const std::uint32_t oldest = send_queue_.retired();
    VERBENA_ASSERT(oldest != send_queue_.posted());
    if (is_signaled(send_queue_.at(oldest)) || status != CompletionStatus::Success)
      return report_oldest_send(status, byte_count, vendor_error);
    send_queue_.retire_oldest();
  }
  // While there is one.
  bool is_oldest_send_signaled() { return is_signaled(send_queue_.at(send_queue_.retired())); }
  // `recall` outlives its use here; null: nobody reads the memory of requests but this device.
  void set_recall(RequestRecall* recall) { recall_ = recall; }
  // Outcome of a receive that was taken. `write` and `wakes`: see CompletionQueue::push().
  template <class Write>
  void complete_receive(bool wakes, Write write) {
    open_receive = {};
    follow_up(*init_.receive_cq, init_.receive_cq->push(wakes, write));
  }
  void complete_receive(const Completion& completion, bool solicited) {
    open_receive = {};
    follow_up(*init_.receive_cq, init_.receive_cq->push(completion, solicited));
  }

  // Puts the queue pair into ERR. `event`: what to tell the application, if anything.
  // All requests still queued end as flushed, in order, one completion each. Of a shared receive queue only
  // what was taken; that no more will be is said once.
  [[gnu::cold]] void enter_error(std::optional<AsyncEventType> event);
  // Flushes what was posted meanwhile; only in ERR.
  [[gnu::cold]] void flush();
  // A receive that was taken for a message that will never end; flushed before the queue.
  struct OpenReceive {
    bool open = false;
    std::uint64_t id = 0;
  };
  OpenReceive open_receive;

  void raise(AsyncEventType type) { events_.of_qp(type, qpn_); }
  // In SQD, until say_drained(): that all which was started has ended.
  bool drains() const { return state() == QueuePairState::Sqd && !drained_said_; }
  void say_drained() {
    drained_said_ = true;
    if (attributes_.sq_drained_event) raise(AsyncEventType::SqDrained);
  }

 private:
  bool is_signaled(const SendWqe& wqe) const { return init_.signal_all || has_flag(wqe.flags, SendFlags::Signaled); }
  void report_oldest_send(CompletionStatus status, std::uint32_t byte_count, std::uint32_t vendor_error);
  void follow_up(const CompletionQueue& cq, CompletionQueue::Pushed pushed);
  void apply(const QueuePairAttributes& values, AttributeMask mask);
  [[gnu::cold]] void flush_sends();
  [[gnu::cold]] void flush_receives();

  const Qpn qpn_;
  const QueuePairInit init_;
  EventQueue& events_;
  std::atomic<QueuePairState> state_{QueuePairState::Reset};
  QueuePairAttributes attributes_;
  SendQueue send_queue_;
  ReceiveQueue receive_queue_;
  RequestRecall* recall_ = nullptr;
  bool drained_said_ = false;
};

CompletionOpcode completion_opcode(SendOpcode opcode);

}  // namespace verbena::core
