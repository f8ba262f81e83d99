// SPDX-License-Identifier: Apache-2.0
// Receive requests for many queue pairs: application threads fill it, whichever queue pair gets a message
// takes the next. What is taken belongs to that queue pair.
#pragma once

#include <cstdint>
#include <span>

#include "soft/core/events.h"
#include "soft/core/work_queues.h"

namespace verbena::core {

class SharedReceiveQueue {
 public:
  SharedReceiveQueue(SrqId id, PdId pd, std::uint32_t capacity, std::uint32_t max_segments,
                     EventQueue& events, Posters posters = Posters::AnyThread)
      : id_(id), pd_(pd), events_(events), queue_(capacity, max_segments, posters) {}

  SrqId id() const { return id_; }
  PdId pd() const { return pd_; }
  std::uint32_t capacity() const { return queue_.capacity(); }
  std::uint32_t max_sges() const { return queue_.max_sges(); }

  // The posters' threads.
  PostResult post(std::span<const ReceiveRequest> requests) { return queue_.post(requests); }

  // Everything below is the device's side.
  bool take(ReceiveWqe& wqe, std::span<ScatterGather> sges);
  bool withdraw(std::uint64_t id);
  std::uint32_t size() const { return queue_.size(); }
  // Fewer requests than `limit`, now or later, raise one event, and the limit is 0 again.
  void arm(std::uint32_t limit);
  std::uint32_t limit() const { return limit_; }

  // Queue pairs that refer to this queue.
  std::uint32_t users = 0;

 private:
  void tell_if_low();

  const SrqId id_;
  const PdId pd_;
  EventQueue& events_;
  ReceiveQueue queue_;
  std::uint32_t limit_ = 0;
};

}  // namespace verbena::core
