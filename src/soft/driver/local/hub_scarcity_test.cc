// SPDX-License-Identifier: Apache-2.0
// Hubs that are asked where there is little left of what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

#include "soft/driver/local/test_container.h"
#include "soft/driver/local/test_folder.h"
#include "soft/driver/local/test_limited.h"
#include "soft/driver/local/test_side.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using verbena::local::Answer;
using verbena::local::Endpoint;
using verbena::local::Hello;
using verbena::local::layout_of;

// Who connects to a hub, and may ask for a path.
struct Caller {
  explicit Caller(const Side& side) : socket(reached(side.endpoint().gid)) {}
  static PeerSocket reached(const Gid& gid) {
    auto there = reach({gid, 0});
    EXPECT_TRUE(there && *there);
    return std::move(**there);
  }
  void ask(const Endpoint& from, const Endpoint& to) {
    EXPECT_TRUE(socket.send(Hello{4096, from, to}, segment.descriptor()));
  }
  std::optional<Answer> answer() {
    auto answer = socket.try_receive_answer();
    return answer ? *answer : std::nullopt;
  }
  PeerSocket socket;
  Segment segment = *Segment::create(layout_of(4096).bytes);
};

TEST(HubScarcity, who_says_nothing_has_none_of_the_last_descriptors) {
  Side side(1);
  std::vector<Caller> silent;
  for (int i = 0; i < 8; ++i) silent.emplace_back(side);
  Limited limited;
  limited.leave_before_the_last_quarter(2);
  side.turn();
  const auto gone = std::count_if(silent.begin(), silent.end(), [](const Caller& caller) {
    return caller.socket.has_hung_up();
  });
  EXPECT_EQ(gone, 6);
  EXPECT_FALSE(side.hub->has_chores());
}

TEST(HubScarcity, an_ask_that_would_be_held_with_the_last_descriptors_is_answered) {
  const Endpoint peer{address(3), Qpn{50}};
  for (const rlim_t left : {rlim_t{0}, rlim_t{1}, rlim_t{2}}) {
    Side side(1);
    Caller early(side);
    early.ask(peer, side.endpoint());
    Limited limited;
    limited.leave_before_the_last_quarter(left);
    side.turn();
    EXPECT_EQ(early.answer(), left < 2 ? std::optional(Answer::Roce) : std::nullopt) << left;
  }
}

TEST(HubScarcity, the_ask_of_a_peer_that_said_wait_for_it_is_judged_with_the_last_descriptors) {
  Side side(9);
  const Endpoint peer{address(5), Qpn{50}};
  auto listener = offer({peer.gid, 0});
  ASSERT_TRUE(listener);
  side.connect(peer);
  auto asked = accept_one(listener->get());
  ASSERT_TRUE(asked && *asked);
  auto there = PeerSocket::adopt(std::move(**asked));
  ASSERT_TRUE(there && there->send(Answer::Crossed));
  side.turn();
  ASSERT_TRUE(side.hub->any_undecided());
  Caller crossing(side);
  crossing.ask(peer, side.endpoint());
  Limited limited;
  limited.leave_the_last_quarter();
  side.turn();
  EXPECT_EQ(crossing.answer(), Answer::Roce);
  EXPECT_TRUE(side.on_packets()) << side.explained();
}

TEST(HubScarcity, who_has_no_descriptor_left_is_not_woken_by_those_who_wait_and_meets_them_later) {
  const TestFolder folder;
  Side side(1, false, {}, {}, folder.path());
  const auto look = MeetingFolder::open(folder.path());
  ASSERT_TRUE(look);
  auto in_folder = look->reach({side.endpoint().gid, 0});
  ASSERT_TRUE(in_folder && *in_folder);
  Caller beside(side);
  const auto is_awake = [&] {
    pollfd fd{side.hub->fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  Limited limited;
  limited.leave_none_that_is_given_up();
  for (int i = 0; i < 4; ++i) side.turn();
  EXPECT_FALSE(is_awake());
  EXPECT_TRUE(side.hub->has_chores());
  limited.lift();
  side.turn();
  EXPECT_FALSE(side.hub->has_chores());
  for (PeerSocket* const socket : {&**in_folder, &beside.socket}) {
    const Endpoint nowhere{side.endpoint().gid, Qpn{side.qp.qpn.value() ^ 1}};
    EXPECT_TRUE(socket->send(Hello{4096, {address(3), Qpn{50}}, nowhere}, beside.segment.descriptor()));
    side.turn();
    const auto answer = socket->try_receive_answer();
    EXPECT_TRUE(answer && *answer == Answer::Unknown);
  }
}

TEST(HubScarcity, who_has_no_descriptor_to_ask_with_says_what_was_lacking) {
  Side side(1), other(2);
  Limited limited;
  limited.leave_none();
  side.connect(other.endpoint());
  limited.lift();
  EXPECT_TRUE(side.on_packets()) << side.explained();
  EXPECT_THAT(side.explained(), HasSubstr("Too many open files"));
}

// Without /dev and all that.
TEST(HubScarcity, where_there_are_no_files_a_moment_without_descriptors_passes) {
  const TestFolder empty;
  const auto said = TestContainer().said(
      [&]() -> std::string {
        Side side(1);
        Caller turned_away(side);
        Limited limited;
        if (::chroot(empty.path().c_str()) != 0 || ::chdir("/") != 0) return "no chroot";
        limited.leave_none();
        side.turn();
        limited.lift();
        if (!turned_away.socket.has_hung_up()) return "left to wait";
        side.turn();
        Caller stranger(side);
        stranger.ask({address(3), Qpn{50}}, {side.endpoint().gid, Qpn{side.qp.qpn.value() ^ 1}});
        side.turn();
        return stranger.answer() == Answer::Unknown ? "answered" : "deaf";
      },
      [] {});
  if (!said) GTEST_SKIP() << kNoContainer;
  EXPECT_EQ(*said, "answered");
}

}  // namespace
}  // namespace verbena::soft::local
