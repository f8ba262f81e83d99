// SPDX-License-Identifier: Apache-2.0
#include "soft/core/memory_table.h"

#include "soft/core/planted.h"

namespace verbena::core {

namespace {
constexpr std::size_t kQuarantinedKeys = std::size_t{2} << 20;  // two keys per region
}

std::uint32_t MemoryTable::fresh_key(const Table& table) {
  for (;;) {
    const std::uint32_t key = random_.next_u32();
    if (key != 0 && !table.contains(key) && !quarantine_.contains(key)) return key;
  }
}

Result<MemoryRegion> MemoryTable::register_region(PdId pd, void* base, std::uint64_t length,
                                                  std::uint64_t iova, Access access, int file) {
  if (base == nullptr || length == 0)
    return Error{ErrorCode::InvalidArgument, "register memory: the range is empty"};
  if (iova + length - 1 < iova ||
      reinterpret_cast<std::uint64_t>(base) + length - 1 < reinterpret_cast<std::uint64_t>(base))
    return Error{ErrorCode::InvalidArgument, "register memory: address + length wraps past 2^64"};
  const bool remote_changes = lets_change(access);
  if (remote_changes && !includes(access, Access::LocalWrite))
    return Error{ErrorCode::InvalidArgument,
                 "register memory: remote write or atomic access needs local write too"};
  if (!includes(Access::All | Access::NoDirect, access))
    return Error{ErrorCode::InvalidArgument, "register memory: unknown access bits"};
  if (by_lkey_.size() >= max_regions_)
    return Error{ErrorCode::ResourceExhausted, "register memory: the device's limit of " +
                                                   std::to_string(max_regions_) + " regions is reached"};
  MemoryRegion region{LKey{fresh_key(by_lkey_)},
                      RKey{fresh_key(by_rkey_)},
                      pd,
                      access,
                      iova,
                      length,
                      static_cast<std::byte*>(base),
                      file};
  by_lkey_.emplace(region.lkey.value(), region);
  by_rkey_.emplace(region.rkey.value(), region);
  return region;
}

Result<void> MemoryTable::deregister(LKey lkey) {
  const auto found = by_lkey_.find(lkey.value());
  if (found == by_lkey_.end())
    return Error{ErrorCode::NotFound,
                 "deregister memory: no region has L_Key " + std::to_string(lkey.value())};
  for (const std::uint32_t key : {found->second.lkey.value(), found->second.rkey.value()}) {
    quarantine_[key] = 1;
    quarantine_order_.push_back(key);
  }
  while (quarantine_order_.size() > kQuarantinedKeys) {
    quarantine_.erase(quarantine_order_.front());
    quarantine_order_.pop_front();
  }
  by_lkey_.last = by_rkey_.last = nullptr;
  if (!planted(PlantedBug::StaleKeyAccepted)) by_rkey_.erase(found->second.rkey.value());
  by_lkey_.erase(found);
  return {};
}

bool MemoryTable::look_up(const Table& table, std::uint32_t key) {
  const auto found = table.find(key);
  if (found == table.end()) return false;
  table.last = &*found;
  return true;
}

const MemoryRegion* MemoryTable::region(LKey lkey) const {
  const auto found = by_lkey_.find(lkey.value());
  return found == by_lkey_.end() ? nullptr : &found->second;
}

MemoryRegion* MemoryTable::remote_region(RKey rkey) {
  const auto found = by_rkey_.find(rkey.value());
  return found == by_rkey_.end() ? nullptr : &found->second;
}

std::size_t MemoryTable::count_of(PdId pd) const {
  std::size_t n = 0;
  for (const auto& [key, region] : by_lkey_)
    if (region.pd == pd) ++n;
  return n;
}

}  // namespace verbena::core
