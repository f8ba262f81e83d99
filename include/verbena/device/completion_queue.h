// SPDX-License-Identifier: Apache-2.0
// Where finished work is reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"

namespace verbena {

namespace provider {
class CompletionQueueOps;
class Context;
}  // namespace provider

// Completions of one or more queue pairs, oldest first. Size it for the sum of their work queues: a queue that overruns
// is broken, and its queue pairs go to error. A work queue has room again before the completion is polled: post no more
// than what was polled leaves room for.
//
// Connections bring their own; this class is for programs that speak verbs.
// Lifetime: outlived by the device, outlives its queue pairs. Threads: any.
class CompletionQueue {
 public:
  CompletionQueue(CompletionQueue&& other) noexcept;
  CompletionQueue& operator=(CompletionQueue&& other) noexcept;
  ~CompletionQueue();

  // Up to out.size() completions. Finding none, drives the device once and looks again.
  [[nodiscard]] std::size_t poll(std::span<Completion> out);
  [[nodiscard]] std::optional<Completion> poll_one();
  // The next completion (or with solicited_only the next solicited or failed one) raises one DeviceEvent. Poll once
  // more after arming: what came before raises none.
  void arm(bool solicited_only = false);

  // Number of the queue on its device, as in DeviceEvent::completion_queue.
  std::uint32_t id() const { return id_; }
  // For the library.
  bool is_of(const provider::Context& context) const { return context_.pointer() == &context; }

 private:
  friend class Device;
  CompletionQueue(provider::Context& context, std::uint32_t id);
  void release();

  detail::Inner<provider::Context*, "CompletionQueue"> context_;
  detail::Inner<provider::CompletionQueueOps*, "CompletionQueue"> ops_;
  std::uint32_t id_ = 0;
};

}  // namespace verbena
