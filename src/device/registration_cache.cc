// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/registration_cache.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "device/page_allocation.h"

namespace verbena {

namespace {

std::uintptr_t begin_of(std::span<const std::byte> memory) {
  return reinterpret_cast<std::uintptr_t>(memory.data());
}
std::uintptr_t end_of(std::span<const std::byte> memory) { return begin_of(memory) + memory.size(); }

}  // namespace

struct CachedRegion {
  MemoryRegion region;
  std::size_t users = 0;
  bool kept = true;  // found by others; false once forgotten
  std::list<std::shared_ptr<CachedRegion>>::iterator unused{};  // where it stands when it has no user
};

class RegistrationCacheCore : public std::enable_shared_from_this<RegistrationCacheCore> {
 public:
  using Region = std::shared_ptr<CachedRegion>;

  RegistrationCacheCore(ProtectionDomain& domain, const RegistrationCacheOptions& options)
      : domain_(domain), options_(options) {}

  Result<Registration> acquire(std::span<std::byte> memory);
  void release(const Region& region);
  void forget(std::span<std::byte> memory);
  void close();
  RegistrationCache::Statistics statistics() const;

 private:
  Region find(std::span<std::byte> memory) const;
  Registration use(const Region& region, std::span<std::byte> memory);
  void drop(const Region& region);
  bool is_full(std::size_t more) const {
    return by_begin_.size() >= options_.max_regions || bytes_ + more > options_.max_bytes;
  }
  Result<void> make_room(std::size_t bytes, std::vector<Region>& dropped);

  ProtectionDomain& domain_;
  const RegistrationCacheOptions options_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  std::multimap<std::uintptr_t, Region> by_begin_;
  std::list<Region> unused_;  // longest unused first
  std::uint64_t bytes_ = 0;
  std::size_t longest_ = 0;  // ever
  std::uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

RegistrationCacheCore::Region RegistrationCacheCore::find(std::span<std::byte> memory) const {
  for (auto at = by_begin_.upper_bound(begin_of(memory)); at != by_begin_.begin();) {
    --at;
    if (begin_of(memory) - at->first > longest_) break;
    if (end_of(at->second->region.bytes()) >= end_of(memory)) return at->second;
  }
  return nullptr;
}

Registration RegistrationCacheCore::use(const Region& region, std::span<std::byte> memory) {
  if (region->users++ == 0 && region->unused != unused_.end()) unused_.erase(region->unused);
  region->unused = unused_.end();
  Registration out;
  out.core_ = shared_from_this();
  out.region_ = region;
  out.bytes_ = memory;
  return out;
}

// Others do not find it any more. Its memory is deregistered with the last reference, outside the lock.
void RegistrationCacheCore::drop(const Region& region) {
  const auto [first, last] = by_begin_.equal_range(begin_of(region->region.bytes()));
  by_begin_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == region; }));
  bytes_ -= region->region.size();
  region->kept = false;
  if (region->users == 0) unused_.erase(region->unused);
  region->unused = unused_.end();
}

Result<void> RegistrationCacheCore::make_room(std::size_t bytes, std::vector<Region>& dropped) {
  const std::uint64_t in_use = std::accumulate(
      unused_.begin(), unused_.end(), bytes_,
      [](std::uint64_t sum, const Region& region) { return sum - region->region.size(); });
  const bool fits = by_begin_.size() - unused_.size() < options_.max_regions && bytes <= options_.max_bytes &&
                    in_use <= options_.max_bytes - bytes;
  while (fits && is_full(bytes) && !unused_.empty()) {
    dropped.push_back(unused_.front());
    drop(dropped.back());
    ++evictions_;
  }
  if (!is_full(bytes)) return {};
  return Error(ErrorCode::ResourceExhausted,
               "register " + std::to_string(bytes) + " bytes in the cache: " + std::to_string(by_begin_.size()) +
                   " regions with " + std::to_string(bytes_) + " bytes are in use, and the limits are " +
                   std::to_string(options_.max_regions) + " and " + std::to_string(options_.max_bytes));
}

