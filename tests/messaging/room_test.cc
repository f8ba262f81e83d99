// SPDX-License-Identifier: Apache-2.0
// Room for messages: what credits() promises, and the line of those that wait for it, who goes when one leaves it. In
// virtual time.
#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Reservation;
using ::testing::HasSubstr;

constexpr Duration kShortWhile = Duration::milliseconds(5);

class Credits : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Credits, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

// Of a ring, wherever it stands, and though nobody takes what comes.
TEST_P(Credits, are_messages_that_go_now) {
  constexpr std::uint32_t kMost = 900;
  VirtualPair pair(GetParam(), {.max_message_bytes = kMost, .depth = 32, .ring_bytes = 4096});
  const auto longest = text_of_message(0, 0, kMost);
  const auto drain = [&] {
    for (int turn = 0; turn < 100; ++turn) {
      pair.run_for(Duration::microseconds(50));
      while (auto message = pair.receiver->try_receive()) message->give_back();
    }
  };
  for (std::uint32_t n = 0; n < 20; ++n) {
    const std::uint64_t credits = pair.sender->credits();
    std::uint64_t went = 0;
    for (int turn = 0; went < credits && turn < 100; ++turn) {
      went += pair.sender->try_send(longest).taken;
      pair.run_for(Duration::microseconds(20));
    }
    ASSERT_EQ(went, credits) << n;
    drain();
    must(pair.sender->send(text_of_message(0, n, n * 37 % 300), kPatience));  // the next begin at another place
    drain();
  }
}

// There is room for a short message and none for a long one: by the bytes of a ring, or by its buffers.
class Line : public ::testing::TestWithParam<Way> {
 protected:
  Line() {
    if (GetParam().kind.protocol == Protocol::SendReceive)
      while (auto one = pair.sender->try_reserve(kLong)) reserved.push_back(std::move(*one));
    else
      static_cast<void>(pair.fill(kLong));
  }
  ~Line() override { reserved.clear(); }
  Task<void> send(std::size_t bytes, Duration timeout, std::string& outcome) {
    const auto text = text_of_message(0, 0, bytes);
    outcome = how(co_await pair.sender->async_send(text, timeout));
  }
  Task<void> send_and_go(Duration after) {
    const auto pause = [&]() -> Task<void> { co_await pair.here.engine().sleep(after); };
    EXPECT_EQ((co_await when_any(send(kLong, kPatience, first), pause())).index(), 1u);
  }

