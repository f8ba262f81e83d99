// SPDX-License-Identifier: Apache-2.0
// The fence: regions and queue pairs work together only inside one protection domain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include "verbena/base/inner.h"
#include "verbena/device/memory_region.h"

namespace verbena {

// Memory that register_memory() takes directly: std::vector, std::array, std::span, a C array of plain values.
template <class R>
concept PlainMemory = requires(R& range) {
  std::data(range);
  std::size(range);
}
&&std::is_trivially_copyable_v<std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>> &&
    !std::is_const_v<std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>>;

// Lifetime: outlived by the device, outlives its regions and queue pairs. Threads: any.
class ProtectionDomain {
 public:
  ProtectionDomain(ProtectionDomain&& other) noexcept;
  ProtectionDomain& operator=(ProtectionDomain&& other) noexcept;
  ~ProtectionDomain();

  // Registers memory of the user's, which must outlive the region. With rights for peers LocalWrite is implied.
  // Errors: InvalidArgument (empty or wrapping range, or not all mapped), ResourceExhausted (too many regions).
  Result<MemoryRegion> register_memory(std::span<std::byte> memory, Access access = Access::All);
  template <PlainMemory R>
  Result<MemoryRegion> register_memory(R& memory, Access access = Access::All) {
    return register_memory(std::as_writable_bytes(std::span{std::data(memory), std::size(memory)}), access);
  }
  // Allocates zeroed, page-aligned memory that the region owns, and registers it. From 2 MiB on in huge pages when
  // there are any; MemoryRegion::pages() says which it became.
  // Errors: InvalidArgument (0 bytes), ResourceExhausted.
  Result<MemoryRegion> allocate_memory(std::size_t bytes, Access access = Access::All);

  // Number of the domain on its device.
  std::uint32_t id() const { return id_; }
  // For the library.
  bool is_of(const provider::Context& context) const { return context_.pointer() == &context; }

 private:
  friend class Device;
  ProtectionDomain(provider::Context& context, std::uint32_t id) : context_(&context), id_(id) {}
  Result<MemoryRegion> register_memory(std::span<std::byte> memory, Access access, int file);
  void release();

  detail::Inner<provider::Context*, "ProtectionDomain"> context_;
  std::uint32_t id_ = 0;
};

}  // namespace verbena
