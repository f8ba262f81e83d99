// SPDX-License-Identifier: Apache-2.0
#include "device/page_allocation.h"

#include <sys/mman.h>

#include <cstdint>

namespace verbena::page_allocation {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

std::byte* map(std::size_t bytes, int flags) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// At a multiple of the huge page's size, or nothing.
std::byte* map_aligned(std::size_t bytes) {
  std::byte* const raw = map(bytes + kHugePage, kAnonymous);
  if (raw == nullptr) return nullptr;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  const std::size_t before = past == 0 ? 0 : kHugePage - past;
  if (before != 0) ::munmap(raw, before);
  ::munmap(raw + before + bytes, kHugePage - before);
  return raw + before;
}

}  // namespace

Pages allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return {};
  if (bytes >= kHugePage) {
    const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    // Without free huge pages this fails here and now: they are reserved by the call.
    if (std::byte* data = map(whole, kAnonymous | MAP_HUGETLB)) return {data, whole, PageKind::Huge};
    if (std::byte* data = map_aligned(whole)) {
      const bool asked = ::madvise(data, whole, MADV_HUGEPAGE) == 0;
      return {data, whole, asked ? PageKind::Transparent : PageKind::Normal};
    }
  }
  std::byte* const data = map(bytes, kAnonymous);
  return {data, data == nullptr ? 0 : bytes, PageKind::Normal};
}

void free(std::byte* data, std::size_t mapped) { ::munmap(data, mapped); }

}  // namespace verbena::page_allocation
