// SPDX-License-Identifier: Apache-2.0
// Names of meeting points are of a network: who drives a device from another one does not meet its namesakes there.
#include "soft/driver/local/meeting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "soft/driver/local/test_side.h"
#include "soft/driver/test_other_network.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;

TEST(MeetingPoint, who_asks_from_another_network_is_told_so) {
  const MeetingPoint point{address(9)};
  const auto here = offer(point);
  ASSERT_TRUE(here) << here.error().to_string();
  const OtherNetwork elsewhere;
  if (!elsewhere.is_entered()) GTEST_SKIP() << kNoOtherNetwork;
  const auto namesake = offer(point);
  ASSERT_TRUE(namesake) << namesake.error().to_string();
  const auto reached = reach(point, here->get());
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().code(), ErrorCode::WrongState);
  EXPECT_THAT(reached.error().context(), HasSubstr("another network"));
  EXPECT_TRUE(reach(point, namesake->get()));
}

TEST(MeetingPoint, a_peer_that_is_looked_for_in_another_network_is_not_gone) {
  Side a(1), b(2), late(3);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  turn_until([&] { return a.on_rings() && b.on_rings(); }, {&a, &b});
  EXPECT_FALSE(a.hub->is_peer_gone(a.qp.qpn));
  const OtherNetwork elsewhere;
  if (!elsewhere.is_entered()) GTEST_SKIP() << kNoOtherNetwork;
  EXPECT_FALSE(a.hub->is_peer_gone(a.qp.qpn));
  late.connect(b.endpoint());
  turn_until([&] { return late.on_packets(); }, {&late});
  EXPECT_THAT(late.explained(), HasSubstr("another network"));
}

}  // namespace
}  // namespace verbena::soft::local
