// SPDX-License-Identifier: Apache-2.0
#include "base/file_size.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace verbena {

bool set_file_size(int file, std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  return ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
}

}  // namespace verbena
