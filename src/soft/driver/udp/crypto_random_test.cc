// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/crypto_random.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <set>

namespace verbena::soft::udp {
namespace {

TEST(CryptoRandom, does_not_repeat_over_several_refills) {
  CryptoRandom random;
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 5'000; ++i) EXPECT_TRUE(seen.insert(random.next_u64()).second);
}

TEST(CryptoRandom, sets_every_bit_about_half_of_the_time) {
  CryptoRandom random;
  std::array<int, 64> ones{};
  for (int i = 0; i < 4'096; ++i) {
    const std::uint64_t word = random.next_u64();
    for (unsigned bit = 0; bit < 64; ++bit) ones[bit] += static_cast<int>(word >> bit & 1);
  }
  // 4,096 throws of a coin: 2,048 and 32 to the standard deviation; ten of them either way.
  for (const int count : ones) EXPECT_NEAR(count, 2'048, 320);
}

TEST(CryptoRandom, two_sources_differ) {
  CryptoRandom one;
  CryptoRandom other;
  EXPECT_NE(one.next_u64(), other.next_u64());
}

TEST(CryptoRandom, forked_child_does_not_repeat_its_parent) {
  CryptoRandom random;
  random.next_u64();  // fills the page both would read
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t word = random.next_u64();
    ::_exit(::write(ends[1], &word, sizeof word) == sizeof word ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::uint64_t of_child = 0;
  ASSERT_EQ(::read(ends[0], &of_child, sizeof of_child), static_cast<ssize_t>(sizeof of_child));
  EXPECT_NE(of_child, random.next_u64());
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace verbena::soft::udp
