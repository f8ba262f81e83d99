// SPDX-License-Identifier: Apache-2.0
#include "soft/core/dma.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace verbena::core {
namespace {

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(seed + i * 7);
  return bytes;
}

TEST(Dma, writes_exactly_the_range_at_every_alignment_and_length) {
  alignas(8) std::array<std::byte, 192> memory;
  for (const bool publish : {false, true})
    for (std::size_t offset = 8; offset < 24; ++offset)
      for (std::size_t n = 0; n <= 144; ++n) {
        memory.fill(std::byte{0xee});
        const auto bytes = pattern(n, 1);
        EXPECT_TRUE(dma_write(memory.data() + offset, bytes, publish));
        for (std::size_t i = 0; i < memory.size(); ++i) {
          const bool inside = i >= offset && i - offset < n;
          ASSERT_EQ(memory[i], inside ? bytes[i - offset] : std::byte{0xee})
              << offset << " " << n << " " << i;
        }
      }
}

TEST(Dma, past_the_cache_too_exactly_the_range_is_written_and_all_of_it) {
  alignas(64) std::array<std::byte, 1024> memory;
  for (const std::size_t offset : {64u, 65u, 71u, 127u})
    for (std::size_t n = 0; n <= 400; n += n < 140 ? 1 : 13) {
      memory.fill(std::byte{0xee});
      const auto bytes = pattern(n, 5);
      const std::size_t cut = n / 3;
      const std::array<Piece, 2> pieces{{{bytes.data(), cut}, {bytes.data() + cut, n - cut}}};
      EXPECT_TRUE(dma_write_past_cache(memory.data() + offset, pieces));
      for (std::size_t i = 0; i < memory.size(); ++i)
        ASSERT_EQ(memory[i], i >= offset && i - offset < n ? bytes[i - offset] : std::byte{0xee})
            << offset << " " << n << " " << i;
    }
}

TEST(Dma, what_no_near_cache_holds_is_written_and_read_exactly_too) {
  constexpr std::size_t kFrom = 32 << 10, kTo = 128 << 10;  // copied line by line
  std::vector<std::byte> memory(kTo + 512), copy(kTo + 512);
  for (const std::size_t n : {kFrom - 1, kFrom, kFrom + 1, kFrom + 63, kFrom + 64, kFrom + 79, kTo, kTo + 1, kTo + 9})
    for (const std::size_t offset : {64u, 65u, 72u, 127u}) {
      for (const bool publish : {false, true}) {
        std::ranges::fill(memory, std::byte{0xee});
        std::ranges::fill(copy, std::byte{0xee});
        const auto bytes = pattern(n + 1, 3);
        ASSERT_TRUE(dma_write(memory.data() + offset, std::span(bytes).subspan(1), publish));
        ASSERT_TRUE(dma_read(copy.data() + offset, std::span(bytes).subspan(1)));
        const auto outside = [&](std::size_t i) { return i < offset || i - offset >= n; };
        for (std::size_t i = 0; i < memory.size(); ++i)
          ASSERT_TRUE(!outside(i) || (memory[i] == std::byte{0xee} && copy[i] == std::byte{0xee})) << n << " " << i;
        ASSERT_EQ(std::memcmp(memory.data() + offset, bytes.data() + 1, n), 0) << n << " " << offset;
        ASSERT_EQ(std::memcmp(copy.data() + offset, bytes.data() + 1, n), 0) << n << " " << offset;
      }
    }
}

TEST(Dma, reads_exactly_the_range) {
  const auto bytes = pattern(100, 3);
  std::vector<std::byte> copy(102, std::byte{0xee});
  EXPECT_TRUE(dma_read(copy.data() + 1, bytes));
  EXPECT_EQ(std::memcmp(copy.data() + 1, bytes.data(), 100), 0);
  EXPECT_EQ(copy.front(), std::byte{0xee});
  EXPECT_EQ(copy.back(), std::byte{0xee});
  EXPECT_TRUE(dma_read(nullptr, {}));
}

// Writes ever new messages whose bytes are all alike; a reader that sees the tail must see the rest (O-4).
void tail_promise(std::size_t size, std::size_t tail) {
  alignas(8) static std::array<std::byte, 256> memory;
  memory.fill(std::byte{0});
  constexpr int kRounds = 3000;
  std::atomic<int> go{0};
  std::thread device([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (go.load(std::memory_order_acquire) != round) std::this_thread::yield();
      const std::vector<std::byte> message(size, static_cast<std::byte>(round % 250 + 1));
      EXPECT_TRUE(dma_write(memory.data(), message, true));
    }
  });
  const std::size_t word_at = size - tail;
  for (int round = 1; round <= kRounds; ++round) {
    const auto value = static_cast<std::uint8_t>(round % 250 + 1);
    go.store(round, std::memory_order_release);
    if (tail == 8) {
      auto& word = *reinterpret_cast<std::uint64_t*>(memory.data() + word_at);
      while (std::atomic_ref(word).load(std::memory_order_acquire) != 0x0101010101010101u * value)
        std::this_thread::yield();
    } else {
      while (std::atomic_ref(memory[word_at]).load(std::memory_order_acquire) != std::byte{value})
        std::this_thread::yield();
    }
    for (std::size_t i = 0; i < word_at; ++i) ASSERT_EQ(memory[i], std::byte{value}) << round << " " << i;
  }
  device.join();
}

