// SPDX-License-Identifier: Apache-2.0
// Registered memory and its keys: the only way from a key and an address to bytes (R-060 … R-067).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "base/random.h"
#include "soft/core/events.h"
#include "soft/core/planted.h"
#include "verbena/base/result.h"

namespace verbena::core {

// Whether a peer may change memory that it has these rights to.
constexpr bool lets_change(Access access) {
  return (access & (Access::RemoteWrite | Access::RemoteAtomic)) != Access::None;
}

// One registered region. Addresses in requests are [iova, iova + length); they stand for the bytes at `base`.
struct MemoryRegion {
  LKey lkey;
  RKey rkey;
  PdId pd;
  Access access = Access::None;
  std::uint64_t iova = 0;
  std::uint64_t length = 0;
  std::byte* base = nullptr;
  int file = -1;      // descriptor of a file that holds it from its beginning, the driver's affair; -1: none
  bool lent = false;  // some peer of this host was granted it
};

class MemoryTable {
 public:
  explicit MemoryTable(RandomSource& random, std::uint32_t max_regions)
      : random_(random), max_regions_(max_regions) {}

  // Keys are random and do not come back for the next 2^20 deregistrations.
  // Errors: InvalidArgument (range wraps; remote write or atomic without local write), ResourceExhausted.
  Result<MemoryRegion> register_region(PdId pd, void* base, std::uint64_t length, std::uint64_t iova,
                                       Access access, int file = -1);
  // After return no byte of the region is touched. NotFound for a key that is not a live L_Key.
  Result<void> deregister(LKey lkey);

  // The bytes [va, va + length) when `key` names a region of `pd` that covers them and grants `wanted`; else
  // nullptr.
  std::byte* find_local(LKey lkey, PdId pd, std::uint64_t va, std::uint64_t length, Access wanted) const {
    return find(by_lkey_, lkey.value(), pd, va, length, wanted);
  }
  std::byte* find_remote(RKey rkey, PdId pd, std::uint64_t va, std::uint64_t length, Access wanted) const {
    return find(by_rkey_, rkey.value(), pd, va, length, wanted);
  }

  const MemoryRegion* region(LKey lkey) const;
  MemoryRegion* remote_region(RKey rkey);
  std::size_t size() const { return by_lkey_.size(); }
  std::size_t count_of(PdId pd) const;

 private:
  // Looked up only, never iterated for effect.
  struct Table : std::unordered_map<std::uint32_t, MemoryRegion> {
    mutable const value_type* last = nullptr;  // found last: mostly asked for again
  };

  std::uint32_t fresh_key(const Table& table);
  static bool look_up(const Table& table, std::uint32_t key);
  static std::byte* find(const Table& table, std::uint32_t key, PdId pd, std::uint64_t va, std::uint64_t length,
                         Access wanted) {
    if ((table.last == nullptr || table.last->first != key) && !look_up(table, key)) return nullptr;
    const MemoryRegion& region = table.last->second;
    if (region.pd != pd || !includes(region.access, wanted)) return nullptr;
    std::uint64_t limit = region.length;
    if (planted(PlantedBug::RangeCheckOffByOne)) ++limit;
    // In subtract form: nothing here can wrap.
    if (va < region.iova || va - region.iova > limit || length > limit - (va - region.iova)) return nullptr;
    return region.base + (va - region.iova);
  }

  RandomSource& random_;
  const std::uint32_t max_regions_;
  Table by_lkey_;
  Table by_rkey_;
  std::unordered_map<std::uint32_t, std::uint8_t> quarantine_;
  std::deque<std::uint32_t> quarantine_order_;
};

}  // namespace verbena::core
