// SPDX-License-Identifier: Apache-2.0
// A lock for a few instructions at a queue. Never held across user code, a syscall or an allocation.
#pragma once

#include <atomic>

namespace verbena {

class SpinLock {
 public:
  void lock() {
    while (flag_.exchange(true, std::memory_order_acquire)) wait();
  }
  bool try_lock() { return !flag_.exchange(true, std::memory_order_acquire); }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  [[gnu::cold]] void wait();  // spins on the shared line, then yields the processor
  std::atomic<bool> flag_{false};
};

// Holds a SpinLock for a scope; or does nothing, where it is not needed.
class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock, bool needed = true) : lock_(lock), needed_(needed) {
    if (needed_) lock_.lock();
  }
  ~SpinGuard() {
    if (needed_) lock_.unlock();
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
  const bool needed_;
};

}  // namespace verbena
