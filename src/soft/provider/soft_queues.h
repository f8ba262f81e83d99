// SPDX-License-Identifier: Apache-2.0
// The data path of the software device: the queues of the core, and the doorbell.
#pragma once

#include "soft/provider/soft_context.h"

namespace verbena::soft {

class SoftContext::Cq final : public provider::CompletionQueueOps {
 public:
  Cq(HostDevice& device, core::CompletionQueue& queue) : device_(device), queue_(queue) {}
  std::size_t poll(std::span<Completion> out) override { return queue_.looks_empty() ? 0 : queue_.poll(out); }
  void arm(bool solicited_only) override { device_.arm(queue_, solicited_only); }

 private:
  HostDevice& device_;
  core::CompletionQueue& queue_;
};

class SoftContext::Qp final : public provider::QueuePairOps {
 public:
  Qp(HostDevice& device, core::QueuePair& queues) : device_(device), queues_(queues) {}

  PostResult post_send(std::span<const SendRequest> requests) override {
    if (requests.size() == 1 && device_.post_short(queues_, requests[0])) return {PostStatus::Ok, 1};
    const PostResult result = queues_.post_send(requests);
    if (result.posted != 0) device_.kick(queues_, result.posted);
    return result;
  }
  PostResult post_receive(std::span<const ReceiveRequest> requests) override {
    bool flushes = false;
    const PostResult result = queues_.post_receive(requests, &flushes);
    // In ERR it may have to be flushed once more. Otherwise nobody waits for receives but peers, who ask again.
    if (flushes && result.posted != 0) device_.kick(queues_, result.posted);
    return result;
  }
  bool write_now(const ShortWrite& write) override { return device_.do_now(queues_, write); }
  bool read_now(const ShortRead& read) override { return device_.do_now(queues_, read); }
  QueuePairState state() const override { return queues_.state(); }

 private:
  HostDevice& device_;
  core::QueuePair& queues_;
};

class SoftContext::Srq final : public provider::SharedReceiveQueueOps {
 public:
  Srq(HostDevice& device, core::SharedReceiveQueue& queue) : device_(device), queue_(queue) {}

  // Nothing waits for a receive but peers, who ask again.
  PostResult post(std::span<const ReceiveRequest> requests) override { return queue_.post(requests); }
  bool withdraw(std::uint64_t id) override {
    return device_.with_nic([&](Nic&, Instant) { return queue_.withdraw(id); });
  }

 private:
  HostDevice& device_;
  core::SharedReceiveQueue& queue_;
};

}  // namespace verbena::soft
