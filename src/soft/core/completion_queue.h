// SPDX-License-Identifier: Apache-2.0
// A completion queue: a ring that the device fills and application threads empty, who have a short lock among them
// where they are several.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "soft/core/events.h"

namespace verbena::core {

class CompletionQueue {
 public:
  enum class Pollers : std::uint8_t { AnyThread, OneThread };  // OneThread: at a time, and whoever resets queue pairs
  // Holds at least `capacity` completions.
  CompletionQueue(CqId id, std::uint32_t capacity, Pollers pollers = Pollers::AnyThread);

  CqId id() const { return id_; }
  std::uint32_t capacity() const { return capacity_; }

  // Overrun: the queue is full, the completion is lost and the queue is broken from now on; said
  // once, then Lost. Notify: stored, and an armed event is due.
  enum class Pushed : std::uint8_t { Stored, Notify, Overrun, Lost };
  // Device side. `write` sets every member of the completion, in its place: one that was just put together elsewhere
  // could be copied only when all its parts have reached the cache. `wakes`: solicited, or failed.
  template <class Write>
  Pushed push(bool wakes, Write write) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (overrun_) return Pushed::Lost;
    if (head - tail_.load(std::memory_order_acquire) >= capacity_) {
      overrun_ = true;
      return Pushed::Overrun;
    }
    write(ring_[head & (ring_.size() - 1)]);
    head_.store(head + 1, std::memory_order_release);
    if (armed_ == Armed::No || (armed_ == Armed::Solicited && !wakes)) return Pushed::Stored;
    armed_ = Armed::No;
    return Pushed::Notify;
  }
  Pushed push(const Completion& completion, bool solicited) {
    return push(solicited || completion.status != CompletionStatus::Success,
                [&completion](Completion& at) { at = completion; });
  }
  // Removes the completions of one queue pair. Device side.
  void remove(Qpn qpn);

  // The next completion (or the next solicited or failed one) raises one event. Device side.
  void arm(bool solicited_only) {
    if (armed_ != Armed::Next) armed_ = solicited_only ? Armed::Solicited : Armed::Next;
  }

  // The pollers' threads. Completions in the order the device made them; returns how many.
  std::size_t poll(std::span<Completion> out);
  // Any thread, a hint without the lock.
  bool looks_empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
  }

  // It lost a completion, and takes no more. Device side.
  bool is_broken() const { return overrun_; }

  // Queue pairs that refer to this queue.
  std::uint32_t users = 0;

 private:
  enum class Armed : std::uint8_t { No, Solicited, Next };

  const CqId id_;
  const std::uint32_t capacity_;
  const bool locks_;
  std::vector<Completion> ring_;
  std::atomic<std::uint32_t> head_{0};  // next to write, free running
  std::atomic<std::uint32_t> tail_{0};  // next to read
  SpinLock lock_;  // of those who poll
  Armed armed_ = Armed::No;
  bool overrun_ = false;
};

}  // namespace verbena::core
