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
  void wait();  // spins on the shared line, then yields the processor
  std::atomic<bool> flag_{false};
};

// Holds a SpinLock for a scope.
class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace verbena
