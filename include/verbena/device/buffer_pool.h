// SPDX-License-Identifier: Apache-2.0
// Registered buffers that are taken, filled, sent and given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"
#include "verbena/device/memory_region.h"
#include "verbena/device/protection_domain.h"

namespace verbena {

class BufferPoolCore;

// Buffers of one size. They are made a slab at a time, each slab one registration.
struct BufferClass {
  std::size_t bytes = 4096;       // rounded up to a multiple of 64
  std::uint32_t per_slab = 64;    // buffers
  std::uint32_t max_slabs = 16;   // the pool grows no further
};

struct BufferPoolOptions {
  std::vector<BufferClass> classes{{512, 256, 16}, {4096, 64, 16}, {65536, 16, 16}};
  Access access = Access::LocalWrite;  // what peers may do with the buffers too: they hold what earlier users left
};

// A registered buffer of a pool; empty after it was moved from or released. It goes back by itself, from any thread.
//
// It may not go back while a request names it: keep it until the operation is done.
// Lifetime: it may outlive its pool, not the device. Threads: one at a time; going back from any.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { release(); }

  // As many as were asked for. Zero when the buffer is used for the first time, else what its last user left.
  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return core_ == nullptr; }
  // All of it, or its first `bytes`, for a local request, which ends as LocalProtectionError with more than capacity().
  ScatterGather local() const { return local(static_cast<std::uint32_t>(size_)); }
  ScatterGather local(std::uint32_t bytes) const;
  // All of it, for a peer, as far as BufferPoolOptions::access goes.
  RemoteMemory remote() const;
  // Gives it back now.
  void release();

 private:
  friend class BufferPoolCore;
  BufferPoolCore* core_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
  LKey lkey_;
  RKey rkey_;
  std::uint32_t class_ = 0, index_ = 0;
};

// What became of one class so far.
struct BufferClassStatistics {
  std::size_t bytes = 0;         // of a buffer
  std::uint32_t made = 0;        // buffers there are
  std::uint32_t limit = 0;       // and may be
  std::uint32_t in_use = 0;      // taken and not given back: at the end of a program, its leaks
  std::uint32_t high_water = 0;  // most in use at once
  std::uint64_t dry = 0;         // times there was none
};

// Registered memory in buffers of several sizes. Taking one and giving it back take no lock, whatever threads do it;
// only growing does.
//
// Lifetime: the protection domain stays where it is and outlives the pool and every buffer of it, as the device does. A
// pool may be destroyed while buffers are out: they stay good, and the memory goes when the last one has come back.
// Threads: any.
class BufferPool {
 public:
  // No buffer is allocated yet. Errors: InvalidArgument (no class, or one of no size or number, of over 2^24 buffers or
  // of over 2^31 bytes each).
  static Result<BufferPool> create(ProtectionDomain& domain, BufferPoolOptions options = {});
  BufferPool(BufferPool&& other) noexcept;
  BufferPool& operator=(BufferPool&& other) noexcept;
  ~BufferPool();

  // A buffer of at least that many bytes, of the smallest class that fits. Errors: InvalidArgument (0 bytes, or more
  // than the largest class has), ResourceExhausted (all of that class are out, or the device takes no more memory).
  Result<Buffer> acquire(std::size_t bytes);

  // One entry a class, smallest first.
  std::vector<BufferClassStatistics> statistics() const;
  // Of all classes.
  std::size_t in_use() const;

 private:
  explicit BufferPool(BufferPoolCore* core) : core_(core) {}
  detail::Inner<BufferPoolCore*, "BufferPool"> core_;
};

}  // namespace verbena
