// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/fetch_plan.h"

#include <algorithm>

#include "base/assert.h"

namespace verbena::ring {

FetchPlan::FetchPlan(const Geometry& geometry, std::uint32_t most_bytes)
    : geometry_(geometry), most_bytes_(most_bytes) {
  VERBENA_ASSERT(geometry.is_valid() && geometry.commit == Commit::Offset);
  VERBENA_ASSERT(most_bytes != 0 && most_bytes % geometry.unit == 0);
}

Fault FetchPlan::handle_tail(std::uint64_t tail) {
  if (fault_ != Fault::None) return fault_;
  if (tail - told_ > geometry_.capacity || tail - told_ < tail_ - told_ || tail % geometry_.unit != 0)
    return fault_ = Fault::Tail;
  tail_ = tail;
  return Fault::None;
}

// In a doubled ring a span runs on into the second mapping, at both ends.
std::optional<Span> FetchPlan::next() {
  if (asked_ == tail_ || count_ == kMostSpans) return std::nullopt;
  const std::uint64_t room = geometry_.memory_bytes() - geometry_.place_of(asked_);
  const std::uint64_t bytes = std::min({tail_ - asked_, room, std::uint64_t{most_bytes_}});
  const Span span{geometry_.place_of(asked_), static_cast<std::uint32_t>(bytes)};
  asked_ += bytes;
  // Between two tails nobody has said that frames end.
  const std::uint64_t before = count_ == 0 ? whole_ : whole_with_[(oldest_ + count_ - 1) % kMostSpans];
  whole_with_[(oldest_ + count_++) % kMostSpans] = asked_ == tail_ ? tail_ : before;
  return span;
}

void FetchPlan::handle_fetched() {
  VERBENA_ASSERT(count_ != 0);
  whole_ = whole_with_[oldest_];
  oldest_ = (oldest_ + 1) % kMostSpans;
  --count_;
}

void FetchPlan::handle_told(std::uint64_t head) {
  VERBENA_ASSERT(head - told_ <= whole_ - told_);
  told_ = head;
}

}  // namespace verbena::ring
