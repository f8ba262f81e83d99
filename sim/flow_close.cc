// SPDX-License-Identifier: Apache-2.0
// The end of a connection: what was executed of the requests whose outcome the requester never learned?
// Some prefix of them, and of the next WRITE some prefix of its packets; memory must look like one of these.
#include <cstring>

#include "sim/flow.h"

namespace verbena::sim {

bool Flow::target_matches() const {
  return std::memcmp(image_.data(), places_.target.base, image_.size()) == 0;
}

// Tries the packets of a WRITE one after the other. True when memory matches after one of them.
bool Flow::apply_in_part(const Operation& op) {
  const Pattern pattern(op.serial);
  for (std::uint32_t p = 0; p + 1 < op.packets && op.first + p < expected_; ++p) {
    const std::uint64_t at = std::uint64_t{p} * mtu_;
    pattern.fill({image_.data() + op.offset + at, mtu_}, at);
    if (target_matches()) return true;
  }
  return false;
}

void Flow::resolve() {
  while (!target_matches()) {
    if (confirmed_ >= operations_.end() || confirmed_ >= fatal_ ||
        operations_[confirmed_].first >= expected_) {
      fail("memory", "the target holds what no prefix of the requests leaves there", confirmed_);
      return;
    }
    Operation& op = operations_[confirmed_];
    if (op.is_write() && op.place == Place::Target && apply_in_part(op)) return;
    if (op.is_read() || op.end() > expected_) {
      ++confirmed_;
      continue;
    }
    if (op.is_write() && op.place == Place::Target)
      Pattern(op.serial).fill({image_.data() + op.offset, op.length});
    else if (op.place == Place::Target)
      apply(op, confirmed_);
    ++confirmed_;
  }
}

// Additions and swaps on shared cells of which nobody knows: as many as can have happened may have.
void Flow::resolve_shared(std::uint64_t first_unknown) {
  std::uint64_t possible = 0;
  for (std::uint64_t n = confirmed_; n < operations_.end() && n < fatal_; ++n) {
    const Operation& op = operations_[n];
    if (op.end() > expected_) break;
    if (op.place == Place::Counter) ++possible;
  }
  for (std::uint64_t n = first_unknown; n < operations_.end() && n < fatal_; ++n) {
    const Operation& op = operations_[n];
    if (op.end() <= expected_ && op.place == Place::Register)
      places_.cells->note_possible_swap(op.compare, op.swap_or_add);
  }
  const std::uint64_t offset = SharedCells::counter_offset(places_.lane);
  const std::uint64_t actual = SharedCells::lane_of(places_.cells->value_at(offset), places_.lane);
  const std::uint64_t more = (actual - lane_count_) & 0xffff;
  if (more > possible) fail("atomics", "additions were lost or happened twice", kNone);
  lane_count_ += more;
}

void Flow::close(bool drained) {
  if (verdict_.failed()) return;
  if (target_gone_ && std::memcmp(last_target_.data(), places_.target.base, last_target_.size()) != 0) {
    fail("memory", "memory was written after it was deregistered", kNone);
    return;
  }
  // Nothing was flushed behind them: unsignaled requests without completion succeeded.
  if (drained && !errored_) {
    for (; next_completion_ != operations_.end(); ++next_completion_) {
      if (operations_[next_completion_].signaled) {
        fail("exactly once", "a request never completed", next_completion_);
        return;
      }
      succeed(next_completion_);
    }
  }
  if (drained && next_completion_ != operations_.end()) {
    fail("flush", "a request was not flushed", next_completion_);
    return;
  }
  resolve_shared(errored_ ? first_error_ : next_completion_);
  resolve();
}

void Flow::check_memory() {
  if (!target_matches()) fail("memory", "the target is not as the model says", kNone);
  const Pattern stable(0x57ab1e);
  if (!stable.equals(places_.stable.bytes(0, places_.stable.size)))
    fail("memory", "memory changed that nobody wrote", kNone);
  const std::uint64_t offset = SharedCells::counter_offset(places_.lane);
  if (SharedCells::lane_of(places_.cells->value_at(offset), places_.lane) != (lane_count_ & 0xffff))
    fail("atomics", "the shared counter does not hold the additions made", kNone);
}

}  // namespace verbena::sim
