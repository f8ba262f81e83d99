// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/region_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "base/fault_guard.h"
#include "base/holdings.h"

namespace verbena::soft::local {

namespace {

// Its size, when that is final; 0: it is no such file.
std::uint64_t sealed_size(int file) {
  struct stat about {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
    return 0;
  return about.st_size < 0 ? 0 : static_cast<std::uint64_t>(about.st_size);
}

}  // namespace

RegionMapping::~RegionMapping() {
  if (base_ != nullptr) holdings::unmap(base_, bytes_);
}

Result<RegionMapping> RegionMapping::map(Descriptor file, std::uint64_t length, bool writable) {
  const std::uint64_t size = sealed_size(file.get());
  if (size == 0 || size < length)
    return Error{ErrorCode::ProtocolError,
                 "a region of " + std::to_string(length) + " bytes from a local peer, in a file of " +
                     std::to_string(size) + " bytes that keeps its size; it was not mapped"};
  void* const base =
      holdings::map_apart(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.get());
  if (base == MAP_FAILED) return Error::from_errno(errno, "mmap of a local peer's region");
  return RegionMapping(static_cast<std::byte*>(base), size);
}

Descriptor read_only(int file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// A private mapping of the same file shows the same bytes, and keeps what is stored from then on to itself; a page that
// was stored to is ours alone. Adding nothing to a byte is such a store. It is made elsewhere, where it may fail, and
// moved into its place at once for all threads.
bool renew_pages(std::byte* base, int file) {
  const std::uint64_t size = sealed_size(file);
  if (size == 0) return false;
  void* const fresh = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (fresh == MAP_FAILED) return false;
  if (::madvise(fresh, size, MADV_DONTFORK) != 0 ||
      ::mremap(fresh, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, base) == MAP_FAILED) {
    ::munmap(fresh, size);
    return false;
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto touch_all = [base, size, page] {
    // Of what it knows to be nothing a compiler makes a load (clang does), or less.
    volatile std::uint8_t nothing = 0;
    for (std::uint64_t at = 0; at < size; at += page)
      std::atomic_ref(reinterpret_cast<std::uint8_t&>(base[at])).fetch_add(nothing, std::memory_order_relaxed);
  };
  return fault_guard::run(touch_all);
}

}  // namespace verbena::soft::local
