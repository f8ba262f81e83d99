// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace verbena {

namespace {

// Numbers of free buffers, last in first out. The head changes by exchange of number and turn together: a number that
// went and came back meanwhile has another turn.
class FreeList {
 public:
  explicit FreeList(std::uint32_t most) : next_(std::make_unique<std::atomic<std::uint32_t>[]>(most)) {}

  void push(std::uint32_t index) {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do next_[index].store(top_of(head), std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(head, following(head, index + 1), std::memory_order_release,
                                        std::memory_order_relaxed));
  }
  bool pop(std::uint32_t& index) {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    do {
      if (top_of(head) == 0) return false;
      index = top_of(head) - 1;
    } while (!head_.compare_exchange_weak(head, following(head, next_[index].load(std::memory_order_relaxed)),
                                          std::memory_order_acquire, std::memory_order_acquire));
    return true;
  }

 private:
  // The lower half: a number plus one, 0 for none.
  static std::uint32_t top_of(std::uint64_t head) { return static_cast<std::uint32_t>(head); }
  static std::uint64_t following(std::uint64_t head, std::uint32_t top) {
    return ((head >> 32) + 1) << 32 | top;
  }

  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;
};

struct SizeClass {
  explicit SizeClass(const BufferClass& what)
      : options(what),
        free(what.per_slab * what.max_slabs),
        slabs(std::make_unique<MemoryRegion[]>(what.max_slabs)) {}

  const BufferClass options;
  FreeList free;
  const std::unique_ptr<MemoryRegion[]> slabs;  // written before a number of theirs is free for the first time
  std::mutex growing;
  std::atomic<std::uint32_t> slab_count{0};
  std::atomic<std::uint32_t> in_use{0};
  std::atomic<std::uint32_t> high_water{0};
  std::atomic<std::uint64_t> dry{0};
};

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kMaxBuffers = std::uint64_t{1} << 24;  // of a class: what is kept of each is there at once
constexpr std::size_t kMaxBytes = std::size_t{1} << 31;

}  // namespace

// Lives until the pool and all of its buffers have gone.
class BufferPoolCore {
 public:
  BufferPoolCore(ProtectionDomain& domain, const BufferPoolOptions& options)
      : domain_(domain), access_(options.access) {
    for (const BufferClass& one : options.classes) classes_.push_back(std::make_unique<SizeClass>(one));
  }

  Result<Buffer> acquire(std::size_t bytes);
  void give_back(const Buffer& buffer) {
    SizeClass& c = *classes_[buffer.class_];
    c.in_use.fetch_sub(1, std::memory_order_relaxed);
    c.free.push(buffer.index_);
    drop();
  }
  void drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  std::vector<BufferClassStatistics> statistics() const;

 private:
  Result<std::uint32_t> grow(SizeClass& c);

  ProtectionDomain& domain_;
  const Access access_;
  std::vector<std::unique_ptr<SizeClass>> classes_;  // smallest first
  std::atomic<std::uint64_t> references_{1};         // the pool's, and one of each buffer that is out
};

Result<std::uint32_t> BufferPoolCore::grow(SizeClass& c) {
  const BufferClass& o = c.options;
  const std::lock_guard guard(c.growing);
  std::uint32_t index = 0;
  if (c.free.pop(index)) return index;  // another thread grew it, or gave one back
  const std::string what = "take a buffer of " + std::to_string(o.bytes) + " bytes: ";
  const std::uint32_t slab = c.slab_count.load(std::memory_order_relaxed);
  if (slab == o.max_slabs) {
    c.dry.fetch_add(1, std::memory_order_relaxed);
    return Error(ErrorCode::ResourceExhausted, what + "all " + std::to_string(o.per_slab * o.max_slabs) +
                                                   " are out; give some back, or raise max_slabs");
  }
  auto region = domain_.allocate_memory(o.bytes * o.per_slab, access_);
  if (!region) {
    c.dry.fetch_add(1, std::memory_order_relaxed);
    return Error(region.error().code(), what + region.error().context(), region.error().native(),
                 region.error().domain());
  }
  c.slabs[slab] = std::move(*region);
  c.slab_count.store(slab + 1, std::memory_order_relaxed);
  const std::uint32_t first = slab * o.per_slab;
  for (std::uint32_t i = o.per_slab; i-- > 1;) c.free.push(first + i);
  return first;
}

