// SPDX-License-Identifier: Apache-2.0
// Registered memory: what a device may move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "verbena/base/verbs.h"
#include "verbena/device/remote_memory.h"

namespace verbena {

namespace provider {
class Context;
}

// In which pages memory stands. Large pages spare the processor and a NIC look-ups.
enum class PageKind : std::uint8_t {
  Unknown,      // the user's own memory
  Normal,       // the system's smallest
  Transparent,  // the kernel was asked for huge pages where it finds any (madvise)
  Huge,         // from the pool of huge pages (vm.nr_hugepages)
};
std::string_view to_string(PageKind kind);

// A region of this process's memory that is registered with a device: the user's own
// (ProtectionDomain::register_memory) or allocated with it (allocate_memory).
//
// Lifetime: the device and the protection domain outlive the region; user memory outlives it too. Destruction waits
// until the device does not touch the bytes any more; requests that still name them fail at either end.
// Threads: const methods from any thread. What peers write appears in the bytes without further notice: read them after
// a completion says so.
// Peers of this host map what was allocated with remote rights, where the device shares memory with them: they read and
// write it without this process, as far as access() goes, until the region or the connection ends; Access::NoDirect
// forbids it. A forked child does not have such memory. One that was moved from is empty.
class MemoryRegion {
 public:
  MemoryRegion() = default;  // empty
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  std::span<std::byte> bytes() const { return {data_, static_cast<std::size_t>(length_)}; }
  std::byte* data() const { return data_; }
  std::uint64_t size() const { return length_; }
  bool empty() const { return length_ == 0; }
  LKey lkey() const { return lkey_; }
  RKey rkey() const { return rkey_; }
  Access access() const { return access_; }
  // What allocate_memory() got: regions from 2 MiB on are put into huge pages when there are any. Those that peers of
  // this host may map are Huge or Normal: huge pages that are not reserved are theirs only where the kernel's setting
  // transparent_hugepage/shmem_enabled (in /sys/kernel/mm) is always or within_size, and pages() does not know that.
  PageKind pages() const { return pages_; }

  // [offset, offset + bytes) for use in a local request. The device checks the range when the request runs:
  // LocalProtectionError when it is outside.
  ScatterGather local(std::uint64_t offset, std::uint32_t bytes) const;
  // All of it; of a region of 4 GiB and more the first 4 GiB - 1.
  ScatterGather local() const;
  // All of it, to hand to a peer. The peer may use it as far as access() goes.
  RemoteMemory remote() const;
  // [offset, offset + bytes), likewise. InvalidArgument when it is not inside.
  Result<RemoteMemory> remote(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  friend class ProtectionDomain;
  void release();

  provider::Context* context_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t length_ = 0;
  LKey lkey_;
  RKey rkey_;
  Access access_ = Access::None;
  std::size_t mapped_bytes_ = 0;  // allocated with the region; 0: the user's own memory
  PageKind pages_ = PageKind::Unknown;
  int file_ = -1;  // that holds it, where peers of this host may map it
};

}  // namespace verbena
