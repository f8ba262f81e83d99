// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/completion_queue.h"

#include <utility>

#include "base/assert.h"
#include "provider/provider.h"

namespace verbena {

CompletionQueue::CompletionQueue(provider::Context& context, std::uint32_t id)
    : context_(&context), ops_(context.cq(provider::CqId{id})), id_(id) {}

CompletionQueue::CompletionQueue(CompletionQueue&& other) noexcept
    : context_(std::move(other.context_)), ops_(std::move(other.ops_)), id_(other.id_) {}

CompletionQueue& CompletionQueue::operator=(CompletionQueue&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::move(other.context_);
  ops_ = std::move(other.ops_);
  id_ = other.id_;
  return *this;
}

CompletionQueue::~CompletionQueue() { release(); }

void CompletionQueue::release() {
  if (context_ != nullptr) {
    const auto gone = context_->destroy_cq(provider::CqId{id_});
    VERBENA_REQUIRE(gone || gone.error().code() != ErrorCode::Busy,
                    "destroys a CompletionQueue before a QueuePair that completes there");
  }
  context_ = nullptr;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  if (const std::size_t count = ops_->poll(out); count != 0) return count;
  context_->progress();
  return ops_->poll(out);
}

std::optional<Completion> CompletionQueue::poll_one() {
  Completion completion;
  if (poll({&completion, 1}) == 0) return std::nullopt;
  return completion;
}

void CompletionQueue::arm(bool solicited_only) { ops_->arm(solicited_only); }

}  // namespace verbena
