// SPDX-License-Identifier: Apache-2.0
// Limits in time: the deadlines of those that wait, and Options::rate of a sender. In virtual time, where both are
// exact.
#include <array>

#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using messaging::SendResult;
using ::testing::HasSubstr;

class Limits : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Limits, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

// ---- Deadlines.

// f() ends late, and then.
template <class F>
void expect_late(VirtualPair& pair, Duration after, F f) {
  const Instant begin = pair.now();
  expect_error(f(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(pair.now() - begin, after);
}

TEST_P(Limits, who_waits_for_memory_gives_up_at_the_deadline) {
  VirtualPair pair(GetParam(), small_options());
  MemoryRegion own = must(pair.here.device().allocate_memory(kSmallBytes));
  pair.there.pause();
  const auto id = pair.sender->try_lend(LentMemory::of(own, 0, kSmallBytes)).last;
  ASSERT_EQ(id, 1u);
  constexpr Duration kWhile = Duration::milliseconds(3);
  expect_late(pair, kWhile, [&] { return pair.sender->wait_freed(id + 1, kWhile); });
  expect_late(pair, {}, [&] { return pair.sender->wait_freed(id + 1, {}); });
  const bool is_copied = GetParam().kind.protocol == Protocol::BufferedRead;
  if (is_copied)
    must(pair.sender->wait_freed(id, {}));
  else
    expect_late(pair, kWhile, [&] { return pair.sender->wait_freed(id, kWhile); });
  pair.there.resume();
  pair.receiver->on_message([](const Message&) {});
  must(pair.sender->wait_freed(id, kPatience));
}

TEST_P(Limits, a_task_that_waits_for_memory_gives_up_at_the_deadline_and_others_wait_on) {
  VirtualPair pair(GetParam(), small_options());
  struct Outcome {
    std::string how;
    Instant when{};
  };
  std::array<Outcome, 4> outcomes;
  const auto wait = [&](std::size_t which, messaging::MessageId id, Duration timeout) -> Task<void> {
    const auto freed = co_await pair.sender->async_freed(id, timeout);
    outcomes[which] = {how(freed), pair.now()};
  };
  const Instant begin = pair.now();
  auto& engine = pair.here.engine();
  engine.spawn(wait(0, 1, Duration::milliseconds(3)));
  engine.spawn(wait(1, 1, kPatience));
  engine.spawn(wait(2, 1, Duration::milliseconds(1)));
  engine.spawn(wait(3, 1, {}));
  pair.run_for(Duration::milliseconds(5));
  EXPECT_EQ(outcomes[1].how, "");
  for (const auto& [which, after] : {std::pair{0u, 3}, {2u, 1}, {3u, 0}}) {
    EXPECT_THAT(outcomes[which].how, HasSubstr("DeadlineExceeded"));
    EXPECT_EQ(outcomes[which].when - begin, Duration::milliseconds(after)) << which;
  }
  pair.receiver->on_message([](const Message&) {});
  must(pair.sender->send(text_of_message(0, 0, kSmallBytes), kPatience));
  EXPECT_TRUE(pair.run_until([&] { return !outcomes[1].how.empty(); }));
  EXPECT_EQ(outcomes[1].how, "well");
}

TEST_P(Limits, who_waits_for_room_or_for_a_message_gives_up_at_the_deadline) {
  constexpr Duration kWhile = Duration::milliseconds(3);
  VirtualPair pair(GetParam(), small_options());
  MemoryRegion own = must(pair.here.device().allocate_memory(kSmallBytes));
  const auto text = text_of_message(0, 77, kSmallBytes);
  expect_late(pair, kWhile, [&] { return pair.receiver->receive(kWhile); });
  const auto receive = [&]() -> Task<Result<Message>> { co_return co_await pair.receiver->async_receive(kWhile); };
  expect_late(pair, kWhile, [&] { return pair.there.engine().run(receive()); });
  const std::uint32_t sent = pair.fill(kSmallBytes);
  expect_late(pair, kWhile, [&] { return pair.sender->send(text, kWhile); });
  expect_late(pair, kWhile, [&] { return pair.sender->lend(LentMemory::of(own, 0, kSmallBytes), kWhile); });
  const auto send = [&]() -> Task<Result<messaging::MessageId>> {
    co_return co_await pair.sender->async_send(text, kWhile);
  };
  const auto lend = [&]() -> Task<Result<messaging::MessageId>> {
    co_return co_await pair.sender->async_lend(LentMemory::of(own, 0, kSmallBytes), kWhile);
  };
  expect_late(pair, kWhile, [&] { return pair.here.engine().run(send()); });
  expect_late(pair, kWhile, [&] { return pair.here.engine().run(lend()); });
  pair.take_all(kSmallBytes);
  must(pair.sender->close(kPatience));
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.got, sent) << "nothing was sent by those that were late";
}

// ---- The rate.

constexpr Duration kRateInterval = Duration::milliseconds(1);  // of a thousand a second

// Whose burst is whole, and which has room for everything.
struct LimitedPair : VirtualPair {
  explicit LimitedPair(const messaging::RateLimit& rate)
      : VirtualPair(Limits::GetParam(), {.max_message_bytes = 256, .depth = 32, .rate = rate}) {
    receiver->on_message([this](const Message& message) {
      came.emplace_back(message.bytes().begin(), message.bytes().end());
    });
    run_for(Duration::milliseconds(100));
    EXPECT_GE(sender->credits(), 20u);
  }
  SendResult send(const std::vector<std::vector<std::byte>>& texts) {
    const std::vector<std::span<const std::byte>> batch(texts.begin(), texts.end());
    return sender->try_send_batch(batch);
  }
  std::vector<std::vector<std::byte>> came;
};

std::vector<std::vector<std::byte>> texts_of(std::uint32_t first, std::uint32_t count,
                                             std::size_t bytes = kSmallBytes) {
  std::vector<std::vector<std::byte>> all;
  for (std::uint32_t n = first; n < first + count; ++n) all.push_back(text_of_message(0, n, bytes));
  return all;
}

void expect_taken(const SendResult& result, std::uint32_t taken, messaging::MessageId last) {
  EXPECT_EQ(result.status, SendStatus::RateLimited);
  EXPECT_EQ(result.taken, taken);
  EXPECT_EQ(result.last, last);
}

TEST_P(Limits, a_batch_goes_as_far_as_the_rate_allows) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 4});
  expect_taken(pair.send(texts_of(0, 10)), 4, 4);
  expect_taken(pair.send(texts_of(4, 6)), 0, 0);
  pair.run_for(kRateInterval);
  expect_taken(pair.send(texts_of(4, 6)), 1, 5);
  pair.run_for(kRateInterval * 2);
  expect_taken(pair.send(texts_of(5, 5)), 2, 7);
  EXPECT_EQ(pair.sender->counters().rate_limited, 4u);
  pair.run_for(kRateInterval * 50);
  const SendResult rest = pair.send(texts_of(7, 3));
  EXPECT_TRUE(rest);
  EXPECT_EQ(rest.last, 10u);
  EXPECT_EQ(pair.sender->counters().rate_limited, 4u);
  EXPECT_EQ(pair.sender->counters().messages, 10u);
  EXPECT_TRUE(pair.run_until([&] { return pair.came.size() == 10; }));
  EXPECT_EQ(pair.came, texts_of(0, 10));
}

