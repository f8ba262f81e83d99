// SPDX-License-Identifier: Apache-2.0
// Memory that stands in a file of its own, as the library allocates what peers may map.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <utility>

#include "soft/driver/descriptor.h"

namespace verbena::soft::local {

constexpr int kRegionSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

inline Descriptor memory_file(std::size_t bytes, int seals) {
  Descriptor file(::memfd_create("verbena-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

// Whether the byte can be read; asked of the kernel, as a look would end the process.
inline bool can_read(const std::byte* at) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool can = ::write(ends[1], at, 1) == 1;
  for (const int fd : ends) ::close(fd);
  return can;
}

// A forked child does not have it.
class FileMemory {
 public:
  explicit FileMemory(std::size_t bytes) : file_(memory_file(bytes, kRegionSeals)) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    EXPECT_EQ(::madvise(at, bytes, MADV_DONTFORK), 0);
    bytes_ = {static_cast<std::byte*>(at), bytes};
  }
  FileMemory(const FileMemory&) = delete;
  ~FileMemory() { ::munmap(bytes_.data(), bytes_.size()); }

  std::byte* data() const { return bytes_.data(); }
  std::span<std::byte> bytes() const { return bytes_; }
  int file() const { return file_.get(); }

 private:
  Descriptor file_;
  std::span<std::byte> bytes_;
};

}  // namespace verbena::soft::local
