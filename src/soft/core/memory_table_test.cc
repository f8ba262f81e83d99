// SPDX-License-Identifier: Apache-2.0
#include "soft/core/memory_table.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace verbena::core {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();
constexpr PdId kPd{1};
constexpr PdId kOther{2};

// Says what it is told to, then counts on.
class Scripted final : public RandomSource {
 public:
  explicit Scripted(std::vector<std::uint32_t> values) : values_(std::move(values)) {}
  std::uint64_t next_u64() override {
    const std::uint32_t value =
        at_ < values_.size() ? values_[at_] : static_cast<std::uint32_t>(0x70000000 + at_);
    ++at_;
    return static_cast<std::uint64_t>(value) << 32;
  }
  std::size_t asked() const { return at_; }

 private:
  std::vector<std::uint32_t> values_;
  std::size_t at_ = 0;
};

// An address that is never touched.
void* somewhere(std::uint64_t address) { return reinterpret_cast<void*>(address); }

TEST(MemoryTable, turns_key_and_address_into_the_byte) {
  SeededRandom random(1);
  MemoryTable table(random, 8);
  std::array<std::byte, 100> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 100, 0x5000, Access::All);
  ASSERT_TRUE(region);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0x5000, 100, Access::RemoteWrite), bytes.data());
  EXPECT_EQ(table.find_local(region->lkey, kPd, 0x5000 + 99, 1, Access::LocalWrite), bytes.data() + 99);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0x4fff, 1, Access::RemoteRead), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0x5000 + 99, 2, Access::RemoteRead), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0x5000 + 100, 1, Access::RemoteRead), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0x5000, 101, Access::RemoteRead), nullptr);
}

TEST(MemoryTable, local_and_remote_keys_are_not_interchangeable) {
  SeededRandom random(2);
  MemoryTable table(random, 8);
  std::array<std::byte, 8> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 8, 0, Access::All);
  ASSERT_TRUE(region);
  EXPECT_NE(region->lkey.value(), region->rkey.value());
  EXPECT_EQ(table.find_remote(RKey{region->lkey.value()}, kPd, 0, 8, Access::None), nullptr);
  EXPECT_EQ(table.find_local(LKey{region->rkey.value()}, kPd, 0, 8, Access::None), nullptr);
}

TEST(MemoryTable, region_of_another_domain_does_not_exist) {
  SeededRandom random(3);
  MemoryTable table(random, 8);
  std::array<std::byte, 8> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 8, 0, Access::All);
  ASSERT_TRUE(region);
  EXPECT_EQ(table.find_remote(region->rkey, kOther, 0, 8, Access::None), nullptr);
  EXPECT_EQ(table.find_local(region->lkey, kOther, 0, 8, Access::None), nullptr);
  EXPECT_EQ(table.count_of(kPd), 1u);
  EXPECT_EQ(table.count_of(kOther), 0u);
}

TEST(MemoryTable, every_set_of_rights_grants_its_subsets_and_nothing_else) {
  SeededRandom random(4);
  std::array<std::byte, 8> bytes;
  for (std::uint32_t have = 0; have <= 0xf; ++have) {
    MemoryTable table(random, 8);
    const auto region = table.register_region(kPd, bytes.data(), 8, 0, static_cast<Access>(have));
    const bool changes = (have & 0xa) != 0;
    ASSERT_EQ(region.has_value(), !changes || (have & 1) != 0) << have;
    if (!region) continue;
    for (std::uint32_t wanted = 0; wanted <= 0xf; ++wanted)
      EXPECT_EQ(table.find_remote(region->rkey, kPd, 0, 8, static_cast<Access>(wanted)) != nullptr,
                (wanted & ~have) == 0);
  }
}

