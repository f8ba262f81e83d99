// SPDX-License-Identifier: Apache-2.0
#include "soft/local/match.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

namespace verbena::local {
namespace {

const Endpoint kLow{Gid::from_ipv4(127, 0, 0, 1), Qpn{20}};
const Endpoint kHigh{Gid::from_ipv4(127, 0, 0, 2), Qpn{10}};

Match entered(const Endpoint& self, const Endpoint& peer) {
  Match match;
  match.enter(self, peer);
  return match;
}
Match asking(const Endpoint& self, const Endpoint& peer) {
  Match match = entered(self, peer);
  match.handle_asked();
  return match;
}

TEST(Match, an_ask_is_held_until_its_queue_pair_enters) {
  Match match;
  EXPECT_EQ(match.path(), Path::None);
  EXPECT_EQ(match.handle_ask(kHigh), std::nullopt);
  match.enter(kLow, kHigh);
  EXPECT_EQ(match.path(), Path::Undecided);
  EXPECT_EQ(match.handle_ask(kHigh), Answer::Accept);
  EXPECT_EQ(match.path(), Path::Local);
  EXPECT_FALSE(match.must_ask());
}

TEST(Match, an_ask_of_another_queue_pair_is_refused) {
  Match match = entered(kLow, kHigh);
  EXPECT_EQ(match.handle_ask({kHigh.gid, Qpn{11}}), Answer::Unknown);
  EXPECT_EQ(match.handle_ask({kLow.gid, kHigh.qpn}), Answer::Unknown);
  EXPECT_EQ(match.path(), Path::Undecided);
}

TEST(Match, an_accepted_ask_decides) {
  Match match = asking(kLow, kHigh);
  EXPECT_TRUE(match.asks());
  match.handle_answer(Answer::Accept);
  EXPECT_EQ(match.path(), Path::Local);
}

TEST(Match, a_refused_ask_means_packets_for_every_later_ask) {
  for (const Answer refusal : {Answer::Roce, Answer::Unknown}) {
    Match match = asking(kLow, kHigh);
    match.handle_answer(refusal);
    EXPECT_EQ(match.path(), Path::Roce);
    EXPECT_EQ(match.handle_ask(kHigh), Answer::Roce);
  }
}

TEST(Match, of_asks_that_cross_that_of_the_lower_counts) {
  Match low = asking(kLow, kHigh);
  EXPECT_EQ(low.handle_ask(kHigh), Answer::Crossed);
  EXPECT_TRUE(low.asks());
  Match high = asking(kHigh, kLow);
  EXPECT_EQ(high.handle_ask(kLow), Answer::Accept);
  Match told_first = asking(kHigh, kLow);
  told_first.handle_answer(Answer::Crossed);
  EXPECT_EQ(told_first.path(), Path::Undecided);
  EXPECT_EQ(told_first.handle_ask(kLow), Answer::Accept);
}

TEST(Match, a_higher_peer_cannot_make_the_lower_wait) {
  Match low = asking(kLow, kHigh);
  low.handle_answer(Answer::Crossed);
  EXPECT_EQ(low.path(), Path::Roce);
}

TEST(Match, a_packet_of_the_peers_decides) {
  for (Match match : {entered(kLow, kHigh), asking(kLow, kHigh)}) {
    match.handle_packet();
    EXPECT_EQ(match.path(), Path::Roce);
    EXPECT_FALSE(match.must_ask());
    EXPECT_EQ(match.handle_ask(kHigh), Answer::Roce);
  }
}

TEST(Match, a_queue_pair_that_is_its_own_peer_goes_by_packets) {
  EXPECT_EQ(entered(kLow, kLow).path(), Path::Roce);
}

TEST(Match, a_peer_that_begins_anew_waits_for_us_to_do_so) {
  Match match = entered(kLow, kHigh);
  EXPECT_EQ(match.handle_ask(kHigh), Answer::Accept);
  EXPECT_EQ(match.handle_ask(kHigh), std::nullopt);
  EXPECT_EQ(match.path(), Path::Local);
  match.leave();
  match.enter(kLow, kHigh);
  EXPECT_EQ(match.handle_ask(kHigh), Answer::Accept);
}

// Two queue pairs and the socket of each one's ask, in every order in which things can happen to them: entering,
// delivery, a connect that fails, a held ask that is thrown out, a packet.
enum class Ask : std::uint8_t { None, Flying, Held, Answered, Closed };

struct AskingSide {
  Match match;
  bool entered = false;
  Ask ask = Ask::None;
  Answer answer = Answer::Accept;
  std::size_t socket = 2;  // whose ask its memory came by

