// SPDX-License-Identifier: Apache-2.0
#include "soft/core/work_queues.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/fence.h"

namespace verbena::core {

namespace {

constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;

std::uint64_t total_length(std::span<const ScatterGather> sges) {
  std::uint64_t sum = 0;
  for (const ScatterGather& sge : sges) sum += sge.length;
  return sum;
}

// The segments' bytes, which are the caller's own memory, addressed directly: inline data needs no
// registration.
void copy_inline(std::byte* to, std::span<const ScatterGather> sges) {
  for (const ScatterGather& sge : sges) {
    if (sge.length == 0) continue;
    const auto* const from = reinterpret_cast<const std::byte*>(sge.address);
    sge.length == 8 ? std::memcpy(to, from, 8) : std::memcpy(to, from, sge.length);  // mostly 8
    to += sge.length;
  }
}

}  // namespace

SendQueue::SendQueue(const QueuePairCapabilities& capabilities, Posters posters)
    : capacity_(std::bit_ceil(std::max(capabilities.max_send_requests, 1u))),
      mask_(capacity_ - 1),
      max_sges_(capabilities.max_send_segments),
      max_inline_(capabilities.max_inline_bytes),
      locks_(posters == Posters::AnyThread),
      wqes_(capacity_),
      sges_(std::size_t{capacity_} * std::max(max_sges_, 1u)) {}

PostStatus SendQueue::check(const SendRequest& request, std::uint64_t* length) const {
  if (request.opcode > SendOpcode::FetchAndAdd) return PostStatus::InvalidRequest;
  if (request.local.size() > max_sges_) return PostStatus::TooManySegments;
  *length = total_length(request.local);
  if (*length > kMaxMessageBytes) return PostStatus::InvalidRequest;
  if (has_flag(request.flags, SendFlags::Inline)) {
    if (request.opcode >= SendOpcode::RdmaRead) return PostStatus::InvalidRequest;
    if (*length > max_inline_) return PostStatus::InlineTooLong;
  }
  if (request.opcode >= SendOpcode::CompareAndSwap && *length != 8) return PostStatus::InvalidRequest;
  return PostStatus::Ok;
}

void SendQueue::fill(std::uint32_t index, const SendRequest& request, std::uint32_t length) {
  SendWqe& wqe = wqes_[index & mask_];
  // One by one: what is put together elsewhere could be copied only when all its parts have reached the cache.
  wqe.id = request.id;
  wqe.remote_address = request.remote_address;
  wqe.compare = request.compare;
  wqe.swap_or_add = request.swap_or_add;
  wqe.rkey = request.rkey;
  wqe.length = length;
  wqe.immediate = request.immediate;
  wqe.opcode = request.opcode;
  wqe.flags = request.flags;
  wqe.sge_count = static_cast<std::uint8_t>(request.local.size());
  wqe.started = false;
  wqe.first_psn = {};
  wqe.packets = 0;
  wqe.bytes_before = 0;
  if (has_flag(request.flags, SendFlags::Inline)) {
    if (length == 0) return;
    if (!inline_) inline_ = std::make_unique<std::byte[]>(std::size_t{capacity_} * max_inline_);
    copy_inline(&inline_[std::size_t{index & mask_} * max_inline_], request.local);
    return;
  }
  copy_segments(&sges_[std::size_t{index & mask_} * max_sges_], request.local);
}

PostResult SendQueue::post(std::span<const SendRequest> requests) {
  const SpinGuard guard(lock_, locks_);
  std::uint32_t head = posted_.load(std::memory_order_relaxed);
  const std::uint32_t limit = retired_.load(std::memory_order_acquire) + capacity_;
  PostResult result;
  for (const SendRequest& request : requests) {
    std::uint64_t length = 0;
    result.status = head == limit ? PostStatus::QueueFull : check(request, &length);
    if (result.status != PostStatus::Ok) break;
    fill(head++, request, static_cast<std::uint32_t>(length));
    ++result.posted;
  }
  posted_.store(head, std::memory_order_release);  // those before a refused one stay posted
  return result;
}

ReceiveQueue::ReceiveQueue(std::uint32_t capacity, std::uint32_t max_segments, Posters posters)
    : capacity_(capacity == 0 ? 0 : std::bit_ceil(capacity)),
      mask_(capacity_ == 0 ? 0 : capacity_ - 1),
      max_sges_(max_segments),
      locks_(posters == Posters::AnyThread || !has_heavy_fences(Reach::ThisProcess)),
      wqes_(capacity_),
      sges_(std::size_t{capacity_} * std::max(max_sges_, 1u)) {}

// Either who posts sees that it is closed, or the device sees what was posted. Where there is no lock the fence is for
// both: it comes once.
void ReceiveQueue::close() {
  const SpinGuard guard(lock_, locks_);
  closed_.store(true, std::memory_order_relaxed);
  if (!locks_) heavy_fence(Reach::ThisProcess);
}

void ReceiveQueue::clear() {
  const SpinGuard guard(lock_, locks_);
  closed_.store(false, std::memory_order_relaxed);
  taken_.store(posted_.load(std::memory_order_relaxed), std::memory_order_release);
}

PostResult ReceiveQueue::post(std::span<const ReceiveRequest> requests, bool* closed) {
  const SpinGuard guard(lock_, locks_);
  std::uint32_t head = posted_.load(std::memory_order_relaxed);
  const std::uint32_t limit = taken_.load(std::memory_order_acquire) + capacity_;
  PostResult result;
  for (const ReceiveRequest& request : requests) {
    if (head == limit) result.status = PostStatus::QueueFull;
    if (request.local.size() > max_sges_) result.status = PostStatus::TooManySegments;
    if (result.status != PostStatus::Ok) break;
    wqes_[head & mask_] = {request.id, total_length(request.local),
                           static_cast<std::uint32_t>(request.local.size())};
    copy_segments(&sges_[std::size_t{head & mask_} * max_sges_], request.local);
    ++head;
    ++result.posted;
  }
  posted_.store(head, std::memory_order_release);
  light_fence();  // see close()
  if (closed != nullptr) *closed = closed_.load(std::memory_order_relaxed);
  return result;
}

// Nobody takes meanwhile, for that is the device's side too; those who post wait. The shorter side closes up, so that a
// queue is emptied from its old end in one walk.
bool ReceiveQueue::withdraw(std::uint64_t id) {
  const SpinGuard guard(lock_, locks_);
  const std::uint32_t head = posted_.load(std::memory_order_relaxed);
  const std::uint32_t tail = taken_.load(std::memory_order_relaxed);
  std::uint32_t at = tail;
  while (at != head && wqes_[at & mask_].id != id) ++at;
  if (at == head) return false;
  const auto move = [this](std::uint32_t from, std::uint32_t to) {
    wqes_[to & mask_] = wqes_[from & mask_];
    std::copy_n(sges_.begin() + std::ptrdiff_t{from & mask_} * max_sges_, max_sges_,
                sges_.begin() + std::ptrdiff_t{to & mask_} * max_sges_);
  };
  if (at - tail < head - at) {
    for (; at != tail; --at) move(at - 1, at);
    taken_.store(tail + 1, std::memory_order_release);
    return true;
  }
  for (; at + 1 != head; ++at) move(at + 1, at);
  posted_.store(head - 1, std::memory_order_release);
  return true;
}

}  // namespace verbena::core
