// SPDX-License-Identifier: Apache-2.0
// Send and receive queue of a queue pair: rings that application threads fill and the device empties.
// One short lock each on the posting side, but where one thread at a time posts; the device side takes none.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "verbena/base/verbs.h"

namespace verbena::core {

inline void copy_segments(ScatterGather* to, std::span<const ScatterGather> from) {
  if (from.size() == 1)  // mostly
    *to = from[0];
  else
    std::copy(from.begin(), from.end(), to);
}

// A posted send request as the device sees it. The upper half is written at post and constant until retired;
// the lower half belongs to the device.
struct SendWqe {
  std::uint64_t id = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
  RKey rkey;
  std::uint32_t length = 0;  // sum over the scatter/gather list, bytes
  std::array<std::byte, 4> immediate{};
  SendOpcode opcode = SendOpcode::Send;
  SendFlags flags = SendFlags::None;
  std::uint8_t sge_count = 0;

  bool started = false;  // a first packet was made: psn and packets are valid
  Psn first_psn;
  std::uint32_t packets = 0;  // sequence numbers it takes, at least 1; through memory: records that name its payload
  std::uint32_t bytes_before = 0;   // of the requests begun before it, modulo 2^32
  std::uint32_t trains_before = 0;  // begun before it, modulo 2^32

  bool is_read_or_atomic() const { return opcode >= SendOpcode::RdmaRead; }
  bool is_atomic() const { return opcode >= SendOpcode::CompareAndSwap; }
  Psn last_psn() const { return first_psn + (packets - 1); }
};

// Who posts.
enum class Posters : std::uint8_t { AnyThread, OneThread };  // OneThread: at a time

class SendQueue {
 public:
  explicit SendQueue(const QueuePairCapabilities& capabilities, Posters posters = Posters::AnyThread);

  // The posters' threads.
  PostResult post(std::span<const SendRequest> requests);
  // One request that takes the place `index`, and begins by `start(length)` before it is there for all to see: who
  // calls is the device's side, too. False: nothing happened, or it did not begin.
  template <class Start>
  bool post_started(std::uint32_t index, const SendRequest& request, Start start) {
    const SpinGuard guard(lock_, locks_);
    const bool is_next = posted_.load(std::memory_order_relaxed) == index;
    std::uint64_t length = 0;
    if (!is_next || index - retired() >= capacity_ || check(request, &length) != PostStatus::Ok) return false;
    if (!start(static_cast<std::uint32_t>(length))) return false;
    fill(index, request, static_cast<std::uint32_t>(length));
    at(index).started = true;
    posted_.store(index + 1, std::memory_order_release);
    return true;
  }

  // Device side: indices run freely, [retired(), posted()) are live.
  std::uint32_t posted() const { return posted_.load(std::memory_order_acquire); }
  std::uint32_t retired() const { return retired_.load(std::memory_order_relaxed); }
  // And room for another.
  bool has_one() const { return posted() - retired() == 1 && capacity_ != 1; }
  SendWqe& at(std::uint32_t index) { return wqes_[index & mask_]; }
  std::span<const ScatterGather> sges(std::uint32_t index) const {
    return {&sges_[std::size_t{index & mask_} * max_sges_], wqes_[index & mask_].sge_count};
  }
  // Payload of a request posted inline.
  std::span<const std::byte> inline_data(std::uint32_t index) const {
    if (wqes_[index & mask_].length == 0) return {};
    return {&inline_[std::size_t{index & mask_} * max_inline_], wqes_[index & mask_].length};
  }
  void retire_oldest() { retired_.store(retired() + 1, std::memory_order_release); }
  void clear() { retired_.store(posted(), std::memory_order_release); }

 private:
  PostStatus check(const SendRequest& request, std::uint64_t* length) const;
  void fill(std::uint32_t index, const SendRequest& request, std::uint32_t length);

  const std::uint32_t capacity_, mask_, max_sges_, max_inline_;
  const bool locks_;
  std::vector<SendWqe> wqes_;
  std::vector<ScatterGather> sges_;
  std::unique_ptr<std::byte[]> inline_;  // from the first post that needs it on
  std::atomic<std::uint32_t> posted_{0};
  std::atomic<std::uint32_t> retired_{0};
  SpinLock lock_;
};

// A receive request, copied out of the ring when a message takes it: nothing is read from the ring twice.
struct ReceiveWqe {
  std::uint64_t id = 0;
  std::uint64_t length = 0;  // room in all segments, bytes
  std::uint32_t sge_count = 0;
};

class ReceiveQueue {
 public:
  // Holds at least `capacity` requests; of none it takes none.
  ReceiveQueue(std::uint32_t capacity, std::uint32_t max_segments, Posters posters = Posters::AnyThread);

  // The posters' threads. `closed`, where wanted: whether close() came before, and perhaps nobody has seen these
  // requests yet.
  PostResult post(std::span<const ReceiveRequest> requests, bool* closed = nullptr);

  // Device side, from close() to clear(): whoever posts is told so, and what was posted before is seen.
  void close();
  // The next request and its segments (room for max_receive_segments); false when there is none.
  bool take(ReceiveWqe& wqe, std::span<ScatterGather> sges) {
    const std::uint32_t tail = taken_.load(std::memory_order_relaxed);
    if (tail == posted_.load(std::memory_order_acquire)) return false;
    wqe = wqes_[tail & mask_];
    copy_segments(sges.data(), {&sges_[std::size_t{tail & mask_} * max_sges_], wqe.sge_count});
    taken_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Takes back a request that no message has taken, the oldest with that id; false when there is none. Also the
  // posters' side.
  bool withdraw(std::uint64_t id);
  std::uint32_t size() const {
    return posted_.load(std::memory_order_acquire) - taken_.load(std::memory_order_relaxed);
  }
  bool empty() const { return size() == 0; }
  void clear();
  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t max_sges() const { return max_sges_; }

 private:
  const std::uint32_t capacity_, mask_, max_sges_;
  const bool locks_;
  std::vector<ReceiveWqe> wqes_;
  std::vector<ScatterGather> sges_;
  std::atomic<std::uint32_t> posted_{0};
  std::atomic<std::uint32_t> taken_{0};
  SpinLock lock_;
  std::atomic<bool> closed_{false};
};

}  // namespace verbena::core