Result<Registration> RegistrationCacheCore::acquire(std::span<std::byte> memory) {
  if (memory.empty()) return Error(ErrorCode::InvalidArgument, "register memory in the cache: 0 bytes");
  if (end_of(memory) < begin_of(memory))
    return Error(ErrorCode::InvalidArgument, "register memory in the cache: address + length wraps past 2^64");
  std::vector<Region> dropped;  // goes after the lock
  const std::lock_guard guard(mutex_);
  if (const Region found = find(memory)) {
    ++hits_;
    return use(found, memory);
  }
  ++misses_;
  if (!page_allocation::is_mapped(memory))
    return Error(ErrorCode::InvalidArgument,
                 "register " + std::to_string(memory.size()) + " bytes in the cache: not all of them are mapped");
  if (auto ok = make_room(memory.size(), dropped); !ok) return ok.error();
  auto made = domain_.register_memory(memory, options_.access);
  if (!made && made.error().code() == ErrorCode::ResourceExhausted && !dropped.empty()) {
    dropped.clear();  // the device's own limit
    made = domain_.register_memory(memory, options_.access);
  }
  if (!made) return made.error();
  const auto region = std::make_shared<CachedRegion>();
  region->region = std::move(*made);
  region->unused = unused_.end();
  by_begin_.emplace(begin_of(memory), region);
  bytes_ += memory.size();
  longest_ = std::max(longest_, memory.size());
  return use(region, memory);
}

void RegistrationCacheCore::release(const Region& region) {
  Region dropped;
  const std::lock_guard guard(mutex_);
  if (--region->users != 0 || !region->kept) return;
  region->unused = unused_.insert(unused_.end(), region);
  if (!closed_) return;
  dropped = region;
  drop(region);
}

void RegistrationCacheCore::forget(std::span<std::byte> memory) {
  if (memory.empty()) return;
  std::vector<Region> touched;
  const std::uintptr_t end = end_of(memory) < begin_of(memory) ? UINTPTR_MAX : end_of(memory);
  const std::lock_guard guard(mutex_);
  for (auto at = by_begin_.lower_bound(end); at != by_begin_.begin();) {
    --at;
    if (at->first + longest_ <= begin_of(memory)) break;
    if (end_of(at->second->region.bytes()) > begin_of(memory)) touched.push_back(at->second);
  }
  for (const Region& region : touched) drop(region);
}

void RegistrationCacheCore::close() {
  std::vector<Region> dropped;
  const std::lock_guard guard(mutex_);
  closed_ = true;
  dropped.assign(unused_.begin(), unused_.end());
  for (const Region& region : dropped) drop(region);
}

RegistrationCache::Statistics RegistrationCacheCore::statistics() const {
  const std::lock_guard guard(mutex_);
  return {by_begin_.size(), bytes_, by_begin_.size() - unused_.size(), hits_, misses_, evictions_};
}

// ---- Registration.

namespace {
constexpr const char* kEmpty = "uses a Registration that is empty: released, or moved from";
}

Registration& Registration::operator=(Registration&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::move(other.core_);
  region_ = std::move(other.region_);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

ScatterGather Registration::local() const {
  VERBENA_REQUIRE(region_ != nullptr, kEmpty);
  const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(bytes_.size(), UINT32_MAX));
  return {begin_of(bytes_), length, region_->region.lkey()};
}

RemoteMemory Registration::remote() const {
  VERBENA_REQUIRE(region_ != nullptr, kEmpty);
  return {begin_of(bytes_), bytes_.size(), region_->region.rkey()};
}

void Registration::release() {
  if (region_ == nullptr) return;
  core_->release(region_);
  region_.reset();
  core_.reset();
  bytes_ = {};
}

// ---- RegistrationCache.

RegistrationCache::RegistrationCache(ProtectionDomain& domain, const RegistrationCacheOptions& options)
    : core_(std::make_shared<RegistrationCacheCore>(domain, options)) {}
RegistrationCache::RegistrationCache(RegistrationCache&& other) noexcept = default;
RegistrationCache& RegistrationCache::operator=(RegistrationCache&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->close();
  core_ = std::move(other.core_);
  return *this;
}
RegistrationCache::~RegistrationCache() {
  if (core_ != nullptr) core_->close();
}

Result<Registration> RegistrationCache::acquire(std::span<std::byte> memory) { return core_->acquire(memory); }
void RegistrationCache::forget(std::span<std::byte> memory) { core_->forget(memory); }
RegistrationCache::Statistics RegistrationCache::statistics() const { return core_->statistics(); }

}  // namespace verbena
