// SPDX-License-Identifier: Apache-2.0
// The threads of one end of a test of messages, and the thread that leads them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "verbena/base/result.h"
#include "verbena/base/time.h"

namespace verbena::tools {

// Each thread does `work`: it prepares, says so by report_ready(), does what it is for once it may proceed, and leaves
// soon after stop(). Its leader alone makes, leads and destroys the crew.
class MessageCrew {
 public:
  using Work = std::function<Result<void>(std::uint32_t number)>;
  // Between two looks of the leader at what goes on beside the crew.
  static constexpr Duration kGlance = Duration::milliseconds(5);

  MessageCrew(std::uint32_t size, Work work);
  MessageCrew(const MessageCrew&) = delete;
  MessageCrew& operator=(const MessageCrew&) = delete;
  ~MessageCrew();

  // ---- For the threads.
  bool is_stopped() const { return stop_.load(std::memory_order_relaxed); }
  bool may_proceed() const { return proceed_.load(std::memory_order_acquire); }
  void report_ready();

  // ---- For the leader.
  void start();
  void proceed() { proceed_.store(true, std::memory_order_release); }
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  // Until all are ready, or all have left well; calls `glance` every kGlance. Errors: the first of a thread, and
  // that of `glance`.
  Result<void> wait_ready(const std::function<Result<void>()>& glance) { return wait(ready_, glance); }
  Result<void> wait_done(const std::function<Result<void>()>& glance) { return wait(done_, glance); }
  // The first error of a thread so far.
  std::optional<Error> error() const;
  void join();

 private:
  Result<void> wait(const std::uint32_t& count, const std::function<Result<void>()>& glance);

  const std::uint32_t size_;
  const Work work_;
  std::atomic<bool> stop_{false}, proceed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  std::uint32_t ready_ = 0, done_ = 0;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
};

}  // namespace verbena::tools
