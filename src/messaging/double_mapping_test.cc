// SPDX-License-Identifier: Apache-2.0
#include "messaging/double_mapping.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace verbena::messaging {
namespace {

constexpr std::size_t kBytes = 64 * 1024;

TEST(DoubleMapping, what_is_written_in_one_half_stands_in_the_other) {
  auto mapping = DoubleMapping::create(kBytes, 128);
  ASSERT_TRUE(mapping) << mapping.error().to_string();
  const auto bytes = mapping->bytes();
  ASSERT_GE(bytes.size(), 2 * kBytes + 128);
  for (const std::byte b : bytes) ASSERT_EQ(b, std::byte{0});
  std::memset(bytes.data() + kBytes - 8, 1, 16);
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(bytes[7], std::byte{1});
  EXPECT_EQ(bytes[8], std::byte{0});
  EXPECT_EQ(bytes[2 * kBytes - 1], std::byte{1});
  bytes[3] = std::byte{7};
  EXPECT_EQ(bytes[kBytes + 3], std::byte{7});
  std::memset(bytes.data() + 2 * kBytes, 9, 128);
  EXPECT_EQ(bytes[8], std::byte{0}) << "what is behind both is its own";
}

TEST(DoubleMapping, takes_whole_pages_only) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, kBytes + 1}) {
    const auto mapping = DoubleMapping::create(bytes, 0);
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.error().code(), ErrorCode::InvalidArgument);
    EXPECT_NE(mapping.error().context().find("whole pages"), std::string::npos);
  }
}

TEST(DoubleMapping, says_why_the_system_refuses) {
  EXPECT_EQ(DoubleMapping::create(std::size_t{1} << 62, 0).error().code(), ErrorCode::ResourceExhausted);
  // In a process of its own: the limit is for all of it.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto mapping = DoubleMapping::create(kBytes, 0);
    ::_exit(!mapping && mapping.error().context().find("memfd_create") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(DoubleMapping, moves_and_goes_once) {
  auto first = DoubleMapping::create(kBytes, 0);
  ASSERT_TRUE(first);
  DoubleMapping second = std::move(*first);
  EXPECT_TRUE(first->bytes().empty());
  second.bytes()[0] = std::byte{1};
  DoubleMapping third;
  third = std::move(second);
  EXPECT_EQ(third.bytes()[kBytes], std::byte{1});
}

}  // namespace
}  // namespace verbena::messaging
