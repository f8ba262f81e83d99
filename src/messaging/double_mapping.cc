// SPDX-License-Identifier: Apache-2.0
#include "messaging/double_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/file_size.h"
#include "base/holdings.h"

namespace verbena::messaging {

Result<DoubleMapping> DoubleMapping::create(std::size_t capacity, std::size_t extra_bytes) {
  const std::string what = "map a ring of " + std::to_string(capacity) + " bytes twice";
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (capacity == 0 || capacity % page != 0)
    return Error(ErrorCode::InvalidArgument, what + ": that is not whole pages of " + std::to_string(page));
  const std::size_t extra = (extra_bytes + page - 1) / page * page;
  if (capacity > SIZE_MAX / 4 || extra < extra_bytes || extra > SIZE_MAX / 4)
    return Error(ErrorCode::ResourceExhausted, what + ": no address space holds that");
  const int file = ::memfd_create("verbena-ring", MFD_CLOEXEC);
  if (file < 0) return Error::from_errno(errno, what + ": memfd_create");
  int failed = 0;
  if (!set_file_size(file, capacity + extra)) failed = errno;
  const std::size_t bytes = 2 * capacity + extra;
  void* const place =
      failed != 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (failed == 0 && place == MAP_FAILED) failed = errno;
  const auto map = [&](std::size_t at, std::size_t length, std::size_t offset) {
    if (failed != 0 || length == 0) return;
    void* const to = static_cast<std::byte*>(place) + at;
    // A child would share it with us.
    if (holdings::map_apart(to, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, offset) == MAP_FAILED)
      failed = errno;
  };
  map(0, capacity, 0);
  map(capacity, capacity, 0);
  map(2 * capacity, extra, capacity);
  ::close(file);
  if (failed == 0) return DoubleMapping(static_cast<std::byte*>(place), bytes);
  if (place != MAP_FAILED) holdings::unmap(place, bytes);
  return Error::from_errno(failed, what + ": mmap");
}

DoubleMapping::~DoubleMapping() {
  if (base_ != nullptr) holdings::unmap(base_, bytes_);
}

}  // namespace verbena::messaging
