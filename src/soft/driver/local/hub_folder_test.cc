// SPDX-License-Identifier: Apache-2.0
// Hubs that meet in a folder, since each has a network of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "soft/driver/local/hub.h"
#include "soft/driver/local/test_container.h"
#include "soft/driver/local/test_folder.h"
#include "soft/driver/local/test_side.h"
#include "soft/driver/test_other_network.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using verbena::local::Endpoint;

// A side in there and what became of it.
struct Foreign {
  explicit Foreign(const Side& its_keeper, const std::string& folder)
      : keeper(its_keeper), side(2, false, {}, {}, folder) {}

  std::string connect_and_write() {
    side.connect(keeper.endpoint());
    turn_until([this] { return side.on_rings() || side.on_packets(); });
    std::string path = side.explained();
    if (!side.on_rings()) return path;
    std::memset(side.memory.data(), 7, 100);
    side.write(1, keeper, 100);
    std::vector<Completion> done;
    turn_until([&] { return !(done = side.completions()).empty(); });
    return path + (done.empty()                                  ? "no completion"
                   : done[0].status == CompletionStatus::Success ? "written"
                                                                 : "failed");
  }
  void turn_until(const std::function<bool()>& done) {
    for (int i = 0; i < 100'000 && !done(); ++i) {
      side.turn();
      ::usleep(100);
    }
  }

  const Side& keeper;
  Side side;
};

TEST(HubInAFolder, two_networks_share_memory) {
  const TestFolder folder;
  const Endpoint foreign = foreign_endpoint();
  Side keeper(1, false, {}, {}, folder.path());
  EXPECT_THAT(keeper.explained(), HasSubstr("also offered to other networks in the folder " + folder.path()));
  std::string explained;
  const auto looks = MeetingFolder::open(folder.path());
  bool entered = false;
  const auto meanwhile = [&] {
    if (!entered && *looks->reach({foreign.gid, 0})) {  // before, packets would have to go
      entered = true;
      keeper.connect(foreign);
    }
    keeper.turn();
    if (keeper.on_rings()) explained = keeper.explained();
  };
  const auto said =
      TestContainer().said([&] { return Foreign(keeper, folder.path()).connect_and_write(); }, meanwhile);
  if (!said) GTEST_SKIP() << kNoContainer;
  EXPECT_THAT(*said,
              HasSubstr(": shared memory with local peer (a process of another container, user 0), met in " +
                        folder.path()));
  EXPECT_THAT(*said,
              HasSubstr("take two copies, because the peer's process has no number in this PID namespace"));
  EXPECT_THAT(*said, HasSubstr("written"));
  EXPECT_THAT(explained, HasSubstr("met in " + folder.path()));
  EXPECT_THAT(explained, HasSubstr("because the peer's process is not known to be of this PID namespace"))
      << "it has a number here, and could let a reader of its memory wait";
  EXPECT_EQ(keeper.memory[99], std::byte{7});
}

// The thread that drives a device may go to another network; the folder is the same there.
TEST(HubInAFolder, who_asks_from_another_network_meets_in_it) {
  const TestFolder folder;
  Side asks(1, false, {}, {}, folder.path()), asked(2, false, {}, {}, folder.path()), elsewhere(3);
  const OtherNetwork other;
  if (!other.is_entered()) GTEST_SKIP() << kNoOtherNetwork;
  asks.connect(asked.endpoint());
  asked.connect(asks.endpoint());
  turn_until([&] { return asks.on_rings() && asked.on_rings(); }, {&asks, &asked});
  EXPECT_THAT(asks.explained(), HasSubstr("met in " + folder.path()));
  asks.use_another();
  asks.connect(elsewhere.endpoint());
  EXPECT_TRUE(asks.on_packets()) << "nobody there is in the folder";
  EXPECT_THAT(asks.explained(), HasSubstr("was asked for from another network than the device's"));
}

TEST(HubInAFolder, without_one_on_both_sides_two_networks_go_by_packets) {
  const TestFolder folder;
  for (const std::string& theirs : {std::string(), folder.path()}) {
    Side keeper(1);
    const auto said = TestContainer().said([&] { return Foreign(keeper, theirs).connect_and_write(); },
                                           [&] { keeper.turn(); });
    if (!said) GTEST_SKIP() << kNoContainer;
    EXPECT_THAT(*said, HasSubstr("RoCE, because nobody offers shared memory for that address " +
                                 (theirs.empty() ? "on this host" : "in this network or in " + theirs)));
  }
}

TEST(HubInAFolder, whom_a_container_does_not_know_is_no_user_of_its_own) {
  const TestFolder folder;
  Side keeper(1, false, {}, {}, folder.path());
  TestContainer container;
  container.knows_us = false;
  const auto said = container.said([&] { return Foreign(keeper, folder.path()).connect_and_write(); },
                                   [&] { keeper.turn(); });
  if (!said) GTEST_SKIP() << kNoContainer;
  EXPECT_THAT(*said,
              HasSubstr("RoCE, because the local peer (a process of another container, user 65534) is of "
                        "another user"));
}

TEST(HubInAFolder, a_folder_that_vanished_means_packets) {
  const TestFolder folder;
  Side keeper(1, false, {}, {}, folder.path()), other(2, false, {}, {}, folder.path());
  std::filesystem::remove_all(folder.path());
  keeper.connect({address(9), Qpn{77}});
  EXPECT_TRUE(keeper.on_packets());
  keeper.turn();
  keeper.use_another();
  keeper.connect(other.endpoint());
  other.connect(keeper.endpoint());
  keeper.turn();
  EXPECT_TRUE(keeper.on_rings()) << "who is in one network needs no folder";
}

TEST(HubInAFolder, loopback_addresses_are_not_offered_and_told_so) {
  const TestFolder folder;
  const auto pid = static_cast<std::uint32_t>(::getpid());
  const Gid loopback = Gid::from_ipv4(127, static_cast<std::uint8_t>(128 + (pid >> 16) % 100),
                                      static_cast<std::uint8_t>(pid >> 8), static_cast<std::uint8_t>(pid));
  auto hub = Hub::open({.address = loopback}, std::move(*MeetingFolder::open(folder.path())));
  ASSERT_TRUE(hub) << hub.error().to_string();
  EXPECT_THAT(folder.names(), IsEmpty());
  EXPECT_THAT((*hub)->explain()[1],
              HasSubstr("is not offered to other networks in the folder " + folder.path()));
  EXPECT_THAT((*hub)->explain()[1], HasSubstr("each network has loopback addresses of its own"));
}

TEST(HubInAFolder, an_address_that_another_network_has_too_is_offered_once_and_told_so) {
  const TestFolder folder;
  Side keeper(1, false, {}, {}, folder.path());
  const auto said = TestContainer().said([&] { return Side(1, false, {}, {}, folder.path()).explained(); },
                                         [&] { keeper.turn(); });
  if (!said) GTEST_SKIP() << kNoContainer;
  EXPECT_THAT(*said, HasSubstr("cannot be offered to other networks in the folder " + folder.path()));
  EXPECT_THAT(*said, HasSubstr("stands there already"));
  EXPECT_THAT(keeper.explained(), Not(HasSubstr("cannot be offered")));
}

}  // namespace
}  // namespace verbena::soft::local