TEST(MemoryTable, refuses_what_cannot_be_a_region) {
  SeededRandom random(5);
  MemoryTable table(random, 2);
  std::array<std::byte, 16> bytes;
  const auto code_of = [&](void* base, std::uint64_t length, std::uint64_t iova, Access access) {
    const auto result = table.register_region(kPd, base, length, iova, access);
    return result ? ErrorCode::Internal : result.error().code();
  };
  EXPECT_EQ(code_of(nullptr, 16, 0, Access::None), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of(bytes.data(), 0, 0, Access::None), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of(bytes.data(), 16, kTop - 14, Access::None), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of(bytes.data(), kTop, 0, Access::None), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of(bytes.data(), 16, 0, static_cast<Access>(1 << 4)), ErrorCode::InvalidArgument);
  EXPECT_EQ(table.size(), 0u);
  ASSERT_TRUE(table.register_region(kPd, bytes.data(), 16, 0, Access::None));
  ASSERT_TRUE(table.register_region(kPd, bytes.data(), 16, 0, Access::None));
  EXPECT_EQ(code_of(bytes.data(), 16, 0, Access::None), ErrorCode::ResourceExhausted);
}

TEST(MemoryTable, region_that_ends_at_the_top_of_the_address_space_is_whole) {
  SeededRandom random(6);
  MemoryTable table(random, 2);
  std::array<std::byte, 16> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 16, kTop - 15, Access::All);
  ASSERT_TRUE(region);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, kTop - 7, 8, Access::RemoteWrite), bytes.data() + 8);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, kTop, 1, Access::RemoteWrite), bytes.data() + 15);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, kTop - 7, 9, Access::RemoteWrite), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0, 1, Access::RemoteWrite), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, kTop, 2, Access::RemoteWrite), nullptr);
  EXPECT_EQ(table.find_remote(region->rkey, kPd, kTop, kTop, Access::RemoteWrite), nullptr);
}

// One random number of a kind that likes edges.
std::uint64_t edgy(SeededRandom& random) {
  const std::uint64_t jitter = random.below(5);
  switch (random.below(6)) {
    case 0:
      return jitter;
    case 1:
      return kTop - jitter;
    case 2:
      return (std::uint64_t{1} << random.below(64)) - jitter;
    case 3:
      return (std::uint64_t{1} << random.below(64)) + jitter;
    case 4:
      return random.below(1 << 16);
    default:
      return random.next_u64();
  }
}

TEST(MemoryTable, agrees_with_128_bit_arithmetic) {
  SeededRandom random(7);
  constexpr std::uint64_t kBase = 0x1000;
  int inside = 0, checked = 0;
  for (int round = 0; round < 20000; ++round) {
    MemoryTable table(random, 1);
    const std::uint64_t iova = edgy(random), length = edgy(random);
    const auto region = table.register_region(kPd, somewhere(kBase), length, iova, Access::All);
    const Wide end = Wide{iova} + length;
    const bool possible = length != 0 && end <= Wide{kTop} + 1 && Wide{kBase} + length <= Wide{kTop} + 1;
    ASSERT_EQ(region.has_value(), possible) << iova << " " << length;
    if (!region) continue;
    for (int probe = 0; probe < 16; ++probe) {
      const std::uint64_t va =
          random.chance(0.7) ? iova + (random.chance(0.5) ? length : 0) + random.below(9) - 4 : edgy(random);
      const std::uint64_t bytes = random.chance(0.3) ? length + random.below(5) - 2 : edgy(random);
      const bool covered = va >= iova && Wide{va} + bytes <= end;
      std::byte* const found = table.find_remote(region->rkey, kPd, va, bytes, Access::RemoteRead);
      ASSERT_EQ(found != nullptr, covered) << iova << "+" << length << " asked " << va << "+" << bytes;
      if (covered) {
        ASSERT_EQ(reinterpret_cast<std::uint64_t>(found), kBase + (va - iova));
      }
      ++checked;
      inside += covered ? 1 : 0;
    }
  }
  EXPECT_GT(inside, 1000);
  EXPECT_GT(checked - inside, 1000);
}

TEST(MemoryTable, deregistered_key_is_dead_on_both_sides) {
  SeededRandom random(8);
  MemoryTable table(random, 2);
  std::array<std::byte, 16> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(region);
  EXPECT_NE(table.region(region->lkey), nullptr);
  ASSERT_TRUE(table.deregister(region->lkey));
  EXPECT_EQ(table.find_remote(region->rkey, kPd, 0, 16, Access::None), nullptr);
  EXPECT_EQ(table.find_local(region->lkey, kPd, 0, 16, Access::None), nullptr);
  EXPECT_EQ(table.region(region->lkey), nullptr);
  EXPECT_EQ(table.size(), 0u);
  const auto again = table.deregister(region->lkey);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::NotFound);
}

