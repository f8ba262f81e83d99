// SPDX-License-Identifier: Apache-2.0
#include "sim/event_queue.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

TEST(EventQueue, gives_events_by_time_and_then_by_when_they_were_asked_for) {
  EventQueue queue;
  queue.push(Instant{20}, EventKind::Poll, 0, 1);
  queue.push(Instant{-5}, EventKind::Poll, 0, 2);
  queue.push(Instant{20}, EventKind::Arrival, 0, 3);
  queue.push(Instant{7}, EventKind::Poll, 0, 4);
  std::vector<std::uint32_t> order;
  EXPECT_EQ(queue.next(), Instant{-5});
  while (!queue.empty()) order.push_back(queue.pop().argument);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 4, 1, 3}));
  EXPECT_TRUE(queue.next().is_never());
}

}  // namespace
}  // namespace verbena::sim
