// SPDX-License-Identifier: Apache-2.0
// What the ends of a protocol count, to the last message and byte: options.h says of each number what it is of.
#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using messaging::MessageId;
using ::testing::HasSubstr;

Options plain(std::uint32_t depth = 8) {
  return {.max_message_bytes = 256, .depth = depth, .ring_bytes = 16384, .inline_bytes = 100};
}

class Counters : public ::testing::TestWithParam<Way> {
 protected:
  static bool is(Protocol protocol) { return GetParam().kind.protocol == protocol; }
  // A message takes one of the sender's own buffers.
  static bool takes_a_buffer() { return !is(Protocol::BufferedWrite) && !is(Protocol::BufferedRead); }
  static bool sends_inline() {
    return is(Protocol::SendReceive) || is(Protocol::SharedReceive) || is(Protocol::DirectWrite);
  }
};
INSTANTIATE_TEST_SUITE_P(Messaging, Counters, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

std::vector<std::span<const std::byte>> batch_of(std::span<const std::byte> text, std::size_t count) {
  return std::vector<std::span<const std::byte>>(count, text);
}

TEST_P(Counters, messages_and_bytes_of_every_way_to_send) {
  VirtualPair pair(GetParam(), plain());
  Sender& sender = *pair.sender;
  EXPECT_TRUE(pair.run_until([&] { return sender.credits() >= 8; }));
  MemoryRegion own = must(pair.here.device().allocate_memory(256));
  const std::vector<std::byte> text(256);
  const auto part = [&](std::size_t bytes) { return std::span(text).first(bytes); };
  ASSERT_TRUE(sender.try_send({}));
  ASSERT_TRUE(sender.try_send(part(100)));
  ASSERT_TRUE(sender.try_send_batch({{part(101), part(7)}}));
  ASSERT_TRUE(sender.try_lend(LentMemory::of(own, 0, 256)));
  ASSERT_TRUE(sender.try_lend_batch({{LentMemory::of(own, 0, 3), LentMemory::of(own, 0, 20)}}));
  {
    auto reservation = sender.try_reserve(200);
    ASSERT_TRUE(reservation);
    ASSERT_TRUE(sender.try_commit(*reservation, 50));
    const auto unsent = sender.try_reserve(256);
  }
  constexpr std::uint64_t kMessages = 8, kBytes = 100 + 101 + 7 + 256 + 3 + 20 + 50;
  EXPECT_EQ(sender.counters().messages, kMessages);
  EXPECT_EQ(sender.counters().bytes, kBytes);
  EXPECT_EQ(sender.counters().lent, 3u);
  EXPECT_EQ(sender.counters().inlined, sends_inline() ? 3u : 0u);
  EXPECT_EQ(sender.counters().no_credit + sender.counters().no_buffer + sender.counters().too_long, 0u);
  std::vector<Message> held;
  pair.receiver->on_message([&](Message message) { held.push_back(std::move(message)); });
  EXPECT_TRUE(pair.run_until([&] { return held.size() == kMessages; }));
  EXPECT_EQ(pair.receiver->counters().messages, kMessages);
  EXPECT_EQ(pair.receiver->counters().bytes, kBytes);
  EXPECT_EQ(pair.receiver->counters().given_back, 0u);
  held[3].give_back();
  EXPECT_EQ(pair.receiver->counters().given_back, 1u);
  held.clear();
  EXPECT_EQ(pair.receiver->counters().given_back, kMessages);
}

TEST_P(Counters, messages_that_tasks_and_blocking_calls_send) {
  VirtualPair pair(GetParam(), plain(2));
  pair.receiver->on_message([](const Message&) {});
  MemoryRegion own = must(pair.here.device().allocate_memory(256));
  const std::vector<std::byte> text(200);
  const auto send = [&]() -> Task<void> {
    for (int i = 0; i < 10; ++i) {
      must(co_await pair.sender->async_send(text, kPatience));
      must(co_await pair.sender->async_lend(LentMemory::of(own, 0, 30), kPatience));
    }
  };
  pair.here.engine().run(send());
  for (int i = 0; i < 10; ++i) {
    must(pair.sender->send(text, kPatience));
    must(pair.sender->lend(LentMemory::of(own, 0, 30), kPatience));
  }
  EXPECT_TRUE(pair.run_until([&] { return pair.receiver->counters().messages == 40; }));
  EXPECT_EQ(pair.sender->counters().messages, 40u);
  EXPECT_EQ(pair.sender->counters().bytes, 20u * 230);
  EXPECT_EQ(pair.sender->counters().lent, 20u);
  EXPECT_EQ(pair.receiver->counters().bytes, 20u * 230);
}

TEST_P(Counters, refusals_for_want_of_a_buffer) {
  VirtualPair pair(GetParam(), plain());
  Sender& sender = *pair.sender;
  EXPECT_TRUE(pair.run_until([&] { return sender.credits() >= 8; }));
  pair.receiver->on_message([](const Message&) {});
  std::vector<messaging::Reservation> reserved;
  for (std::uint32_t i = 0; i < pair.options.depth; ++i) {
    auto one = sender.try_reserve(256);
    ASSERT_TRUE(one);
    reserved.push_back(std::move(*one));
    EXPECT_TRUE(one->empty() && one->bytes().empty());
  }
  EXPECT_EQ(sender.counters().no_buffer, 0u);
  EXPECT_FALSE(sender.try_reserve(1));
  EXPECT_EQ(sender.counters().no_buffer, 1u);
  const std::vector<std::byte> text(101);
  std::uint64_t refused = takes_a_buffer() ? 1u : 0u;
  EXPECT_EQ(sender.try_send(text).status, takes_a_buffer() ? SendStatus::NoBuffer : SendStatus::Ok);
  EXPECT_EQ(sender.counters().no_buffer, 1 + refused);
  EXPECT_EQ(sender.send(text, Duration::milliseconds(1)).has_value(), !takes_a_buffer());
  EXPECT_EQ(sender.counters().no_buffer, 1 + 2 * refused) << "the first alone of a send that waits";
  reserved.resize(reserved.size() - 2);
  const auto sent = sender.try_send_batch(batch_of(text, 3));
  EXPECT_EQ(sent.status, takes_a_buffer() ? SendStatus::NoBuffer : SendStatus::Ok);
  EXPECT_EQ(sent.taken, takes_a_buffer() ? 2u : 3u);
  EXPECT_EQ(sender.counters().no_buffer, 1 + 3 * refused);
  EXPECT_EQ(sender.counters().messages, takes_a_buffer() ? 2u : 5u);
}

TEST_P(Counters, refusals_for_want_of_credit) {
  VirtualPair pair(GetParam(), plain());
  Sender& sender = *pair.sender;
  std::vector<messaging::Reservation> reserved;
  reserved.push_back(std::move(*sender.try_reserve(256)));
  std::uint64_t refused = 0, sent = 0;
  const std::vector<std::byte> text(101);
  for (int quiet = 0; quiet < 3; ++quiet, pair.run_for(Duration::milliseconds(1)))
    for (;;) {
      const auto status = sender.try_send(text).status;
      refused += status == SendStatus::NoCredit ? 1u : 0u;
      if (status != SendStatus::Ok) break;
      ++sent;
      quiet = 0;
    }
  // What is reserved is one that DirectRead cannot announce.
  if (is(Protocol::DirectRead)) {
    MemoryRegion own = must(pair.here.device().allocate_memory(256));
    while (sender.try_lend(LentMemory::of(own, 0, 256))) ++sent;
    ++refused;
  }
  EXPECT_EQ(sender.counters().no_credit, refused);
  EXPECT_EQ(sender.try_commit(reserved[0], 256).status, SendStatus::NoCredit);
  EXPECT_EQ(sender.counters().no_credit, ++refused);
  EXPECT_EQ(sender.try_send_batch(batch_of(text, 40)).status, SendStatus::NoCredit);
  EXPECT_EQ(sender.counters().no_credit, ++refused);
  EXPECT_FALSE(sender.send(text, Duration::milliseconds(1)));
  EXPECT_EQ(sender.counters().no_credit, ++refused);
  EXPECT_EQ(sender.counters().messages, sent);
  EXPECT_FALSE(reserved[0].empty());
}

TEST_P(Counters, refusals_of_what_is_too_long) {
  VirtualPair pair(GetParam(), plain());
  Sender& sender = *pair.sender;
  const std::vector<std::byte> text(257);
  const std::span<const std::byte> fits = std::span(text).first(256);
  MemoryRegion own = must(pair.here.device().allocate_memory(300));
  auto reservation = sender.try_reserve(20);
  ASSERT_TRUE(reservation);
  std::uint64_t refused = 0;
  const auto counted = [&] { return sender.counters().too_long == ++refused; };
  EXPECT_EQ(sender.try_send(text).status, SendStatus::TooLong);
  EXPECT_TRUE(counted());
  const auto sent = sender.try_send_batch({{fits, text, fits}});
  EXPECT_EQ(sent.status, SendStatus::TooLong);
  EXPECT_EQ(sent.taken, 1u);
  EXPECT_TRUE(counted());
  EXPECT_EQ(sender.try_lend(LentMemory::of(own, 0, 257)).status, SendStatus::TooLong);
  EXPECT_TRUE(counted());
  EXPECT_FALSE(sender.try_reserve(257));
  EXPECT_TRUE(counted());
  EXPECT_EQ(sender.try_commit(*reservation, 21).status, SendStatus::TooLong);
  EXPECT_TRUE(counted());
  expect_error(sender.send(text, kPatience), ErrorCode::InvalidArgument);
  EXPECT_TRUE(counted());
  const auto send = [&]() -> Task<void> {
    expect_error(co_await sender.async_send(text, kPatience), ErrorCode::InvalidArgument);
  };
  pair.here.engine().run(send());
  EXPECT_TRUE(counted());
  EXPECT_EQ(sender.counters().messages, 1u);
  EXPECT_EQ(sender.counters().bytes, 256u);
}

TEST_P(Counters, refusals_of_what_is_too_long_behind_one_that_waits) {
  VirtualPair pair(GetParam(), plain());
  Sender& sender = *pair.sender;
  const std::vector<std::byte> text(257);
  const std::span<const std::byte> fits = std::span(text).first(256);
  for (int quiet = 0; quiet < 3; ++quiet, pair.run_for(Duration::milliseconds(1)))
    while (sender.try_send(fits)) quiet = 0;
  const auto send = [&](std::span<const std::byte> message, ErrorCode expected) -> Task<void> {
    expect_error(co_await sender.async_send(message, Duration::milliseconds(20)), expected);
  };
  pair.here.engine().spawn(send(fits, ErrorCode::DeadlineExceeded));
  pair.run_for(Duration::milliseconds(1));
  EXPECT_EQ(sender.try_send(fits).status, SendStatus::NoCredit);
  EXPECT_EQ(sender.try_send(text).status, SendStatus::TooLong);
  expect_error(sender.send(text), ErrorCode::InvalidArgument);
  pair.here.engine().run(send(text, ErrorCode::InvalidArgument));
  EXPECT_EQ(sender.counters().too_long, 3u);
  pair.run_for(Duration::milliseconds(30));
}

// What the receiver says of room, and the sender hears: by SENDs, one for several. Where it is a word in memory, the
// receiver counts what it WRITEs, and the sender, which is not told, nothing.
TEST_P(Counters, credits_that_the_receiver_tells) {
  constexpr std::uint32_t kMessages = 64;
  VirtualPair pair(GetParam(), plain());
  pair.receiver->on_message([](const Message&) {});
  const std::vector<std::byte> text(256);
  for (std::uint32_t n = 0; n < kMessages; ++n) must(pair.sender->send(text, kPatience));
  pair.run_for(Duration::milliseconds(1));
  const std::uint64_t told = pair.receiver->counters().credit_messages, heard = pair.sender->counters().credit_messages;
  const bool by_read = is(Protocol::BufferedWrite) && GetParam().kind.acknowledge == messaging::Acknowledge::Read;
  if (is(Protocol::SharedWrite) || by_read) {
    EXPECT_EQ(told, 0u);
  } else {
    EXPECT_GT(told, 0u);
    EXPECT_LE(told, kMessages + 1);
  }
  EXPECT_EQ(heard, is(Protocol::BufferedRead) ? 0u : told);
  const std::uint64_t quarters = kMessages / 2;  // of a depth of 8
  if (is(Protocol::SendReceive)) {
    EXPECT_EQ(told, quarters);
  }
  if (is(Protocol::DirectWrite)) {
    EXPECT_EQ(told, 1 + quarters) << "and the first grants";
  }
  if (GetParam().kind.fenced) {
    EXPECT_EQ(told, kMessages) << "one behind each READ";
  }
}

// Batches leave together: the most that a protocol joins in one, of pieces of 32 that a batch is handed to it in.
TEST_P(Counters, posts_of_a_batch) {
  constexpr std::uint32_t kMessages = 40;
  VirtualPair pair(GetParam(), plain(64));
  Sender& sender = *pair.sender;
  EXPECT_TRUE(pair.run_until([&] { return sender.credits() >= kMessages; }));
  const std::vector<std::byte> text(120);
  const std::uint64_t before = sender.counters().posts;
  ASSERT_TRUE(sender.try_send_batch(batch_of(text, kMessages)));
  const std::uint64_t posts = sender.counters().posts - before;
  if (sends_inline()) {
    EXPECT_EQ(posts, 2u) << "32 and 8";
  }
  if (is(Protocol::BufferedWrite)) {
    EXPECT_EQ(posts, 3u) << "16, 16 and 8";
  }
  if (is(Protocol::DirectRead)) {
    EXPECT_EQ(posts, kMessages) << "an announcement each";
  }
  if (is(Protocol::BufferedRead)) {
    EXPECT_EQ(posts, 0u);
  }
  MemoryRegion own = must(pair.here.device().allocate_memory(256));
  const std::vector<LentMemory> lent(20, LentMemory::of(own, 0, 256));
  const std::uint64_t between = sender.counters().posts;
  ASSERT_TRUE(sender.try_lend_batch(lent));
  const std::uint64_t of_lent = sender.counters().posts - between;
  if (sends_inline()) {
    EXPECT_EQ(of_lent, 1u);
  }
  if (is(Protocol::BufferedWrite)) {
    EXPECT_EQ(of_lent, 2u) << "16 and 4";
  }
  const auto alone = sender.try_send(text);
  ASSERT_TRUE(alone);
  if (!is(Protocol::SharedWrite) && !is(Protocol::BufferedRead)) {
    EXPECT_EQ(sender.counters().posts, between + of_lent + 1);
  }
}

TEST_P(Counters, senders_that_were_refused_and_lost) {
  VirtualPair pair(GetParam(), plain());
  std::vector<std::string> refused;
  pair.listener->on_request([&] { refused.push_back(how(pair.receiver->accept(*pair.listener->poll_request()))); });
  const std::string address = pair.listener->address().to_string();
  expect_error(Sender::connect(pair.here.engine(), address, pair.options), ErrorCode::ResourceExhausted,
               "takes no more");
  EXPECT_EQ(pair.receiver->counters().peers_refused, 1u);
  Options other = pair.options;
  other.kind = {is(Protocol::SendReceive) ? Protocol::DirectRead : Protocol::SendReceive};
  expect_error(Sender::connect(pair.here.engine(), address, other), ErrorCode::Rejected);
  EXPECT_EQ(pair.receiver->counters().peers_refused, 2u);
  must(pair.sender->close(kPatience));
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.receiver->counters().peers_lost, 0u);
  pair.told.clear();
  pair.listener->on_request([&] { must(pair.receiver->accept(*pair.listener->poll_request())); });
  pair.run_for(Duration::milliseconds(1));
  pair.sender.emplace(must(Sender::connect(pair.here.engine(), address, pair.options)));
  pair.sender.reset();
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.receiver->counters().peers_lost, 1u);
  EXPECT_EQ(pair.receiver->counters().peers_refused, 2u);
}

}  // namespace
}  // namespace verbena
