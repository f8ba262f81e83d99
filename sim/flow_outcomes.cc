// SPDX-License-Identifier: Apache-2.0
// The judge of completions and memory: every request has its effect once, in order, and exactly one outcome.
#include <cstring>

#include "sim/flow.h"
#include "soft/core/queue_pair.h"

namespace verbena::sim {

namespace {

std::uint64_t load(const std::byte* from) {
  std::uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

}  // namespace

// Whether a later request may already have changed that byte of the target. `fences_count`: not past a fence.
bool Flow::changed_later(std::uint64_t number, std::uint64_t at, bool fences_count) const {
  for (std::uint64_t n = number + 1; n < operations_.end() && n <= fatal_; ++n) {
    const Operation& later = operations_[n];
    if (fences_count && has_flag(later.flags, SendFlags::Fence)) return false;
    if (later.changes_target() && later.covers(at)) return true;
  }
  return false;
}

// The request was executed: its WRITE must stand in memory, unless later ones have overwritten it (O-1, O-2).
void Flow::verify_write(const Operation& op, std::uint64_t number) {
  const std::span<const std::byte> there = places_.target.bytes(op.offset, op.length);
  const Pattern pattern(op.serial);
  if (pattern.equals(there)) return;
  for (std::uint64_t i = 0; i < op.length; ++i) {
    if (there[i] == pattern.at(i) || changed_later(number, op.offset + i, false)) continue;
    fail("memory", "a WRITE that was executed is not in memory", number);
    return;
  }
}

// Moves the image past the request.
void Flow::apply(Operation& op, std::uint64_t number) {
  if (op.place == Place::Counter) op.expected_value = lane_count_++;
  if (op.place != Place::Target || op.length == 0) return;
  std::byte* at = image_.data() + op.offset;
  if (op.is_write()) {
    Pattern(op.serial).fill({at, op.length});
    verify_write(op, number);
  } else if (op.is_read()) {
    op.expected.assign(at, at + op.length);
  } else {
    op.expected_value = load(at);
    const bool add = op.opcode == SendOpcode::FetchAndAdd;
    const bool swaps = op.expected_value == op.compare;
    const std::uint64_t value = add     ? op.expected_value + op.swap_or_add
                                : swaps ? op.swap_or_add
                                        : op.expected_value;
    std::memcpy(at, &value, 8);
  }
}

// The responder has executed everything up to and with this request.
void Flow::confirm(std::uint64_t number) {
  for (; confirmed_ <= number; ++confirmed_) {
    Operation& op = operations_[confirmed_];
    if (op.defect != Defect::None) {
      fail("defect", "a request that must fail was executed", confirmed_);
      return;
    }
    apply(op, confirmed_);
  }
}

void Flow::check_read(const Operation& op, std::uint64_t number) {
  std::uint64_t at = 0;
  const Pattern stable(0x57ab1e);
  for (std::uint32_t s = 0; s < op.segment_count; ++s) {
    const Segment& segment = op.segments[s];
    const std::span<const std::byte> got = places_.local.bytes(segment.offset, segment.length);
    if (op.place == Place::Stable && !stable.equals(got, op.offset + at)) fail("READ", "wrong data", number);
    if (op.place == Place::Target && segment.length != 0 &&
        std::memcmp(got.data(), &op.expected[at], got.size()) != 0) {
      for (std::uint64_t i = 0; i < got.size(); ++i)
        if (got[i] != op.expected[at + i] && !changed_later(number, op.offset + at + i, true))
          fail("READ", "data that was never there at its turn", number);
    }
    at += segment.length;
  }
}

void Flow::check_result(const Operation& op, std::uint64_t number) {
  for (std::uint32_t s = 0; s < op.segment_count; ++s)
    if (!buffers_.guard_intact(op.segments[s].offset, op.segments[s].length))
      fail("memory", "bytes behind a local buffer have changed", number);
  if (op.is_read()) return check_read(op, number);
  if (!op.is_atomic()) return;
  std::byte bytes[8];
  std::size_t have = 0;
  for (std::uint32_t s = 0; s < op.segment_count; ++s) {
    std::memcpy(bytes + have, places_.local.base + op.segments[s].offset, op.segments[s].length);
    have += op.segments[s].length;
  }
  const std::uint64_t original = load(bytes);
  if (op.place == Place::Target && original != op.expected_value)
    fail("atomics", "an atomic found another value than was there", number);
  if (op.place == Place::Counter &&
      SharedCells::lane_of(original, places_.lane) != (op.expected_value & 0xffff))
    fail("atomics", "an addition was lost or happened twice", number);
  if (op.place == Place::Register) {
    places_.cells->note_swap(original, op.compare, op.swap_or_add);
    last_register_ = original == op.compare ? op.swap_or_add : original;
  }
}

// The requester was told, or may conclude, that the request is done.
void Flow::succeed(std::uint64_t number) {
  const Operation& op = operations_[number];
  if (op.defect != Defect::None) fail("defect", "a request that must fail succeeded", number);
  if (op.end() > una_)
    fail("completion", "a request completes before its answers are here", number);
  if (verdict_.failed()) return;
  confirm(number);
  check_result(op, number);
  buffers_.release(op.buffers_end);
}

// Whether this error, at this request, has a cause.
bool Flow::justified(const Operation& op, std::uint64_t number, CompletionStatus status, bool broken,
                     Instant now) const {
  const QueueOptions& q = options_.queues;
  switch (status) {
    case CompletionStatus::Flushed:
      return broken || errored_;
    case CompletionStatus::RetryExceeded: {
      const std::int64_t period = std::int64_t{4096} << q.timeout;
      return (now - last_progress_).ns >= period * q.retry_count;
    }
    case CompletionStatus::RnrRetryExceeded:
      return q.rnr_retry != 7 && op.takes_receive();
    case CompletionStatus::RemoteAccessError:
      if (target_gone_ && op.place == Place::Target) return true;
      [[fallthrough]];
    default:
      return op.defect != Defect::None && status == status_of(op.defect) && number == fatal_;
  }
}

void Flow::on_send_completion(const Completion& completion, bool broken, Instant now) {
  const std::uint64_t number = completion.id & 0xffffffff;
  const bool success = completion.status == CompletionStatus::Success;
  if (number >= operations_.end() || number < next_completion_) {
    fail("exactly once", "a completion for a request that was not posted or has completed", number);
    return;
  }
  // Requests that completed in silence: successes that nobody asked to hear of.
  for (; next_completion_ != number; ++next_completion_) {
    if (operations_[next_completion_].signaled || errored_) {
      fail("exactly once", "a request never completed, or completions are out of order", next_completion_);
      return;
    }
    succeed(next_completion_);
  }
  const Operation& op = operations_[number];
  if (success) {
    if (errored_) fail("order", "success after an error", number);
    if (!op.signaled) fail("completion", "a completion that nobody asked for", number);
    if (completion.opcode != core::completion_opcode(op.opcode))
      fail("completion", "the wrong opcode", number);
    if (op.is_fetch() && completion.byte_count != op.length)
      fail("completion", "the wrong byte count", number);
    succeed(number);
  } else {
    if (!justified(op, number, completion.status, broken, now))
      fail("error", "an error without cause: " + std::string(to_string(completion.status)), number);
    if (!errored_) first_error_ = number;
    errored_ = true;
  }
  ++next_completion_;
  retire();
}

void Flow::on_received(std::uint64_t receive, const Completion& completion,
                       std::span<const std::span<const std::byte>> parts) {
  if (!consumers_.holds(receive) || receive != received_) {
    fail("receive", "a message arrived that was not sent, or twice, or out of order", kNone);
    return;
  }
  const std::uint64_t number = consumers_[receive];
  const Operation& op = operations_[number];
  if (op.end() > expected_) fail("receive", "a message is complete before its packets arrived", number);
  confirm(number);
  const bool write = op.is_write();
  if (completion.opcode != (write ? CompletionOpcode::ReceiveRdmaWithImmediate : CompletionOpcode::Receive))
    fail("receive", "the wrong opcode", number);
  if (completion.with_immediate != op.has_immediate() ||
      (op.has_immediate() && completion.immediate != op.immediate))
    fail("receive", "the wrong immediate", number);
  if (completion.byte_count != op.length) fail("receive", "the wrong byte count", number);
  std::uint64_t at = 0;
  const std::uint64_t stored = write ? 0 : op.length;
  const Pattern content(op.serial);
  for (const std::span<const std::byte> part : parts) {
    const std::uint64_t message = std::min<std::uint64_t>(part.size(), stored - at);
    if (!content.equals(part.first(message), at)) fail("receive", "the wrong content", number);
    at += message;
  }
  ++received_;
  retire();
}

}  // namespace verbena::sim
