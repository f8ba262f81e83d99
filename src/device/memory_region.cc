// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/memory_region.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/assert.h"
#include "device/page_allocation.h"
#include "provider/provider.h"
#include "verbena/device/protection_domain.h"

namespace verbena {

std::string_view to_string(PageKind kind) {
  switch (kind) {
    case PageKind::Unknown:
      return "unknown";
    case PageKind::Normal:
      return "normal";
    case PageKind::Transparent:
      return "transparent huge";
    case PageKind::Huge:
      return "huge";
  }
  return "unknown";
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept { *this = std::move(other); }

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::exchange(other.context_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  length_ = std::exchange(other.length_, 0);
  lkey_ = std::exchange(other.lkey_, LKey{});
  rkey_ = std::exchange(other.rkey_, RKey{});
  access_ = std::exchange(other.access_, Access::None);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  pages_ = std::exchange(other.pages_, PageKind::Unknown);
  file_ = std::exchange(other.file_, -1);
  return *this;
}

MemoryRegion::~MemoryRegion() { release(); }

void MemoryRegion::release() {
  if (context_ != nullptr) static_cast<void>(context_->deregister_memory(lkey_));
  page_allocation::free({data_, mapped_bytes_, pages_, file_});
  context_ = nullptr;
  mapped_bytes_ = 0;
  file_ = -1;
}

ScatterGather MemoryRegion::local(std::uint64_t offset, std::uint32_t bytes) const {
  return {reinterpret_cast<std::uintptr_t>(data_) + offset, bytes, lkey_};
}

ScatterGather MemoryRegion::local() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return local(0, static_cast<std::uint32_t>(std::min(length_, kMost)));
}

RemoteMemory MemoryRegion::remote() const {
  return {reinterpret_cast<std::uintptr_t>(data_), length_, rkey_};
}

Result<RemoteMemory> MemoryRegion::remote(std::uint64_t offset, std::uint64_t bytes) const {
  return remote().sub_range(offset, bytes);
}

ProtectionDomain::ProtectionDomain(ProtectionDomain&& other) noexcept
    : context_(std::move(other.context_)), id_(std::exchange(other.id_, 0)) {}

ProtectionDomain& ProtectionDomain::operator=(ProtectionDomain&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::move(other.context_);
  id_ = std::exchange(other.id_, 0);
  return *this;
}

ProtectionDomain::~ProtectionDomain() { release(); }

void ProtectionDomain::release() {
  if (context_ != nullptr) {
    const auto gone = context_->destroy_pd(provider::PdId{id_});
    VERBENA_REQUIRE(gone || gone.error().code() != ErrorCode::Busy,
                    "destroys a ProtectionDomain before a region, queue pair or shared receive queue of it");
  }
  context_ = nullptr;
}

Result<MemoryRegion> ProtectionDomain::register_memory(std::span<std::byte> memory, Access access) {
  if (!memory.empty() && !page_allocation::is_mapped(memory))
    return Error(ErrorCode::InvalidArgument,
                 "register memory: of its " + std::to_string(memory.size()) + " bytes some are not mapped");
  return register_memory(memory, access, -1);
}

Result<MemoryRegion> ProtectionDomain::register_memory(std::span<std::byte> memory, Access access, int file) {
  if (memory.empty()) return Error(ErrorCode::InvalidArgument, "register memory: 0 bytes");
  if ((access & (Access::RemoteWrite | Access::RemoteAtomic)) != Access::None)
    access = access | Access::LocalWrite;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto info =
      context_->register_memory(provider::PdId{id_}, memory.data(), memory.size(), address, access, file);
  if (!info) return info.error();
  MemoryRegion region;
  region.context_ = context_.pointer();
  region.data_ = memory.data();
  region.length_ = memory.size();
  region.lkey_ = info->lkey;
  region.rkey_ = info->rkey;
  region.access_ = access;
  return region;
}

Result<MemoryRegion> ProtectionDomain::allocate_memory(std::size_t bytes, Access access) {
  if (bytes == 0) return Error(ErrorCode::InvalidArgument, "allocate memory: 0 bytes");
  const bool remote = (access & (Access::RemoteRead | Access::RemoteWrite | Access::RemoteAtomic)) != Access::None;
  const bool to_share = remote && !includes(access, Access::NoDirect) && context_->shares_memory();
  const page_allocation::Pages memory =
      to_share ? page_allocation::allocate_to_share(bytes) : page_allocation::allocate(bytes);
  if (memory.data == nullptr)
    return Error(ErrorCode::ResourceExhausted,
                 "allocate memory: no room for " + std::to_string(bytes) + " bytes");
  auto region = register_memory(std::span{memory.data, bytes}, access, memory.file);
  if (!region) {
    page_allocation::free(memory);
    return region;
  }
  region->mapped_bytes_ = memory.mapped;
  region->pages_ = memory.kind;
  region->file_ = memory.file;
  return region;
}

}  // namespace verbena