// More than what one batch has of a protocol, or stands on the stack.
TEST_P(Limits, a_long_batch_goes_no_further_than_a_short_one) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 20});
  expect_taken(pair.send(texts_of(0, 100, 10)), 20, 20);
}

TEST_P(Limits, a_batch_of_lent_memory_goes_as_far_as_the_rate_allows) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 3});
  MemoryRegion own = must(pair.here.device().allocate_memory(kSmallBytes));
  const std::vector<LentMemory> batch(8, LentMemory::of(own, 0, kSmallBytes));
  expect_taken(pair.sender->try_lend_batch(batch), 3, 3);
  pair.run_for(kRateInterval * 2);
  expect_taken(pair.sender->try_lend_batch(batch), 2, 5);
  EXPECT_EQ(pair.sender->counters().lent, 5u);
}

TEST_P(Limits, of_bytes_nothing_goes_ahead_of_its_time) {
  LimitedPair pair({.bytes_per_second = 200'000, .burst = 4});  // 200 in a millisecond
  expect_taken(pair.send(texts_of(0, 3, 100)), 1, 1);
  pair.run_for(kRateInterval / 2 - Duration{1});
  expect_taken(pair.send(texts_of(1, 3, 200)), 0, 0);
  pair.run_for(Duration{1});
  expect_taken(pair.send(texts_of(1, 3, 200)), 1, 2);
  pair.run_for(kRateInterval - Duration{1});
  expect_taken(pair.send(texts_of(2, 3, 200)), 0, 0);
  pair.run_for(kRateInterval * 50);
  expect_taken(pair.send(texts_of(2, 3, 200)), 1, 3);
}

// What is too long is so whatever the rate; what goes before it does.
TEST_P(Limits, a_batch_stops_at_what_is_first) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 2});
  auto texts = texts_of(0, 3);
  texts[1] = text_of_message(0, 1, 257);
  SendResult result = pair.send(texts);
  EXPECT_EQ(result.status, SendStatus::TooLong);
  EXPECT_EQ(result.taken, 1u);
  expect_taken(pair.send({texts[0], texts[2], texts[1]}), 1, 2);
  EXPECT_EQ(pair.sender->counters().too_long, 1u);
  EXPECT_EQ(pair.sender->counters().rate_limited, 1u);
}

