// SPDX-License-Identifier: Apache-2.0
#include "device/page_allocation.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/file_size.h"
#include "base/holdings.h"

namespace verbena::page_allocation {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

std::byte* map(std::size_t bytes, int flags, int protection = PROT_READ | PROT_WRITE) {
  void* memory = ::mmap(nullptr, bytes, protection, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// At a multiple of the huge page's size, or nothing.
std::byte* map_aligned(std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  std::byte* const raw = map(bytes + kHugePage, kAnonymous, protection);
  if (raw == nullptr) return nullptr;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  const std::size_t before = past == 0 ? 0 : kHugePage - past;
  if (before != 0) ::munmap(raw, before);
  ::munmap(raw + before + bytes, kHugePage - before);
  return raw + before;
}

std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Without free huge pages this fails here and now: they are reserved by the call.
Pages allocate_huge(std::size_t whole) {
  std::byte* const data = map(whole, kAnonymous | MAP_HUGETLB);
  return data == nullptr ? Pages{} : Pages{data, whole, PageKind::Huge, -1};
}

bool spends_too_much(int file) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(file) >= limit.rlim_cur / 2;
}

// Empty when any of it cannot be had: of huge pages, which are reserved here, that are free.
Pages map_file(std::size_t bytes, PageKind kind) {
  const unsigned pages = kind == PageKind::Huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
  auto no_fork = holdings::no_fork();
  const int file = ::memfd_create("verbena", MFD_CLOEXEC | MFD_ALLOW_SEALING | pages);
  if (file < 0) return {};
  holdings::keep_from_children(file);  // who has the file has the memory
  no_fork.unlock();
  const bool large = bytes % kHugePage == 0;
  std::byte* place = nullptr;
  if (!spends_too_much(file) && set_file_size(file, bytes) &&
      ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    place = large ? map_aligned(bytes, PROT_NONE) : map(bytes, kAnonymous, PROT_NONE);
  if (place != nullptr &&
      holdings::map_apart(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file) != MAP_FAILED)
    return {place, bytes, kind, file};
  if (place != nullptr) ::munmap(place, bytes);
  holdings::close(file);
  return {};
}

}  // namespace

Pages allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return {};
  if (bytes >= kHugePage) {
    const std::size_t whole = rounded(bytes, kHugePage);
    if (const Pages huge = allocate_huge(whole); huge.data != nullptr) return huge;
    if (std::byte* data = map_aligned(whole)) {
      const bool asked = ::madvise(data, whole, MADV_HUGEPAGE) == 0;
      return {data, whole, asked ? PageKind::Transparent : PageKind::Normal, -1};
    }
  }
  std::byte* const data = map(bytes, kAnonymous);
  return {data, data == nullptr ? 0 : bytes, PageKind::Normal, -1};
}

Pages allocate_to_share(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return {};
  if (bytes >= kHugePage)
    if (const Pages huge = map_file(rounded(bytes, kHugePage), PageKind::Huge); huge.data != nullptr) return huge;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const Pages made = map_file(rounded(bytes, bytes >= kHugePage ? kHugePage : page), PageKind::Normal);
  return made.data != nullptr ? made : allocate(bytes);
}

void free(const Pages& pages) {
  if (pages.mapped != 0) holdings::unmap(pages.data, pages.mapped);
  if (pages.file >= 0) holdings::close(pages.file);
}

bool is_mapped(std::span<const std::byte> memory) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t from = begin / page * page;
  return ::msync(reinterpret_cast<void*>(from), begin + memory.size() - from, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace verbena::page_allocation
