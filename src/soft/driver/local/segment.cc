// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "base/assert.h"
#include "base/file_size.h"
#include "base/holdings.h"

namespace verbena::soft::local {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string of_bytes(std::uint64_t bytes) { return "shared memory of " + std::to_string(bytes) + " bytes"; }

Error refused(std::uint64_t bytes, const std::string& why) {
  return {ErrorCode::ProtocolError, of_bytes(bytes) + " from a local peer: " + why + "; it was not mapped"};
}

}  // namespace

Segment::~Segment() {
  if (!memory_.empty()) holdings::unmap(memory_.data(), memory_.size());
}

Result<Segment> Segment::create(std::uint64_t bytes) {
  VERBENA_ASSERT(bytes != 0);
  Descriptor file(::memfd_create("verbena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error::from_errno(errno, "memfd_create for " + of_bytes(bytes));
  if (!set_file_size(file.get(), bytes))
    return Error::from_errno(errno, "ftruncate of " + of_bytes(bytes));
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
    return Error::from_errno(errno, "fallocate of " + of_bytes(bytes));
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return Error::from_errno(errno, "sealing " + of_bytes(bytes));
  return map(std::move(file), bytes);
}

Result<Segment> Segment::accept(Descriptor descriptor, std::uint64_t bytes) {
  // First: what else it might be could answer the others when it likes.
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0) return refused(bytes, "the descriptor is no memfd");
  struct stat about {};
  if (::fstat(descriptor.get(), &about) != 0) return Error::from_errno(errno, "fstat of " + of_bytes(bytes));
  if ((seals & kSeals) != kSeals) return refused(bytes, "it is not sealed, and could vanish while it is used");
  // Sealed: this size is final.
  if (bytes == 0 || about.st_size < 0 || static_cast<std::uint64_t>(about.st_size) != bytes)
    return refused(bytes, "it has " + std::to_string(about.st_size) + " bytes");
  return map(std::move(descriptor), bytes);
}

Result<Segment> Segment::map(Descriptor descriptor, std::uint64_t bytes) {
  // A forked child must not speak for its parent.
  void* memory = holdings::map_apart(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                     descriptor.get());
  if (memory == MAP_FAILED) return Error::from_errno(errno, "mmap of " + of_bytes(bytes));
  Segment segment;
  segment.memory_ = {static_cast<std::byte*>(memory), bytes};
  segment.descriptor_ = std::move(descriptor);
  return segment;
}

}  // namespace verbena::soft::local
