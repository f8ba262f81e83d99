// SPDX-License-Identifier: Apache-2.0
#include "soft/local/wake.h"

#include <gtest/gtest.h>

namespace verbena::local {
namespace {

struct alignas(64) Word {
  std::byte bytes[64] = {};
};

TEST(Wake, one_signal_for_each_sleep) {
  Word word;
  Sleeper sleeper{WakeMemory(word.bytes)};
  Waker waker{WakeMemory(word.bytes)};
  EXPECT_FALSE(waker.must_wake()) << "nobody sleeps";
  for (int i = 0; i < 3; ++i) {
    sleeper.announce();
    EXPECT_TRUE(waker.must_wake());
    EXPECT_FALSE(waker.must_wake()) << "signalled already";
    sleeper.announce();
    EXPECT_FALSE(waker.must_wake()) << "announced twice is announced once";
    sleeper.withdraw();
    sleeper.withdraw();
    EXPECT_FALSE(waker.must_wake());
  }
}

TEST(Wake, who_is_announced_anew_is_signalled_again) {
  Word word;
  Sleeper sleeper{WakeMemory(word.bytes)};
  Waker waker{WakeMemory(word.bytes)};
  for (int i = 0; i < 3; ++i) {
    sleeper.renew();
    EXPECT_TRUE(waker.must_wake());
    EXPECT_FALSE(waker.must_wake());
  }
}

TEST(Wake, who_is_to_be_woken_is_said) {
  Word word;
  Sleeper sleeper{WakeMemory(word.bytes)};
  Waker waker{WakeMemory(word.bytes)};
  for (int i = 0; i < 3; ++i) {
    sleeper.renew_unwatched();
    EXPECT_TRUE(waker.must_wake());
    EXPECT_TRUE(waker.is_unwatched());
    EXPECT_FALSE(waker.must_wake());
    sleeper.announce();
    EXPECT_FALSE(waker.must_wake()) << "announced already";
    sleeper.renew();
    EXPECT_TRUE(waker.must_wake());
    EXPECT_FALSE(waker.is_unwatched());
    sleeper.withdraw();
    EXPECT_FALSE(waker.must_wake());
  }
}

TEST(Wake, each_of_several_wakers_signals) {
  Word word;
  Sleeper sleeper{WakeMemory(word.bytes)};
  Waker first{WakeMemory(word.bytes)}, second{WakeMemory(word.bytes)};
  sleeper.announce();
  EXPECT_TRUE(first.must_wake());
  EXPECT_TRUE(second.must_wake());
}

}  // namespace
}  // namespace verbena::local
