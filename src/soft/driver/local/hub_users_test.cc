// SPDX-License-Identifier: Apache-2.0
// Hubs of two users on one host: those who name each other share memory, by two copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/closing.h"
#include "base/test_lingering.h"
#include "soft/driver/local/test_side.h"
#include "soft/driver/test_other_user.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using verbena::local::Endpoint;
using verbena::local::Lend;
using verbena::local::Want;

// Queue pair numbers are of a seed.
const Endpoint& foreign_endpoint() {
  static const Endpoint endpoint = Side(2).endpoint();
  return endpoint;
}

// What side 2, of another user, says that connects and writes 100 times 7.
std::string connect_and_write(const Side& keeper, const std::vector<uid_t>& users) {
  Side side(2, false, {}, {}, {}, users);
  const auto turn_until = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 100'000 && !done(); ++i) {
      side.turn();
      ::usleep(100);
    }
  };
  side.connect(keeper.endpoint());
  turn_until([&] { return side.on_rings() || side.on_packets(); });
  const std::string path = side.explained();
  if (!side.on_rings()) return path;
  std::memset(side.memory.data(), 7, 100);
  side.write(1, keeper, 100);
  std::vector<Completion> done;
  turn_until([&] { return !(done = side.completions()).empty(); });
  return path + (!done.empty() && done[0].status == CompletionStatus::Success ? "written" : "not written");
}

// One turn of a keeper, which connects to side 2 once it is there: before, packets would have to go.
void turn(Side& keeper, bool& entered) {
  if (const auto there = reach({foreign_endpoint().gid, 0}); !entered && there && *there) {
    entered = true;
    keeper.connect(foreign_endpoint());
  }
  keeper.turn();
}

TEST(HubOfAnotherUser, shares_memory_by_two_copies_where_each_names_the_other) {
  const uid_t own = ::geteuid();
  Side keeper(1, false, {}, {}, {}, {kOtherUser});
  std::string explained;
  static_cast<void>(foreign_endpoint());
  bool entered = false;
  const auto said = said_by_another_user([&] { return connect_and_write(keeper, {own}); },
                                         [&] {
                                           turn(keeper, entered);
                                           if (keeper.on_rings()) explained = keeper.explained();
                                         });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_THAT(*said, HasSubstr(": shared memory with local peer (process " + std::to_string(::getpid())));
  EXPECT_THAT(*said, HasSubstr("every message takes two copies, since it is of another user"));
  EXPECT_THAT(*said, HasSubstr("written"));
  EXPECT_THAT(explained, HasSubstr(", user " + std::to_string(kOtherUser)));
  EXPECT_THAT(explained, HasSubstr("every message takes two copies, since it is of another user"));
  EXPECT_EQ(keeper.memory[99], std::byte{7});
}

TEST(HubOfAnotherUser, goes_by_packets_where_one_alone_names_the_other) {
  const uid_t own = ::geteuid();
  for (const bool keeper_names : {false, true}) {
    Side keeper(1, false, {}, {}, {}, {keeper_names ? kOtherUser : kOtherUser + 1});
    static_cast<void>(foreign_endpoint());
    bool entered = false;
    const auto said = said_by_another_user([&] { return connect_and_write(keeper, {keeper_names ? own + 1 : own}); },
                                           [&] { turn(keeper, entered); });
    if (!said) GTEST_SKIP() << kNoOtherUser;
    EXPECT_THAT(*said, HasSubstr(": RoCE, because "));
    if (keeper_names) {
      EXPECT_THAT(*said, HasSubstr("is of another user, whom local_users does not name"));
    }
    EXPECT_FALSE(keeper.on_rings());
  }
}

// What comes of that many connections: + for one that stands, - for one that was hung up.
std::string knock(const Gid& gid, std::size_t times) {
  std::vector<PeerSocket> doors;
  for (std::size_t i = 0; i < times; ++i) {
    auto reached = reach({gid, 0});
    if (!reached || !*reached) return "not reached";
    doors.push_back(std::move(**reached));
  }
  ::usleep(300'000);
  std::string text;
  for (const PeerSocket& door : doors) text += door.has_hung_up() ? '-' : '+';
  return text;
}

TEST(HubOfAnotherUser, keeps_few_places_taken_and_the_youngest_of_them) {
  Side keeper(1, false, {}, {}, {}, {kOtherUser});
  const Gid gid = keeper.endpoint().gid;
  constexpr std::size_t kMore = 20;
  const auto said = said_by_another_user(
      [&] { return knock(gid, Hub::kMostOfOtherUsers + kMore); }, [&] { keeper.turn(); });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, std::string(kMore, '-') + std::string(Hub::kMostOfOtherUsers, '+'));
}

