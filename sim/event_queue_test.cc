// SPDX-License-Identifier: Apache-2.0
#include "sim/event_queue.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

TEST(EventQueue, gives_events_by_time_and_then_by_when_they_were_asked_for) {
  EventQueue queue;
  queue.push(Instant{20}, EventKind::Tick, 0, 1);
  queue.push(Instant{-5}, EventKind::Tick, 0, 2);
  queue.push(Instant{20}, EventKind::Arrival, 0, 3);
  queue.push(Instant{7}, EventKind::Tick, 0, 4);
  std::vector<std::uint32_t> order;
  EXPECT_EQ(queue.next().at, Instant{-5});
  while (!queue.empty()) order.push_back(queue.pop().argument);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 4, 1, 3}));
  EXPECT_TRUE(queue.next().at.is_never());
}

TEST(EventQueue, what_is_kept_elsewhere_takes_its_turn_by_when_it_was_asked_for) {
  EventQueue queue;
  queue.push(Instant{7}, EventKind::Tick, 0, 0);
  const Moment between = queue.moment(Instant{7});
  queue.push(Instant{7}, EventKind::Tick, 0, 0);
  EXPECT_TRUE(queue.next() < between);
  queue.pop();
  EXPECT_TRUE(between < queue.next());
  queue.pop();
  EXPECT_TRUE(between < queue.next());
}

}  // namespace
}  // namespace verbena::sim
