// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/shared_receive_queue.h"

#include <utility>

#include "base/assert.h"
#include "provider/provider.h"

namespace verbena {

SharedReceiveQueue::SharedReceiveQueue(provider::Context& context, std::uint32_t id)
    : context_(&context), ops_(context.srq(provider::SrqId{id})), id_(id) {}

SharedReceiveQueue::SharedReceiveQueue(SharedReceiveQueue&& other) noexcept
    : context_(std::move(other.context_)), ops_(std::move(other.ops_)), id_(other.id_) {}

SharedReceiveQueue& SharedReceiveQueue::operator=(SharedReceiveQueue&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::move(other.context_);
  ops_ = std::move(other.ops_);
  id_ = other.id_;
  return *this;
}

SharedReceiveQueue::~SharedReceiveQueue() { release(); }

void SharedReceiveQueue::release() {
  if (context_ != nullptr) {
    const auto gone = context_->destroy_srq(provider::SrqId{id_});
    VERBENA_REQUIRE(gone || gone.error().code() != ErrorCode::Busy,
                    "destroys a SharedReceiveQueue before a QueuePair that takes receives from it");
  }
  context_ = nullptr;
}

PostResult SharedReceiveQueue::post(std::span<const ReceiveRequest> requests) { return ops_->post(requests); }
bool SharedReceiveQueue::withdraw(std::uint64_t id) { return ops_->withdraw(id); }

Result<void> SharedReceiveQueue::arm_limit(std::uint32_t limit) {
  return context_->modify_srq(provider::SrqId{id_}, limit);
}

Result<SharedReceiveQueueAttributes> SharedReceiveQueue::query() const {
  return context_->query_srq(provider::SrqId{id_});
}

}  // namespace verbena
