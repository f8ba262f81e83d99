// SPDX-License-Identifier: Apache-2.0
// Hubs of two users on one host: those who name each other share memory, by two copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "base/closing.h"
#include "base/sanitizer.h"
#include "base/test_lingering.h"
#include "soft/driver/local/test_side.h"
#include "soft/driver/test_other_user.h"

#ifdef VERBENA_THREAD_SANITIZER
// A child starts a thread although its parent had several.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using verbena::local::Endpoint;
using verbena::local::Lend;
using verbena::local::Want;

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
    EXPECT_THAT(*said, HasSubstr(keeper_names ? "is of another user, whom local_users does not name"
                                              : "has ended or hung up, or its local_users does not name this user"));
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
  if (!side.on_rings()) return "no rings: " + side.explained();
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
  bool is_given(int wait_ms = 0) const {
    pollfd look{fd_.get(), POLLIN, 0};
    return ::poll(&look, 1, wait_ms) > 0;
  }

 private:
  const Descriptor fd_{::eventfd(0, EFD_CLOEXEC)};
};

constexpr int kPatienceMs = 60'000;

// Connections to which something is attached whose closing waits, and nobody else has it; then one without.
struct Knocking {
  Knocking(const Gid& gid, std::size_t times) : lingering(times) {
    for (std::size_t i = 0; i <= times; ++i) {
      auto reached = reach({gid, 0});
      if (!reached || !*reached) return;
      doors.push_back(std::move(**reached));
      if (i == times) break;
      static_cast<void>(doors.back().send(Lend{}, lingering[i].fd()));
      ::close(lingering[i].fd());
    }
  }
  bool is_shown_out(int wait_ms) {
    pollfd last{doors.back().descriptor(), POLLRDHUP, 0};
    return ::poll(&last, 1, wait_ms) > 0;
  }

  std::vector<Lingering> lingering;
  std::vector<PeerSocket> doors;
};

TEST(HubOfAnotherUser, is_shown_out_without_waiting_for_what_it_attached) {
  Side keeper(1);
  const Gid gid = keeper.endpoint().gid;
  Signal all_came;
  const auto said = said_by_another_user(
      [&] {
        Knocking some(gid, 3);
        all_came.give();
        return std::string(some.is_shown_out(kPatienceMs) ? "shown out" : "waits");
      },
      [&] {
        if (all_came.is_given()) keeper.turn();
      });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "shown out");
}

// What `meanwhile` does with a hub that more came to than can be shown out; then they go. False: nobody else is there.
bool with_many_strangers(Side& keeper, const std::function<void()>& meanwhile) {
  const Gid gid = keeper.endpoint().gid;
  Signal all_came, done;
  bool is_done = false;
  const auto said = said_by_another_user(
      [&] {
        Knocking many(gid, closing::kMost + 8);
        all_came.give();
        const bool in_time = done.is_given(kPatienceMs);
        return std::string(!in_time ? "held up" : many.is_shown_out(0) ? "shown out" : "waits");
      },
      [&] {
        if (!all_came.is_given() || is_done) return;
        keeper.turn();
        if (!closing::is_behind()) return;
        meanwhile();
        done.give();
        is_done = true;
      });
  EXPECT_EQ(said.value_or("waits"), "waits");
  return said.has_value();
}

bool is_readable(const Side& side) {
  pollfd look{side.hub->fd(), POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

void expect_to_share(Side& one, Side& other) {
  one.connect(other.endpoint());
  other.connect(one.endpoint());
  for (int i = 0; i < kPatienceMs && !(one.on_rings() && other.on_rings()); ++i) {
    one.turn();
    other.turn();
    ::usleep(1'000);
  }
  EXPECT_TRUE(one.on_rings());
  EXPECT_TRUE(other.on_rings());
}

// Those of this user are met when the others have gone. A child that was forked meanwhile keeps nothing readable.
TEST(HubOfAnotherUser, waits_outside_while_others_are_shown_out) {
  Side keeper(1), own(2);
  pid_t child = 0;
  const bool there = with_many_strangers(keeper, [&] {
    keeper.turn();
    EXPECT_FALSE(is_readable(keeper)) << "it would be looked at again and again";
    child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
  });
  if (!there) GTEST_SKIP() << kNoOtherUser;
  for (int i = 0; i < kPatienceMs && (closing::is_behind() || is_readable(keeper)); ++i) {
    keeper.turn();
    ::usleep(1'000);
  }
  EXPECT_FALSE(is_readable(keeper));
  expect_to_share(own, keeper);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(HubOfAnotherUser, does_not_hold_up_the_end_of_a_device) {
  auto keeper = std::make_unique<Side>(1);
  if (!with_many_strangers(*keeper, [&] { keeper.reset(); })) GTEST_SKIP() << kNoOtherUser;
}

}  // namespace
}  // namespace verbena::soft::local
