// SPDX-License-Identifier: Apache-2.0
// How much is under way at once, seen by how long it takes over a network on which a way takes a millisecond.
#include <algorithm>

#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;

constexpr Duration kWay = Duration::milliseconds(1), kRoundTrip = kWay * 2;

class Pipelining : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Pipelining, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

// Until all came that were sent one by one, as there is room.
Duration time_of(VirtualPair& pair, std::uint32_t messages, std::size_t bytes) {
  pair.run_for(kRoundTrip * 20);
  const Instant begin = pair.now();
  pair.take_all(bytes);
  std::uint32_t sent = 0;
  const auto send = [&]() -> Task<void> {
    for (; sent < messages; ++sent) {
      const auto text = text_of_message(0, sent, bytes);
      must(co_await pair.sender->async_send(text, kPatience));
    }
  };
  pair.here.engine().spawn(send());
  EXPECT_TRUE(pair.run_until([&] { return pair.got == messages; }));
  return pair.now() - begin;
}

// A fence holds the next READ as well, and a place in a shared ring is asked for by itself: a round trip for each.
TEST_P(Pipelining, many_messages_take_far_fewer_round_trips_where_none_needs_its_own) {
  constexpr std::uint32_t kMessages = 256;
  const bool needs_its_own = GetParam().kind.protocol == Protocol::SharedWrite || GetParam().kind.fenced;
  VirtualPair pair(GetParam(), {.max_message_bytes = 256, .depth = 32, .ring_bytes = 16384}, kWay);
  const Duration took = time_of(pair, kMessages, 256);
  EXPECT_LT(took, needs_its_own ? kRoundTrip * (kMessages + 2) : kRoundTrip * (kMessages / 8));
}

// A receiver that READs what is new learns of it half a round trip later than one that is told.
TEST_P(Pipelining, one_message_takes_the_round_trips_that_its_traits_name) {
  constexpr Duration kLooks = Duration::microseconds(100);  // at memory, now and then
  VirtualPair pair(GetParam(), {.max_message_bytes = 256, .depth = 32, .ring_bytes = 16384}, kWay);
  const Duration took = time_of(pair, 1, 256);
  const Duration asking = GetParam().kind.protocol == Protocol::BufferedRead ? kWay : Duration{};
  EXPECT_GE(took, kWay);
  EXPECT_LE(took, kWay + kRoundTrip * traits_of(GetParam().kind).round_trips + asking + kLooks);
}

// The next tail is asked for in front of a span: so there is a new one each round trip, and what just missed a tail
// is here after one round trip more, a way and the round trip of its span.
TEST(PipeliningOfSpans, buffered_read_asks_for_the_next_tail_while_a_span_is_under_way) {
  constexpr std::uint32_t kMessages = 600;
  constexpr Duration kInterval = Duration::microseconds(100), kLooks = Duration::microseconds(50);
  for (const Way& way : ways_of({"buffered-read", "buffered-read/double-mapped"})) {
    VirtualPair pair(way, {.max_message_bytes = 64, .depth = 32}, kWay);
    pair.receiver->on_message([](const Message&) {});
    must(pair.sender->send({}, kPatience));
    pair.run_for(kRoundTrip * 20);
    std::vector<Instant> put, came;
    Duration longest{};
    pair.receiver->on_message([&](const Message&) {
      longest = std::max(longest, pair.now() - put.at(pair.got++));
      if (came.empty() || came.back() != pair.now()) came.push_back(pair.now());
    });
    const auto send = [&]() -> Task<void> {
      for (std::uint32_t n = 0; n < kMessages; ++n) {
        put.push_back(pair.now());
        must(co_await pair.sender->async_send({}, kPatience));
        co_await pair.here.engine().sleep(kInterval);
      }
    };
    pair.here.engine().spawn(send());
    EXPECT_TRUE(pair.run_until([&] { return pair.got == kMessages; }));
    EXPECT_LE(longest, kRoundTrip + kWay + kRoundTrip + kLooks);
    EXPECT_GE(came.size(), static_cast<std::size_t>(kInterval.ns * kMessages / kRoundTrip.ns)) << "spans";
  }
}

}  // namespace
}  // namespace verbena
