// SPDX-License-Identifier: Apache-2.0
#include "base/file_size.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace verbena {
namespace {

TEST(FileSize, the_limit_of_the_process_is_an_error_and_no_signal) {
  const int file = ::memfd_create("verbena-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  errno = 0;
  EXPECT_FALSE(set_file_size(file, 4097));
  EXPECT_EQ(errno, EFBIG);
  EXPECT_TRUE(set_file_size(file, 4096));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(set_file_size(file, 4097));
  struct stat about {};
  EXPECT_EQ(::fstat(file, &about), 0);
  EXPECT_EQ(about.st_size, 4097);
  ::close(file);
}

}  // namespace
}  // namespace verbena
