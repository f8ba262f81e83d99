// SPDX-License-Identifier: Apache-2.0
#include "async/keep_alive_window.h"

#include <gtest/gtest.h>

#include <vector>

namespace verbena {
namespace {

constexpr Instant kStart{1'000'000'000};

std::vector<std::uint64_t> fill(KeepAliveWindow& window, Instant now) {
  std::vector<std::uint64_t> marks;
  for (; window.opens_at() <= now; now = now + Duration{1}) marks.push_back(window.take(now));
  return marks;
}

TEST(KeepAliveWindow, an_answer_makes_room_for_one) {
  KeepAliveWindow window;
  const auto marks = fill(window, kStart);
  ASSERT_EQ(marks.size(), KeepAliveWindow::kMost);
  EXPECT_GT(window.opens_at(), kStart);
  window.give_back(marks[0]);
  EXPECT_LE(window.opens_at(), kStart);
  window.take(kStart);
  EXPECT_GT(window.opens_at(), kStart);
}

TEST(KeepAliveWindow, who_does_not_answer_holds_up_the_others_for_a_while) {
  KeepAliveWindow window;
  const auto silent = fill(window, kStart);
  const Instant later = window.opens_at();
  EXPECT_GE(later, kStart + KeepAliveWindow::kPatience);
  const auto next = fill(window, later);
  EXPECT_EQ(next.size(), KeepAliveWindow::kMost);
  // Late answers to the first make no room among these.
  for (const std::uint64_t mark : silent) window.give_back(mark);
  EXPECT_GT(window.opens_at(), later);
  for (const std::uint64_t mark : next) window.give_back(mark);
  EXPECT_EQ(fill(window, later).size(), KeepAliveWindow::kMost);
}

}  // namespace
}  // namespace verbena