  bool operator==(const AskingSide&) const = default;
};

struct TwoSides {
  std::array<AskingSide, 2> sides;

  bool operator==(const TwoSides&) const = default;
};

const Endpoint kEnds[] = {kLow, kHigh};

class EveryOrder {
 public:
  void explore(const TwoSides& world) {
    for (const TwoSides& known : seen_)
      if (known == world) return;
    seen_.push_back(world);
    check(world);
    bool any = false;
    for (const std::size_t s : {0u, 1u})
      for (const auto& move : kMoves) {
        TwoSides next = world;
        if (!move(next, s)) continue;
        any = true;
        explore(next);
      }
    if (!any) check_end(world);
  }
  std::size_t states() const { return seen_.size(); }
  int ends_local = 0, ends_roce = 0;

 private:
  using Move = std::function<bool(TwoSides&, std::size_t)>;

  static bool is(const AskingSide& side, Path path) { return side.match.path() == path; }
  static void give_up(AskingSide& side) {
    side.match.give_up();
    side.ask = Ask::Closed;
  }
  // The ask of `s` is looked at by the other.
  static void judge(TwoSides& world, std::size_t s) {
    AskingSide &asker = world.sides[s], &other = world.sides[1 - s];
    const auto answer = other.match.handle_ask(kEnds[s]);
    asker.ask = answer ? Ask::Answered : Ask::Held;
    if (!answer) return;
    asker.answer = *answer;
    if (*answer != Answer::Accept) return;
    other.socket = s;
    other.ask = Ask::Closed;  // void
  }
  static bool enter(TwoSides& world, std::size_t s, bool connects) {
    AskingSide &side = world.sides[s], &other = world.sides[1 - s];
    if (side.entered) return false;
    side.entered = true;
    side.match.enter(kEnds[s], kEnds[1 - s]);
    if (other.ask == Ask::Flying || other.ask == Ask::Held) judge(world, 1 - s);
    if (!side.match.must_ask()) return true;
    if (!connects) {
      give_up(side);
      return true;
    }
    side.match.handle_asked();
    side.ask = Ask::Flying;
    return true;
  }
  static bool arrive(TwoSides& world, std::size_t s) {
    if (world.sides[s].ask != Ask::Flying) return false;
    judge(world, s);
    return true;
  }
  static bool hear(TwoSides& world, std::size_t s) {
    AskingSide& side = world.sides[s];
    if (side.ask != Ask::Answered) return false;
    side.match.handle_answer(side.answer);
    side.ask = Ask::Closed;
    if (is(side, Path::Local)) side.socket = s;
    return true;
  }
  static bool throw_out(TwoSides& world, std::size_t s) {
    if (world.sides[s].ask != Ask::Held) return false;
    give_up(world.sides[s]);
    return true;
  }
  static bool packet(TwoSides& world, std::size_t s) {
    if (!is(world.sides[s], Path::Roce) || !is(world.sides[1 - s], Path::Undecided)) return false;
    give_up(world.sides[1 - s]);
    return true;
  }

  static void check(const TwoSides& world) {
    for (const std::size_t s : {0u, 1u})
      EXPECT_FALSE(is(world.sides[s], Path::Local) && is(world.sides[1 - s], Path::Roce));
  }
  void check_end(const TwoSides& world) {
    const auto& [low, high] = world.sides;
    EXPECT_EQ(low.match.path(), high.match.path());
    EXPECT_EQ(low.socket, high.socket);
    if (is(low, Path::Local)) ++ends_local;
    if (is(low, Path::Roce)) ++ends_roce;
    EXPECT_TRUE(is(low, Path::Local) || is(low, Path::Roce));
  }

  const std::vector<Move> kMoves{
      [](TwoSides& w, std::size_t s) { return enter(w, s, true); },
      [](TwoSides& w, std::size_t s) { return enter(w, s, false); },
      arrive,
      hear,
      throw_out,
      packet};
  std::vector<TwoSides> seen_;
};

TEST(Match, both_ends_agree_in_whatever_order_things_happen) {
  EveryOrder all;
  all.explore({});
  EXPECT_GT(all.ends_local, 0);
  EXPECT_GT(all.ends_roce, 0);
  EXPECT_GT(all.states(), 15u);
}

}  // namespace
}  // namespace verbena::local
