// SPDX-License-Identifier: Apache-2.0
// One queue of receives for many queue pairs.
#pragma once

#include <cstdint>
#include <span>

#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"

namespace verbena {

namespace provider {
class Context;
class SharedReceiveQueueOps;
}  // namespace provider

struct SharedReceiveQueueOptions {
  std::uint32_t max_requests = 1024;
  std::uint32_t max_segments = 4;  // per request
};

// Receives that belong to no queue pair: whichever of those made with QueuePairOptions::shared_receive_queue gets a
// message takes the oldest, and it completes in that queue pair's completion queue, as Completion::qpn says. A queue
// pair that goes to error flushes what it has taken, raises LastWqeReached, and leaves the rest. While the queue is
// empty, senders are asked to wait (RNR), each by itself.
//
// ReceivePool is the comfortable way, for connections.
// Lifetime: outlived by the device and the protection domain, outlives its queue pairs. Threads: any.
class SharedReceiveQueue {
 public:
  SharedReceiveQueue(SharedReceiveQueue&& other) noexcept;
  SharedReceiveQueue& operator=(SharedReceiveQueue&& other) noexcept;
  ~SharedReceiveQueue();

  // With a refusal, the requests before it are posted.
  PostResult post(std::span<const ReceiveRequest> requests);
  PostResult post(const ReceiveRequest& request) { return post(std::span{&request, 1}); }
  // Takes back the oldest request with that id: it will not complete, and its memory is the caller's again. False:
  // there is none, or a message has begun to fill it.
  [[nodiscard]] bool withdraw(std::uint64_t id);

  // Fewer receives than `limit`, now or later, raise DeviceEvent SrqLimitReached once. 0 takes that back. Errors:
  // InvalidArgument (more than the queue holds).
  Result<void> arm_limit(std::uint32_t limit);
  // Sizes as they were made, and the limit that is armed.
  Result<SharedReceiveQueueAttributes> query() const;

  // Number of the queue on its device, as in DeviceEvent::shared_receive_queue.
  std::uint32_t id() const { return id_; }
  // For the library.
  bool is_of(const provider::Context& context) const { return context_.pointer() == &context; }

 private:
  friend class Device;
  SharedReceiveQueue(provider::Context& context, std::uint32_t id);
  void release();

  detail::Inner<provider::Context*, "SharedReceiveQueue"> context_;
  detail::Inner<provider::SharedReceiveQueueOps*, "SharedReceiveQueue"> ops_;
  std::uint32_t id_ = 0;
};

}  // namespace verbena