  static constexpr std::size_t kLong = 1250, kShort = 10;
  VirtualPair pair{GetParam(), {.max_message_bytes = kLong, .depth = 8, .ring_bytes = 4096, .inline_bytes = 64}};
  std::vector<Reservation> reserved;
  std::string first, second;
};
INSTANTIATE_TEST_SUITE_P(Messaging, Line,
                         ::testing::ValuesIn(ways_of({"send-receive", "buffered-write/offset",
                                                      "buffered-write/reversed", "buffered-read"})),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(Line, who_stands_behind_one_that_is_late_goes_when_there_is_room_for_it) {
  pair.here.engine().spawn(send(kLong, kShortWhile, first));
  pair.here.engine().spawn(send(kShort, kPatience, second));
  pair.run_for(kShortWhile - Duration::microseconds(1));
  EXPECT_EQ(first + second, "");
  pair.run_for(Duration::milliseconds(1));
  EXPECT_THAT(first, HasSubstr("DeadlineExceeded"));
  EXPECT_EQ(second, "well");
}

TEST_P(Line, who_stands_behind_one_that_is_destroyed_goes_when_there_is_room_for_it) {
  pair.here.engine().spawn(send_and_go(kShortWhile));
  pair.run_for(Duration::microseconds(100));
  pair.here.engine().spawn(send(kShort, kPatience, second));
  pair.run_for(Duration::milliseconds(1));
  EXPECT_EQ(second, "");
  pair.run_for(kShortWhile);
  EXPECT_EQ(second, "well");
}

TEST_P(Line, who_waits_inside_one_that_is_late_goes_when_there_is_room_for_it) {
  const auto inside = [&]() -> Task<void> {
    co_await pair.here.engine().sleep(Duration::milliseconds(1));
    second = how(pair.sender->send(text_of_message(0, 0, kShort), kPatience));  // drives the engine itself
  };
  pair.here.engine().spawn(inside());
  const Instant begun = pair.now();
  EXPECT_THAT(how(pair.sender->send(text_of_message(0, 0, kLong), kShortWhile)), HasSubstr("DeadlineExceeded"));
  EXPECT_EQ(second, "well");
  EXPECT_LT((pair.now() - begun).ns, kShortWhile.ns * 2);
}

TEST_P(Line, one_that_was_told_that_it_is_late_stands_there_no_more) {
  const auto keep = [&]() -> Task<void> {
    const auto text = text_of_message(0, 0, kLong);
    auto sending = pair.sender->async_send(text, kShortWhile);
    first = how(co_await sending);
    co_await pair.here.engine().sleep(kPatience);
  };
  pair.here.engine().spawn(keep());
  pair.here.engine().spawn(send(kShort, kPatience, second));
  pair.run_for(kShortWhile * 2);
  EXPECT_THAT(first, HasSubstr("DeadlineExceeded"));
  EXPECT_EQ(second, "well");
}

class Room : public Credits {};
INSTANTIATE_TEST_SUITE_P(Messaging, Room, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(Room, goes_first_to_who_waited_first_and_drives_the_engine) {
  VirtualPair pair(GetParam(), {.max_message_bytes = 256, .depth = 4, .ring_bytes = 4096});
  const auto text = text_of_message(0, pair.fill(200), 200);
  messaging::MessageId later = 0;
  const auto send = [&]() -> Task<void> { later = must(co_await pair.sender->async_send(text, kPatience)); };
  pair.world.after(Duration::milliseconds(1), [&] { pair.here.engine().spawn(send()); });
  pair.world.after(Duration::milliseconds(3), [&] { pair.receiver->on_message([](const Message&) {}); });
  const auto earlier = must(pair.sender->send(text, kPatience));
  EXPECT_TRUE(pair.run_until([&] { return later != 0; }));
  EXPECT_LT(earlier, later);
}

// Of a ring: there is for short messages, not for the longest.
class RoomInRings : public Credits {};
INSTANTIATE_TEST_SUITE_P(Messaging, RoomInRings,
                         ::testing::ValuesIn(ways_of({"buffered-write", "buffered-write/offset",
                                                      "buffered-write/reversed/read", "shared-write"})),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(RoomInRings, for_what_was_refused_is_told) {
  VirtualPair pair(GetParam(), {.max_message_bytes = 1250, .depth = 512, .ring_bytes = 4096});
  std::vector<Message> held;
  for (int idle = 0; idle < 50; ++idle) {
    while (pair.sender->try_send(text_of_message(0, 0, 10))) idle = 0;
    pair.run_for(Duration::microseconds(100));
    while (auto message = pair.receiver->try_receive()) held.push_back(std::move(*message)), idle = 0;
  }
  int told = 0;
  pair.sender->on_room([&] { ++told; });
  pair.run_for(kShortWhile);
  EXPECT_EQ(told, 0);
  constexpr std::size_t kKept = 16;  // room for as many before it
  ASSERT_GT(held.size(), 2 * kKept);
  for (std::size_t i = 0; i < held.size(); ++i)
    if (i != kKept) held[i].give_back();
  EXPECT_TRUE(pair.run_until([&] { return told != 0; }));
  EXPECT_EQ(pair.sender->credits(), 0u) << "which counts the longest";
  EXPECT_TRUE(pair.sender->try_send(text_of_message(0, 0, 10)));
}

TEST_P(RoomInRings, for_what_was_too_soon_is_told) {
  Options options{.max_message_bytes = 1250, .depth = 512, .ring_bytes = 4096};
  options.rate = {.messages_per_second = 1000, .burst = 1};
  VirtualPair pair(GetParam(), options);
  std::vector<Message> held;
  const auto text = text_of_message(0, 0, 10);
  while (pair.sender->credits() != 0) {
    pair.run_for(Duration::milliseconds(2));
    static_cast<void>(pair.sender->try_send(text));
    while (auto message = pair.receiver->try_receive()) held.push_back(std::move(*message));
  }
  pair.run_for(kShortWhile);
  EXPECT_TRUE(pair.sender->try_send(text));
  EXPECT_EQ(pair.sender->try_send(text).status, SendStatus::RateLimited);
  int told = 0;
  pair.sender->on_room([&] { ++told; });
  EXPECT_TRUE(pair.run_until([&] { return told != 0; }));
  EXPECT_TRUE(pair.sender->try_send(text));
}

TEST_P(RoomInRings, for_what_found_no_buffer_is_told) {
  VirtualPair pair(GetParam(), {.max_message_bytes = 1250, .depth = 64, .ring_bytes = 8192});
  std::vector<Message> held;
  while (pair.sender->credits() != 0 && pair.sender->try_send(text_of_message(0, 0, 100))) {
    pair.run_for(Duration::milliseconds(2));
    while (auto message = pair.receiver->try_receive()) held.push_back(std::move(*message));
  }
  pair.run_for(kShortWhile);
  std::vector<Reservation> all;
  while (auto one = pair.sender->try_reserve(10)) all.push_back(std::move(*one));
  int told = 0;
  pair.sender->on_room([&] { ++told; });
  pair.run_for(kShortWhile);
  EXPECT_EQ(told, 0);
  all.clear();
  EXPECT_TRUE(pair.run_until([&] { return told != 0; }));
  auto one = pair.sender->try_reserve(10);
  ASSERT_TRUE(one);
  EXPECT_TRUE(pair.sender->try_commit(*one, 10));
}

// Nobody waits for it: who was refused asked once, and who wants its memory back needs no READ.
TEST_P(RoomInRings, is_not_looked_for_without_end) {
  for (const bool refused : {false, true}) {
    VirtualPair pair(GetParam(), {.max_message_bytes = 256, .depth = 16, .ring_bytes = 4096});
    pair.sender->on_freed([](auto) {});
    if (refused) static_cast<void>(pair.fill(200));
    pair.run_for(kShortWhile);
    const std::uint64_t before = pair.sender->counters().posts;
    pair.run_for(Duration::milliseconds(100));
    EXPECT_EQ(pair.sender->counters().posts, before) << refused;
  }
}

// Nor is a clock looked at that lets it go: only credits are missing.
TEST_P(Room, is_not_looked_for_by_turn_after_turn) {
  if (GetParam().kind.protocol == Protocol::SharedWrite || GetParam().kind.acknowledge == messaging::Acknowledge::Read)
    GTEST_SKIP() << "it looks for room, and READs to see it";
  for (const bool wants_room : {false, true}) {
    Options options{.max_message_bytes = 256, .depth = 8, .ring_bytes = 4096};
    options.rate = {.messages_per_second = 1'000'000, .burst = 16};
    VirtualPair pair(GetParam(), options);
    const auto is_ring = GetParam().kind.protocol == Protocol::BufferedRead;
    static_cast<void>(pair.fill(200));
    pair.sender->on_freed([](auto) {});
    if (wants_room && !is_ring) pair.sender->on_room([] { FAIL() << "there is none"; });
    pair.run_for(kShortWhile);
    int turns = 0;
    pair.world.run_until([&] { return ++turns, false; }, Duration::milliseconds(100));
    EXPECT_LT(turns, 1000) << wants_room;
  }
}

class RoomForBuffers : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, RoomForBuffers, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

// Who commits what goes, and reserves what is free, ahead of it: the last refusal is that of a buffer, which only he
// could free.
TEST_P(RoomForBuffers, who_fills_them_ahead_is_told_when_they_may_go) {
  Ends ends(GetParam(), {.max_message_bytes = 300, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  constexpr std::uint32_t kBytes = 290, kAll = 100;
  std::deque<messaging::Reservation> filled;
  std::uint32_t prepared = 0, sent = 0;
  const auto fill = [&] {
    while (prepared < kAll) {
      auto one = sender.try_reserve(kBytes);
      if (!one) return;
      std::ranges::copy(text_of_message(0, prepared++, kBytes), one->bytes().begin());
      filled.push_back(std::move(*one));
    }
  };
  std::function<void()> pump = [&] {
    for (bool refused = false; !refused;) {
      fill();
      if (filled.empty()) break;
      while (!filled.empty() && !refused) {
        refused = !sender.try_commit(filled.front(), kBytes);
        if (refused) break;
        filled.pop_front();
        ++sent;
      }
    }
    fill();
    if (sent != kAll) sender.on_room(pump);
  };
  pump();
  static_cast<void>(ends.engine.run_until([&] { return false; }, Duration::milliseconds(30)));
  std::uint32_t got = 0;
  ends.receiver->on_message([&](const Message& message) { EXPECT_TRUE(is_message(message, got++, kBytes)); });
  EXPECT_TRUE(ends.engine.run_until([&] { return got == kAll; }, kPatience)) << sent << " sent, " << got;
}

// It has its buffer, and passes the task that waits for one.
TEST_P(RoomForBuffers, a_commit_behind_a_task_that_waits_for_its_buffer_is_told_of_room) {
  Ends ends(GetParam(),
            {.max_message_bytes = 300, .depth = 4, .ring_bytes = 4096, .max_senders = 1, .inline_bytes = 0});
  Sender sender = ends.connect();
  constexpr std::uint32_t kBytes = 290;
  static_cast<void>(fill_up(ends, sender, kBytes));
  std::vector<messaging::Reservation> filled;
  while (auto one = sender.try_reserve(kBytes)) filled.push_back(std::move(*one));
  if (filled.empty() || sender.try_commit(filled.front(), kBytes)) GTEST_SKIP() << "nothing is refused";
  const auto text = text_of_message(0, 0, kBytes);
  bool sent = false, told = false;
  const auto send = [&]() -> Task<void> {
    static_cast<void>(co_await sender.async_send(text));
    sent = true;
  };
  ends.engine.spawn(send());
  ends.engine.run_once();
  sender.on_room([&] { told = true; });
  ends.receiver->on_message([](const Message&) {});
  EXPECT_TRUE(ends.engine.run_until([&] { return told || sent; }, kPatience));
  filled.clear();
  EXPECT_TRUE(ends.engine.run_until([&] { return sent; }, kPatience));
}

class LineForBuffers : public Line {};
INSTANTIATE_TEST_SUITE_P(Messaging, LineForBuffers, ::testing::ValuesIn(ways_of({"send-receive"})),
                         [](const auto& way) { return name_of(way.param); });

// A short one, as the last that was refused wanted no buffer.
TEST_P(LineForBuffers, who_asked_for_room_is_told_of_it_when_those_in_line_are_cancelled) {
  pair.here.engine().spawn(send(kLong, kPatience, first));
  pair.run_for(Duration::microseconds(100));
  EXPECT_EQ(pair.sender->try_send(text_of_message(0, 0, kShort)).status, SendStatus::NoCredit) << "in line";
  int told = 0;
  pair.sender->on_room([&] { ++told; });
  pair.run_for(kShortWhile);
  EXPECT_EQ(told, 0);
  pair.sender->cancel_waiting();
  pair.run_for(kShortWhile);
  EXPECT_THAT(first, HasSubstr("Cancelled"));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(pair.sender->try_send(text_of_message(0, 0, kShort)));
}

}  // namespace
}  // namespace verbena
