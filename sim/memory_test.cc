// SPDX-License-Identifier: Apache-2.0
#include "sim/memory.h"

#include <gtest/gtest.h>

#include "sim/ring.h"
#include "sim/shared_cells.h"

namespace verbena::sim {
namespace {

TEST(Pattern, says_of_any_piece_whether_it_is_that_piece) {
  std::vector<std::byte> bytes(100);
  const Pattern pattern(42);
  pattern.fill(bytes, 3);
  EXPECT_TRUE(pattern.equals(bytes, 3));
  for (std::size_t from = 0; from < 20; ++from)
    for (std::size_t size = 0; size < 30; ++size) {
      const std::span<const std::byte> piece(&bytes[from], size);
      EXPECT_TRUE(pattern.equals(piece, 3 + from));
      if (size <= 4) continue;
      EXPECT_FALSE(pattern.equals(piece, 4 + from));
      EXPECT_FALSE(Pattern(43).equals(piece, 3 + from));
    }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_FALSE(pattern.equals(bytes, 3)) << i;
    bytes[i] ^= std::byte{0x10};
  }
}

TEST(Memory, notices_a_byte_written_before_or_behind_an_area) {
  Memory memory(4096);
  const Area first = memory.take(13);
  const Area second = memory.take(64);
  for (std::byte* outside : {first.base - 1, first.base + 13, second.base - 1, second.base + 64}) {
    EXPECT_TRUE(memory.red_zones_intact());
    *outside ^= std::byte{1};
    EXPECT_FALSE(memory.red_zones_intact());
    *outside ^= std::byte{1};
  }
  first.base[0] ^= std::byte{1};
  first.base[12] ^= std::byte{1};
  EXPECT_TRUE(memory.red_zones_intact());
}

TEST(BufferRing, gives_out_every_byte_once_until_it_comes_back) {
  Memory memory(4096);
  BufferRing ring;
  ring.reset(memory.take(128));
  const std::uint32_t first = ring.take(40);
  const std::uint64_t first_mark = ring.mark();
  const std::uint32_t second = ring.take(40);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 48u);
  EXPECT_EQ(ring.take(40), BufferRing::kNone);
  EXPECT_EQ(ring.take(0), 96u);
  ring.release(first_mark);
  EXPECT_EQ(ring.take(40), 0u);
  EXPECT_TRUE(ring.guard_intact(0, 40));
  ring.area().base[41] ^= std::byte{1};
  EXPECT_FALSE(ring.guard_intact(0, 40));
}

TEST(Ring, keeps_the_numbers_of_its_entries_while_it_grows) {
  Ring<std::uint64_t> ring(2);
  ring.reset(100);
  for (std::uint64_t i = 100; i < 150; ++i) ring.add() = i;
  for (std::uint64_t i = 100; i < 120; ++i) ring.pop();
  EXPECT_FALSE(ring.holds(119));
  for (std::uint64_t i = 120; i < 150; ++i) EXPECT_EQ(ring[i], i);
  EXPECT_EQ(ring.size(), 30u);
}

class Cells : public testing::Test {
 protected:
  Memory memory{4096};
  SharedCells cells{memory.take(SharedCells::kBytes)};
  Verdict verdict;

  void set_register(std::uint64_t value) {
    std::memcpy(cells.area().base + SharedCells::kRegisterOffset, &value, 8);
  }
  bool accepted() {
    cells.check(verdict);
    return !verdict.failed();
  }
};

TEST_F(Cells, accept_swaps_that_lead_to_the_value_there) {
  cells.note_swap(0, 0, 11);
  cells.note_swap(22, 0, 33);  // found another value
  cells.note_swap(22, 22, 44);
  cells.note_possible_swap(11, 22);
  cells.note_possible_swap(11, 23);
  set_register(44);
  EXPECT_TRUE(accepted());
}

TEST_F(Cells, refuse_a_swap_that_was_lost) {
  cells.note_swap(0, 0, 11);
  set_register(0);
  EXPECT_FALSE(accepted());
}

TEST_F(Cells, refuse_two_swaps_from_one_value) {
  cells.note_swap(0, 0, 11);
  cells.note_swap(0, 0, 12);
  set_register(12);
  EXPECT_FALSE(accepted());
}

TEST_F(Cells, refuse_a_value_that_was_never_there) {
  cells.note_swap(0, 0, 11);
  cells.note_swap(99, 0, 12);
  set_register(11);
  EXPECT_FALSE(accepted());
}

}  // namespace
}  // namespace verbena::sim
