// SPDX-License-Identifier: Apache-2.0
#include "fifo.h"

#include <gtest/gtest.h>

#include <memory>

namespace verbena {
namespace {

TEST(Fifo, gives_in_the_order_of_arrival) {
  Fifo<int> fifo;
  EXPECT_TRUE(fifo.empty());
  int in = 0, out = 0;
  for (int round = 0; round < 100; ++round) {
    for (int n = 0; n < round % 7 + 1; ++n) fifo.push_back(in++);
    for (int n = 0; n < round % 5 + 1 && !fifo.empty(); ++n) EXPECT_EQ(fifo.take_front(), out++);
    EXPECT_EQ(fifo.size(), static_cast<std::size_t>(in - out));
  }
  while (!fifo.empty()) EXPECT_EQ(fifo.take_front(), out++);
  EXPECT_EQ(in, out);
}

TEST(Fifo, keeps_its_memory_while_it_never_runs_dry) {
  Fifo<int> fifo;
  for (int n = 0; n < 8; ++n) fifo.push_back(n);
  for (int n = 8; n < 32; ++n) {
    fifo.push_back(n);
    EXPECT_EQ(fifo.take_front(), n - 8);
  }
  const int* const first = &fifo.front();
  for (int n = 32; n < 10000; ++n) {
    fifo.push_back(n);
    EXPECT_EQ(fifo.take_front(), n - 8);
    EXPECT_LT(std::abs(&fifo.front() - first), 64);
  }
}

TEST(Fifo, moves_what_it_holds) {
  Fifo<std::unique_ptr<int>> fifo;
  fifo.push_back(std::make_unique<int>(7));
  EXPECT_EQ(*fifo.front(), 7);
  EXPECT_EQ(*fifo.take_front(), 7);
  EXPECT_TRUE(fifo.empty());
}

}  // namespace
}  // namespace verbena