TEST_P(Limits, what_was_reserved_is_committed_when_the_rate_allows_it) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 2});
  std::vector<messaging::Reservation> reserved;
  for (std::uint32_t n = 0; n < 3; ++n) {
    reserved.push_back(std::move(*pair.sender->try_reserve(kSmallBytes)));
    const auto text = text_of_message(0, n, kSmallBytes);
    std::copy(text.begin(), text.end(), reserved.back().bytes().begin());
  }
  EXPECT_EQ(pair.sender->try_commit(reserved[0], kSmallBytes).last, 1u);
  EXPECT_EQ(pair.sender->try_commit(reserved[1], kSmallBytes).last, 2u);
  expect_taken(pair.sender->try_commit(reserved[2], kSmallBytes), 0, 0);
  EXPECT_FALSE(reserved[2].empty());
  expect_taken(pair.sender->try_send({}), 0, 0);
  EXPECT_EQ(pair.sender->counters().rate_limited, 2u);
  pair.run_for(kRateInterval - Duration{1});
  expect_taken(pair.sender->try_commit(reserved[2], kSmallBytes), 0, 0);
  pair.run_for(Duration{1});
  EXPECT_EQ(pair.sender->try_commit(reserved[2], kSmallBytes).last, 3u);
  EXPECT_TRUE(reserved[2].empty());
  expect_taken(pair.sender->try_send({}), 0, 0);
  EXPECT_TRUE(pair.run_until([&] { return pair.came.size() == 3; }));
  EXPECT_EQ(pair.came, texts_of(0, 3));
}

TEST_P(Limits, those_that_wait_go_one_by_one_as_the_rate_has_it) {
  LimitedPair pair({.messages_per_second = 1000, .burst = 1});
  std::vector<Instant> went;
  const auto send = [&]() -> Task<void> {
    must(co_await pair.sender->async_send({}, kPatience));
    went.push_back(pair.now());
  };
  const Instant begin = pair.now();
  for (int i = 0; i < 4; ++i) pair.here.engine().spawn(send());
  EXPECT_TRUE(pair.run_until([&] { return went.size() == 4; }));
  for (std::size_t i = 0; i < went.size(); ++i)
    EXPECT_EQ(went[i] - begin, kRateInterval * static_cast<std::int64_t>(i)) << i;
  bool room = false;
  pair.sender->on_room([&] { room = true; });
  pair.run_for(kRateInterval - Duration{1});
  EXPECT_FALSE(room);
  pair.run_for(Duration{2});
  EXPECT_TRUE(room);
}

}  // namespace
}  // namespace verbena