TEST(Dma, o4_who_sees_the_final_word_sees_everything_before_it) { tail_promise(64, 8); }
TEST(Dma, o4_who_sees_the_final_byte_of_an_odd_range_sees_everything_before_it) { tail_promise(61, 1); }

// The final word is stored whole: two messages with different words never mix.
TEST(Dma, o4_the_final_aligned_word_is_never_torn) {
  alignas(8) static std::array<std::byte, 24> memory;
  memory.fill(std::byte{0});
  std::atomic<bool> done{false};
  std::thread device([&] {
    for (int i = 0; i < 100000; ++i) {
      const std::vector<std::byte> message(24, i % 2 == 0 ? std::byte{0} : std::byte{0xff});
      EXPECT_TRUE(dma_write(memory.data(), message, true));
    }
    done = true;
  });
  while (!done) {
    const std::uint64_t seen = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.data() + 16))
                                   .load(std::memory_order_acquire);
    ASSERT_TRUE(seen == 0 || seen == ~std::uint64_t{0}) << seen;
  }
  device.join();
}

// Memory of a peer on this host, which ThreadSanitizer does not know to be the same: others write it while we read.
TEST(Dma, a_word_that_is_read_is_one_that_was_there) {
  const int file = memfd_create("word", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  const auto map = [file] { return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); };
  auto* const theirs = static_cast<std::uint64_t*>(map());
  const auto* const ours = static_cast<const std::byte*>(map());
  std::atomic<bool> done{false};
  std::thread peer([&] {
    for (int i = 0; i < 300000; ++i)
      std::atomic_ref(*theirs).store(i % 2 == 0 ? 0 : ~std::uint64_t{0}, std::memory_order_release);
    done = true;
  });
  alignas(8) std::array<std::byte, 8> copy;
  const auto is_whole = [&copy] {
    std::uint64_t word;
    std::memcpy(&word, copy.data(), 8);
    return word == 0 || word == ~std::uint64_t{0};
  };
  bool whole = true;
  while (!done) {
    whole &= dma_read(copy.data(), {ours, 8}) && is_whole();
    // The answer of a READ that is copied directly.
    whole &= dma_write(copy.data(), std::span(ours, 8), false) && is_whole();
  }
  peer.join();
  EXPECT_TRUE(whole);
  munmap(theirs, 4096);
  munmap(const_cast<std::byte*>(ours), 4096);
  close(file);
}

TEST(Dma, compare_swap_gives_the_old_value_and_swaps_only_on_a_match) {
  alignas(8) std::uint64_t word = 5;
  auto* const at = reinterpret_cast<std::byte*>(&word);
  EXPECT_EQ(dma_compare_swap(at, 4, 9), 5u);
  EXPECT_EQ(word, 5u);
  EXPECT_EQ(dma_compare_swap(at, 5, 9), 5u);
  EXPECT_EQ(word, 9u);
}

TEST(Dma, fetch_add_gives_the_old_value_and_wraps) {
  alignas(8) std::uint64_t word = ~std::uint64_t{0};
  auto* const at = reinterpret_cast<std::byte*>(&word);
  EXPECT_EQ(dma_fetch_add(at, 3), ~std::uint64_t{0});
  EXPECT_EQ(word, 2u);
}

TEST(Dma, r083_atomics_do_not_lose_updates_of_the_processor) {
  alignas(8) static std::uint64_t word;
  word = 0;
  constexpr std::uint64_t kEach = 200000;
  std::thread processor([] {
    for (std::uint64_t i = 0; i < kEach; ++i) std::atomic_ref(word).fetch_add(1);
  });
  auto* const at = reinterpret_cast<std::byte*>(&word);
  for (std::uint64_t i = 0; i < kEach; ++i) {
    if (i % 2 == 0) {
      EXPECT_TRUE(dma_fetch_add(at, 1));
      continue;
    }
    std::uint64_t expected = std::atomic_ref(word).load();
    for (std::uint64_t seen = *dma_compare_swap(at, expected, expected + 1); seen != expected;
         seen = *dma_compare_swap(at, expected, expected + 1))
      expected = seen;
  }
  processor.join();
  EXPECT_EQ(word, 2 * kEach);
}

}  // namespace
}  // namespace verbena::core