TEST(MemoryTable, remote_key_does_not_deregister) {
  SeededRandom random(9);
  MemoryTable table(random, 2);
  std::array<std::byte, 16> bytes;
  const auto region = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(region);
  EXPECT_FALSE(table.deregister(LKey{region->rkey.value()}));
  EXPECT_EQ(table.size(), 1u);
}

TEST(MemoryTable, keys_never_repeat_and_spread_over_all_bits) {
  SeededRandom random(10);
  constexpr int kRegions = 100000;
  MemoryTable table(random, kRegions);
  std::array<std::byte, 16> bytes;
  std::unordered_set<std::uint32_t> lkeys, rkeys;
  std::array<int, 32> ones{};
  for (int i = 0; i < kRegions; ++i) {
    const auto region = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
    ASSERT_TRUE(region);
    ASSERT_NE(region->lkey.value(), 0u);
    ASSERT_NE(region->rkey.value(), 0u);
    ASSERT_TRUE(lkeys.insert(region->lkey.value()).second);
    ASSERT_TRUE(rkeys.insert(region->rkey.value()).second);
    for (std::size_t bit = 0; bit < 32; ++bit) ones[bit] += static_cast<int>(region->rkey.value() >> bit & 1);
  }
  for (const int n : ones) {  // ten standard deviations round one half
    EXPECT_GT(n, kRegions / 2 - 1600);
    EXPECT_LT(n, kRegions / 2 + 1600);
  }
}

TEST(MemoryTable, zero_and_live_keys_are_drawn_again) {
  Scripted random({0, 5, 0, 6, 5, 8, 6, 9});
  MemoryTable table(random, 4);
  std::array<std::byte, 16> bytes;
  const auto first = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->lkey, LKey{5});
  EXPECT_EQ(first->rkey, RKey{6});
  const auto second = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->lkey, LKey{8});
  EXPECT_EQ(second->rkey, RKey{9});
}

TEST(MemoryTable, freed_key_stays_in_quarantine) {
  Scripted random({5, 6, 5, 6, 7, 5, 6, 8});
  MemoryTable table(random, 4);
  std::array<std::byte, 16> bytes;
  const auto first = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(first);
  ASSERT_TRUE(table.deregister(first->lkey));
  const auto second = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->lkey, LKey{7});
  EXPECT_EQ(second->rkey, RKey{8});
  EXPECT_EQ(random.asked(), 8u);
}

// Registers and frees regions, with keys that count upwards, until `frees` have gone by.
class Counting final : public RandomSource {
 public:
  std::uint64_t next_u64() override {
    return std::uint64_t{forced != 0 ? std::exchange(forced, 0) : next++} << 32;
  }
  std::uint32_t next = 100;
  std::uint32_t forced = 0;
};

TEST(MemoryTable, quarantine_outlasts_a_million_deregistrations) {
  Counting random;
  MemoryTable table(random, 4);
  std::array<std::byte, 16> bytes;
  const auto old = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(old);
  ASSERT_TRUE(table.deregister(old->lkey));
  const auto cycle = [&] {
    const auto region = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
    ASSERT_TRUE(region);
    ASSERT_TRUE(table.deregister(region->lkey));
  };
  for (int i = 0; i < (1 << 20) - 2; ++i) cycle();
  random.forced = old->lkey.value();
  const auto young = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(young);
  EXPECT_NE(young->lkey, old->lkey);
}

TEST(MemoryTable, quarantine_is_bounded) {
  Counting random;
  MemoryTable table(random, 4);
  std::array<std::byte, 16> bytes;
  const auto old = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(old);
  ASSERT_TRUE(table.deregister(old->lkey));
  for (int i = 0; i < (1 << 20) + 1; ++i) {
    const auto region = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
    ASSERT_TRUE(region);
    ASSERT_TRUE(table.deregister(region->lkey));
  }
  random.forced = old->lkey.value();
  const auto young = table.register_region(kPd, bytes.data(), 16, 0, Access::All);
  ASSERT_TRUE(young);
  EXPECT_EQ(young->lkey, old->lkey);
}

}  // namespace
}  // namespace verbena::core
