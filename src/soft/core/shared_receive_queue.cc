// SPDX-License-Identifier: Apache-2.0
#include "soft/core/shared_receive_queue.h"

namespace verbena::core {

bool SharedReceiveQueue::take(ReceiveWqe& wqe, std::span<ScatterGather> sges) {
  if (!queue_.take(wqe, sges)) return false;
  tell_if_low();
  return true;
}

bool SharedReceiveQueue::withdraw(std::uint64_t id) {
  if (!queue_.withdraw(id)) return false;
  tell_if_low();
  return true;
}

void SharedReceiveQueue::arm(std::uint32_t limit) {
  limit_ = limit;
  tell_if_low();
}

void SharedReceiveQueue::tell_if_low() {
  if (limit_ == 0 || queue_.size() >= limit_) return;
  limit_ = 0;
  events_.limit_reached(id_);
}

}  // namespace verbena::core
