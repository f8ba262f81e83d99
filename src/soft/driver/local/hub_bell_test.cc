// SPDX-License-Identifier: Apache-2.0
// Who is woken again and again gives its peer a bell.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <array>
#include <vector>

#include "soft/driver/local/test_side.h"

namespace verbena::soft::local {
namespace {

constexpr std::uint32_t kBell = 17;

// Two sides, of which b sleeps on two sets.
struct Pair {
  Pair() {
    std::vector<int> all;
    for (const Descriptor& set : sets) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = kBell + 1;
      EXPECT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, b.hub->fd(), &event), 0);
      all.push_back(set.get());
    }
    b.hub->ring_in(all, kBell);
    a.connect(b.endpoint());
    b.connect(a.endpoint());
    for (int i = 0; i < 4; ++i) a.turn(), b.turn();
    b.nic.withdraw_sleep();
  }
  // What ends the sleep of b: the sources, once each.
  std::vector<std::uint32_t> wake_b(std::size_t set) {
    b.nic.announce_sleep();
    a.write(1, b, 8);
    a.turn();
    std::array<epoll_event, 8> events;
    const int count = ::epoll_wait(sets[set].get(), events.data(), 8, 0);
    std::vector<std::uint32_t> sources;
    for (int i = 0; i < count; ++i) sources.push_back(events[static_cast<std::size_t>(i)].data.u32);
    b.hub->handle_events(b.now, true);
    b.nic.withdraw_sleep();
    for (int i = 0; i < 4; ++i) a.turn(), b.turn();
    EXPECT_EQ(a.completions().size(), 1u);
    return sources;
  }
  void give_bell() {
    for (int i = 0; i < 16; ++i) EXPECT_EQ(wake_b(0), std::vector{kBell + 1}) << "after " << i;
    a.turn();
  }

  Side a{1}, b{2};
  std::array<Descriptor, 2> sets{Descriptor(::epoll_create1(EPOLL_CLOEXEC)),
                                 Descriptor(::epoll_create1(EPOLL_CLOEXEC))};
};

TEST(HubBell, who_is_woken_again_and_again_is_woken_by_it) {
  Pair pair;
  pair.give_bell();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.wake_b(0), std::vector{kBell}) << "once, and nothing was taken before";
  EXPECT_EQ(pair.wake_b(1), std::vector{kBell}) << "whoever of both sleeps";
}

TEST(HubBell, who_polls_and_does_not_look_there_is_told_where_it_looks) {
  Pair pair;
  pair.give_bell();
  const auto a_first = pair.a.qp, b_first = pair.b.qp;
  for (std::size_t i = 0; i < Nic::kMostWatched; ++i) {  // too many to look at all
    pair.a.use_another(), pair.b.use_another();
    pair.a.connect(pair.b.endpoint());
    pair.b.connect(pair.a.endpoint());
  }
  for (int i = 0; i < 8; ++i) {
    if (i == 4) pair.b.now = pair.b.now + Nic::kUsedLately + Duration::milliseconds(1);
    pair.a.turn(), pair.b.turn();
  }
  ASSERT_TRUE(pair.b.nic.is_quiet(b_first.qpn));
  pair.a.qp = a_first, pair.b.qp = b_first;
  pair.a.write(2, pair.b, 8);
  pair.a.turn();
  pair.b.hub->handle_events(pair.b.now, false);
  EXPECT_TRUE(pair.b.nic.handle_records(pair.b.now));
}

TEST(HubBell, with_half_of_the_descriptors_in_use_there_is_none) {
  Pair pair;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const Descriptor next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const rlimit tight{2 * static_cast<rlim_t>(next.get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(pair.wake_b(0), std::vector{kBell + 1}) << "after " << i;
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(HubBell, of_a_connection_that_ends_none_is_heard) {
  Pair pair;
  pair.give_bell();
  pair.b.nic.announce_sleep();
  pair.a.write(1, pair.b, 8);
  pair.a.turn();
  pair.b.to(QueuePairState::Reset);
  std::array<epoll_event, 8> events;
  for (const Descriptor& set : pair.sets) {
    const int count = ::epoll_wait(set.get(), events.data(), 8, 0);
    for (int i = 0; i < count; ++i) EXPECT_NE(events[static_cast<std::size_t>(i)].data.u32, kBell);
  }
}

}  // namespace
}  // namespace verbena::soft::local
