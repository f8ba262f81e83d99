// SPDX-License-Identifier: Apache-2.0
#include "tools/message_crew.h"

#include <chrono>
#include <utility>

namespace verbena::tools {

MessageCrew::MessageCrew(std::uint32_t size, Work work) : size_(size), work_(std::move(work)) {}

MessageCrew::~MessageCrew() {
  stop();
  join();
}

void MessageCrew::start() {
  threads_.reserve(size_);
  for (std::uint32_t number = 0; number < size_; ++number)
    threads_.emplace_back([this, number] {
      const auto outcome = work_(number);
      const std::scoped_lock lock(mutex_);
      if (outcome) ++done_;
      else if (!error_) error_ = outcome.error();
      changed_.notify_all();
    });
}

void MessageCrew::report_ready() {
  const std::scoped_lock lock(mutex_);
  ++ready_;
  changed_.notify_all();
}

std::optional<Error> MessageCrew::error() const {
  const std::scoped_lock lock(mutex_);
  return error_;
}

Result<void> MessageCrew::wait(const std::uint32_t& count, const std::function<Result<void>()>& glance) {
  std::unique_lock lock(mutex_);
  while (count < size_ && !error_) {
    changed_.wait_for(lock, std::chrono::nanoseconds(kGlance.ns));
    lock.unlock();
    auto seen = glance();
    lock.lock();
    if (!seen) return seen;
  }
  return error_ ? Result<void>(*error_) : Result<void>();
}

void MessageCrew::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace verbena::tools
