// SPDX-License-Identifier: Apache-2.0
#include "base/fault_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/shared_word.h"

namespace verbena {
namespace {

constexpr std::size_t kPage = 4096;

std::byte* map(std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* memory = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(memory);
}

bool guarded_copy(std::byte* to, const std::byte* from, std::size_t n) {
  return fault_guard::run([=] { std::memcpy(to, from, n); });
}

TEST(FaultGuard, memory_that_is_there_is_copied) {
  fault_guard::install();
  EXPECT_TRUE(fault_guard::is_installed());
  std::vector<std::byte> from(100, std::byte{7}), to(100);
  EXPECT_TRUE(guarded_copy(to.data(), from.data(), 100));
  EXPECT_EQ(to, from);
}

TEST(FaultGuard, memory_that_was_unmapped_is_told_again_and_again) {
  fault_guard::install();
  std::byte* gone = map(2 * kPage);
  ::munmap(gone + kPage, kPage);
  std::vector<std::byte> bytes(2 * kPage, std::byte{7});
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(guarded_copy(gone, bytes.data(), 2 * kPage));
    EXPECT_FALSE(guarded_copy(bytes.data(), gone, 2 * kPage));
  }
  EXPECT_TRUE(guarded_copy(gone, bytes.data(), kPage));
  ::munmap(gone, kPage);
}

TEST(FaultGuard, a_guard_inside_a_guard_ends_alone_and_the_outer_one_still_holds) {
  fault_guard::install();
  std::byte* gone = map(kPage);
  ::munmap(gone, kPage);
  std::byte some[8] = {};
  bool inner_ended = false, went_on = false, ended = false;
  const bool whole = fault_guard::run([&] {
    inner_ended = guarded_copy(some, some, 0) && !guarded_copy(gone, some, 8);
    went_on = true;
    std::memcpy(gone, some, 8);
    ended = true;
  });
  EXPECT_FALSE(whole);
  EXPECT_TRUE(inner_ended);
  EXPECT_TRUE(went_on);
  EXPECT_FALSE(ended);
}

TEST(FaultGuard, a_word_is_copied_or_told_inside_a_guard_as_outside) {
  fault_guard::install();
  std::byte* gone = map(kPage);
  ::munmap(gone, kPage);
  std::byte from[8] = {}, to[8] = {};
  from[7] = std::byte{7};
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(fault_guard::copy_word(gone, from));
    EXPECT_FALSE(fault_guard::copy_word(to, gone));
    std::uint64_t value = 1;
    EXPECT_FALSE(try_load_shared(gone, value));
    EXPECT_FALSE(try_store_shared(gone, value));
  }
  alignas(8) std::byte shared[8] = {};
  std::uint64_t loaded = 0;
  EXPECT_TRUE(try_store_shared(shared, 0x0123456789abcdef));
  EXPECT_TRUE(try_load_shared(shared, loaded));
  EXPECT_EQ(loaded, 0x0123456789abcdefu);
  EXPECT_EQ(to[7], std::byte{0});
  bool told = false, went_on = false;
  EXPECT_TRUE(fault_guard::run([&] {
    told = !fault_guard::copy_word(to, gone);
    went_on = fault_guard::copy_word(to, from);
  }));
  EXPECT_TRUE(told);
  EXPECT_TRUE(went_on);
  EXPECT_EQ(to[7], std::byte{7});
}

// What a compiler got wrong: a word that is loaded on one path, and one that nobody looks at.
[[gnu::noinline]] std::uint64_t word_or(const std::byte* at, std::uint64_t otherwise, bool wanted) {
  std::uint64_t value = otherwise;
  if (wanted && !try_load_shared(at, value)) value = otherwise + 7;
  return value * 3;
}
[[gnu::noinline]] bool is_there(const std::byte* at) {
  std::uint64_t unused = 0;
  return try_load_shared(at, unused);
}

TEST(FaultGuard, a_word_that_is_loaded_is_what_stands_there_and_one_that_nobody_looks_at_is_told_too) {
  fault_guard::install();
  alignas(8) std::byte word[8] = {std::byte{5}};
  EXPECT_EQ(word_or(word, 1, true), 15u);
  EXPECT_EQ(word_or(word, 1, false), 3u);
  EXPECT_TRUE(is_there(word));
  std::byte* gone = map(kPage);
  ::munmap(gone, kPage);
  EXPECT_EQ(word_or(gone, 1, true), 24u);
  EXPECT_FALSE(is_there(gone));
}

TEST(FaultGuard, memory_without_the_right_and_beyond_the_end_of_a_file_is_told) {
  fault_guard::install();
  std::byte* fixed = map(kPage, PROT_READ);
  std::byte some[8] = {};
  EXPECT_TRUE(guarded_copy(some, fixed, 8));
  EXPECT_FALSE(guarded_copy(fixed, some, 8));
  ::munmap(fixed, kPage);
  const int file = ::memfd_create("short", 0);
  void* beyond = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(beyond, MAP_FAILED);
  EXPECT_FALSE(guarded_copy(some, static_cast<std::byte*>(beyond), 8));  // SIGBUS
  ::munmap(beyond, kPage);
  ::close(file);
}

TEST(FaultGuard, threads_fault_each_for_itself) {
  fault_guard::install();
  std::byte* gone = map(kPage, PROT_NONE);  // threads bring memory, which must not come to stand there
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([gone, t] {
      std::byte from[64] = {}, to[64];
      for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE(guarded_copy(to, from, 64));
        EXPECT_EQ(t % 2 != 0 || !guarded_copy(to, gone, 64), true);
      }
    });
  for (std::thread& thread : threads) thread.join();
  ::munmap(gone, kPage);
}

// In a child, so that the handlers of before are known.
TEST(FaultGuardDeathTest, a_fault_outside_reaches_the_handler_of_before) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        struct sigaction mine {};
        mine.sa_handler = [](int) { ::_exit(42); };
        ::sigaction(SIGSEGV, &mine, nullptr);
        fault_guard::install();
        std::byte* gone = map(kPage);
        ::munmap(gone, kPage);
        std::byte byte{};
        if (guarded_copy(&byte, gone, 1)) ::_exit(1);
        *static_cast<volatile std::byte*>(gone) = std::byte{1};
      },
      ::testing::ExitedWithCode(42), "");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
TEST(FaultGuardDeathTest, a_fault_outside_ends_the_process_as_ever) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        fault_guard::install();
        std::byte* gone = map(kPage);
        ::munmap(gone, kPage);
        *static_cast<volatile std::byte*>(gone) = std::byte{1};
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        fault_guard::install();
        ::raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(FaultGuardDeathTest, a_signal_that_was_ignored_stays_ignored_and_a_fault_is_none) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_IGN);
        fault_guard::install();
        ::raise(SIGBUS);
        ::_exit(42);
      },
      ::testing::ExitedWithCode(42), "");
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, SIG_IGN);
        fault_guard::install();
        std::byte* gone = map(kPage);
        ::munmap(gone, kPage);
        *static_cast<volatile std::byte*>(gone) = std::byte{1};
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}
#endif

}  // namespace
}  // namespace verbena
