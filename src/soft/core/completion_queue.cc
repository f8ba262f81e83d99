// SPDX-License-Identifier: Apache-2.0
#include "soft/core/completion_queue.h"

#include <bit>

namespace verbena::core {

CompletionQueue::CompletionQueue(CqId id, std::uint32_t capacity, Pollers pollers)
    : id_(id), capacity_(capacity), locks_(pollers == Pollers::AnyThread), ring_(std::bit_ceil(capacity)) {}

void CompletionQueue::remove(Qpn qpn) {
  const SpinGuard guard(lock_, locks_);
  const std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  const auto mask = static_cast<std::uint32_t>(ring_.size() - 1);
  std::uint32_t keep = tail;
  for (std::uint32_t i = tail; i != head; ++i)
    if (ring_[i & mask].qpn != qpn) ring_[keep++ & mask] = ring_[i & mask];
  head_.store(keep, std::memory_order_release);
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  if (looks_empty()) return 0;
  const SpinGuard guard(lock_, locks_);
  const std::uint32_t head = head_.load(std::memory_order_acquire);
  std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  std::size_t n = 0;
  while (n < out.size() && tail != head) out[n++] = ring_[tail++ & (ring_.size() - 1)];
  tail_.store(tail, std::memory_order_release);
  return n;
}

}  // namespace verbena::core