Result<Buffer> BufferPoolCore::acquire(std::size_t bytes) {
  std::uint32_t number = 0;
  while (number < classes_.size() && classes_[number]->options.bytes < bytes) ++number;
  if (bytes == 0 || number == classes_.size())
    return Error(ErrorCode::InvalidArgument, "take a buffer of " + std::to_string(bytes) +
                                                 " bytes: from 1 to " +
                                                 std::to_string(classes_.back()->options.bytes) + " can be had");
  SizeClass& c = *classes_[number];
  std::uint32_t index = 0;
  if (!c.free.pop(index)) {
    auto made = grow(c);
    if (!made) return made.error();
    index = *made;
  }
  references_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t now = c.in_use.fetch_add(1, std::memory_order_relaxed) + 1;
  std::uint32_t most = c.high_water.load(std::memory_order_relaxed);
  while (now > most && !c.high_water.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  const MemoryRegion& region = c.slabs[index / c.options.per_slab];
  Buffer buffer;
  buffer.core_ = this;
  buffer.data_ = region.data() + c.options.bytes * (index % c.options.per_slab);
  buffer.size_ = bytes;
  buffer.capacity_ = c.options.bytes;
  buffer.lkey_ = region.lkey();
  buffer.rkey_ = region.rkey();
  buffer.class_ = number;
  buffer.index_ = index;
  return buffer;
}

std::vector<BufferClassStatistics> BufferPoolCore::statistics() const {
  std::vector<BufferClassStatistics> all;
  for (const auto& c : classes_) {
    const BufferClass& o = c->options;
    all.push_back({o.bytes, c->slab_count.load() * o.per_slab, o.max_slabs * o.per_slab, c->in_use.load(),
                   c->high_water.load(), c->dry.load()});
  }
  return all;
}

// ---- Buffer.

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::exchange(other.core_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  lkey_ = other.lkey_;
  rkey_ = other.rkey_;
  class_ = other.class_;
  index_ = other.index_;
  return *this;
}

void Buffer::release() {
  if (core_ == nullptr) return;
  std::exchange(core_, nullptr)->give_back(*this);
  data_ = nullptr;
  size_ = capacity_ = 0;
}

// Behind it lies the next one: no key opens that.
ScatterGather Buffer::local(std::uint32_t bytes) const {
  return {reinterpret_cast<std::uintptr_t>(data_), bytes, bytes <= capacity_ ? lkey_ : LKey{}};
}

RemoteMemory Buffer::remote() const { return {reinterpret_cast<std::uintptr_t>(data_), size_, rkey_}; }

// ---- BufferPool.

Result<BufferPool> BufferPool::create(ProtectionDomain& domain, BufferPoolOptions options) {
  const std::string what = "create a buffer pool: ";
  if (options.classes.empty()) return Error(ErrorCode::InvalidArgument, what + "no class of buffers");
  for (BufferClass& one : options.classes) {
    const std::uint64_t most = std::uint64_t{one.per_slab} * one.max_slabs;
    if (one.bytes == 0 || most == 0)
      return Error(ErrorCode::InvalidArgument, what + "a class of no size or number");
    if (most > kMaxBuffers)
      return Error(ErrorCode::InvalidArgument, what + "a class of " + std::to_string(most) + " buffers, at most " +
                                                   std::to_string(kMaxBuffers) +
                                                   "; lower per_slab or max_slabs");
    if (one.bytes > kMaxBytes)
      return Error(ErrorCode::InvalidArgument, what + "buffers of " + std::to_string(one.bytes) +
                                                   " bytes, at most " + std::to_string(kMaxBytes));
    one.bytes = (one.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::sort(options.classes.begin(), options.classes.end(),
            [](const BufferClass& a, const BufferClass& b) { return a.bytes < b.bytes; });
  return BufferPool{new BufferPoolCore(domain, options)};
}

BufferPool::BufferPool(BufferPool&& other) noexcept : core_(std::move(other.core_)) {}

BufferPool& BufferPool::operator=(BufferPool&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->drop();
  core_ = std::move(other.core_);
  return *this;
}

BufferPool::~BufferPool() {
  if (core_ != nullptr) core_->drop();
}

Result<Buffer> BufferPool::acquire(std::size_t bytes) { return core_->acquire(bytes); }
std::vector<BufferClassStatistics> BufferPool::statistics() const { return core_->statistics(); }

std::size_t BufferPool::in_use() const {
  std::size_t all = 0;
  for (const BufferClassStatistics& one : statistics()) all += one.in_use;
  return all;
}

}  // namespace verbena