// What is said to the wish of side 2 for a region of the connection that it has.
std::string ask_for_region(const Side& keeper, const std::vector<uid_t>& users) {
  Side side(2, false, {}, {}, {}, users);
  side.connect(keeper.endpoint());
  for (int i = 0; i < 100'000 && !side.on_rings() && !side.on_packets(); ++i) {
    side.turn();
    ::usleep(100);
  }
  if (!side.on_rings()) return "no rings";
  auto reached = reach({keeper.endpoint().gid, 0});
  if (!reached || !*reached || !(**reached).send(Want{side.endpoint(), keeper.endpoint(), keeper.region.rkey}))
    return "not asked";
  pollfd answer{(**reached).descriptor(), POLLIN, 0};
  ::poll(&answer, 1, 60'000);
  auto loan = (**reached).try_receive_loan();
  if (!loan || !*loan) return "no answer";
  return (**loan).lend.access == Access::None && !(**loan).file ? "refused" : "lent";
}

TEST(HubOfAnotherUser, is_lent_no_region) {
  const uid_t own = ::geteuid();
  Side keeper(1, false, {}, {}, {}, {kOtherUser});
  static_cast<void>(foreign_endpoint());
  bool entered = false;
  const auto said =
      said_by_another_user([&] { return ask_for_region(keeper, {own}); }, [&] { turn(keeper, entered); });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "refused");
}

// Another process has come so far.
class Signal {
 public:
  void give() { ASSERT_EQ(::eventfd_write(fd_.get(), 1), 0); }
  bool is_given() const {
    pollfd look{fd_.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  }

 private:
  const Descriptor fd_{::eventfd(0, EFD_CLOEXEC)};
};

// A connection to which something is attached whose closing waits, `times`, and nobody else has it; then one without.
// "shown out", if that is, by who looks once all have come.
std::string knock_with_lingering(const Gid& gid, std::size_t times, Signal& all_came) {
  std::vector<Lingering> lingering(times);
  std::vector<PeerSocket> doors;
  for (std::size_t i = 0; i <= times; ++i) {
    auto reached = reach({gid, 0});
    if (!reached || !*reached) return "not reached";
    doors.push_back(std::move(**reached));
    if (i == times) break;
    static_cast<void>(doors.back().send(Lend{}, lingering[i].fd()));
    ::close(lingering[i].fd());
  }
  all_came.give();
  pollfd last{doors.back().descriptor(), POLLRDHUP, 0};
  return ::poll(&last, 1, times < closing::kMost ? 60'000 : 1'000) > 0 ? "shown out" : "waits";
}

TEST(HubOfAnotherUser, is_shown_out_without_waiting_for_what_it_attached) {
  Side keeper(1);
  const Gid gid = keeper.endpoint().gid;
  Signal all_came;
  const auto said = said_by_another_user([&] { return knock_with_lingering(gid, 3, all_came); },
                                         [&] {
                                           if (all_came.is_given()) keeper.turn();
                                         });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "shown out");
}

// Turns go on, and those of this user are met when the other has gone.
TEST(HubOfAnotherUser, waits_outside_while_others_are_shown_out) {
  Side keeper(1), own(2);
  const Gid gid = keeper.endpoint().gid;
  Signal all_came;
  bool was_behind = false;
  const auto said = said_by_another_user([&] { return knock_with_lingering(gid, closing::kMost + 8, all_came); },
                                         [&] {
                                           if (!all_came.is_given()) return;
                                           keeper.turn();
                                           was_behind = was_behind || closing::is_behind();
                                         });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "waits");
  EXPECT_TRUE(was_behind);
  own.connect(keeper.endpoint());
  keeper.connect(own.endpoint());
  for (int i = 0; i < 60'000 && !(own.on_rings() && keeper.on_rings()); ++i) {
    own.turn();
    keeper.turn();
    ::usleep(1'000);
  }
  EXPECT_TRUE(own.on_rings());
  EXPECT_TRUE(keeper.on_rings());
}

}  // namespace
}  // namespace verbena::soft::local
