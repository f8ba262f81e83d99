// SPDX-License-Identifier: Apache-2.0
// Many senders and one receiver: each one's messages in order, memory that is bounded, nobody held back by
// another.
#include <algorithm>
#include <deque>
#include <map>

#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

class ManySenders : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, ManySenders, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

// The sender of a message stands in its first four bytes, its number in the next.
std::vector<std::byte> numbered(std::uint32_t sender, std::uint32_t n, std::size_t bytes) {
  std::vector<std::byte> text = text_of_message(sender, n, bytes);
  std::memcpy(text.data(), &sender, 4);
  std::memcpy(text.data() + 4, &n, 4);
  return text;
}

// Who sends what, and what came.
class Traffic {
 public:
  Traffic(Ends& ends, std::uint32_t senders, std::uint32_t messages) : ends_(ends), messages_(messages) {
    for (std::uint32_t i = 0; i < senders; ++i) {
      senders_.push_back(ends.connect());
      sent_.push_back(0);
      got_.push_back(0);
    }
  }
  Sender& sender(std::size_t i) { return senders_[i]; }
  std::uint32_t got(std::size_t i) const { return got_[i]; }

  // One turn of everybody but `silent`; true when all is here.
  bool turn(std::optional<std::size_t> silent = {}) {
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      const auto who = static_cast<std::uint32_t>(i);
      while (silent != i && sent_[i] < messages_ && senders_[i].try_send(numbered(who, sent_[i], 8 + sent_[i] % 200))) {
        ++sent_[i];
        ++moves_;
      }
    }
    while (auto message = ends_.receiver->try_receive()) take(*message);
    for (std::size_t i = 0; i < got_.size(); ++i)
      if (silent != i && got_[i] != messages_) return false;
    return true;
  }
  void take(const Message& message) {
    std::uint32_t who = 0, n = 0;
    ASSERT_GE(message.bytes().size(), 8u);
    std::memcpy(&who, message.bytes().data(), 4);
    std::memcpy(&n, message.bytes().data() + 4, 4);
    ASSERT_LT(who, got_.size());
    EXPECT_EQ(n, got_[who]) << who;
    const auto expected = numbered(who, n, 8 + n % 200);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), message.bytes().begin(), message.bytes().end()));
    ++got_[who];
    ++moves_;
  }
  // The next message of that sender, for the caller to keep.
  Message pass_one(std::size_t i) {
    must(senders_[i].send(numbered(static_cast<std::uint32_t>(i), sent_[i], 8 + sent_[i] % 200), kPatience));
    ++sent_[i];
    Message message = must(ends_.receiver->receive(kPatience));
    take(message);
    return message;
  }
  // Turns of everybody until nothing moves any more.
  void turn_until_all_stand() {
    Quiet quiet(ends_);
    while (!quiet.is_long()) {
      const std::uint64_t before = moves_;
      static_cast<void>(turn());
      ends_.engine.run_once();
      if (moves_ != before) quiet.end();
    }
  }

 private:
  Ends& ends_;
  const std::uint32_t messages_;
  std::uint64_t moves_ = 0;  // messages that were sent, and that came
  std::deque<Sender> senders_;
  std::vector<std::uint32_t> sent_, got_;
};

TEST_P(ManySenders, each_ones_messages_come_in_order) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 32, .ring_bytes = 16384, .max_senders = 16});
  Traffic traffic(ends, 16, 200);
  EXPECT_EQ(ends.receiver->peers(), 16u);
  EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(); }, kPatience));
  for (std::size_t i = 0; i < 16; ++i) must(traffic.sender(i).close(kPatience));
  expect_error(ends.receiver->receive(kPatience), ErrorCode::Disconnected, "all senders have closed");
  EXPECT_EQ(ends.receiver->peers(), 0u);
  ends.expect_a_receive_for_every_message();
}

TEST_P(ManySenders, each_ones_messages_come_in_order_though_no_write_arrives_in_order) {
  for (const std::uint64_t seed : {1u, 20u, 300u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Ends ends(must(open_standard(GetParam().path, {.seed = seed})),
              must(open_standard(GetParam().path, {.seed = seed + 1})), GetParam(),
              {.max_message_bytes = 256, .depth = 16, .ring_bytes = 16384, .max_senders = 5}, 20,
              {.wait = WaitMode::Busy});
    Traffic traffic(ends, 5, 120);
    EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(); }, kPatience));
    for (std::size_t i = 0; i < 5; ++i) must(traffic.sender(i).close(kPatience));
    expect_error(ends.receiver->receive(kPatience), ErrorCode::Disconnected, "all senders have closed");
  }
}

TEST_P(ManySenders, one_whose_messages_are_held_holds_back_itself_alone) {
  if (GetParam().kind.protocol == Protocol::SharedWrite) GTEST_SKIP() << "they share a ring: see SharedRing";
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 16, .ring_bytes = 16384, .max_senders = 4});
  Traffic traffic(ends, 4, 100);
  std::vector<Message> held;
  const std::uint32_t sent = fill_up(ends, traffic.sender(0), held, 8);
  EXPECT_EQ(traffic.sender(0).try_send(numbered(0, 0, 8)).status, SendStatus::NoCredit);
  EXPECT_GE(held.size(), 1u);
  const std::uint64_t memory = ends.receiver->memory_bytes();
  EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(0); }, kPatience));
  EXPECT_EQ(traffic.sender(0).try_send(numbered(0, 0, 8)).status, SendStatus::NoCredit);
  // What it had sent is whole, and it goes on when that is given back.
  std::uint32_t came = 0;
  for (const Message& message : held) {
    EXPECT_TRUE(is_message(message, came, 8)) << came;
    ++came;
  }
  held.clear();
  for (; came < sent; ++came) EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), came, 8)) << came;
  EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(); }, kPatience));
  EXPECT_EQ(ends.receiver->memory_bytes(), memory);
  ends.expect_a_receive_for_every_message();
}

TEST_P(ManySenders, one_that_is_lost_is_not_noticed_by_the_others) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 16, .ring_bytes = 16384, .max_senders = 5});
  std::map<messaging::PeerId, bool> ended;
  ends.receiver->on_peer_end(
      [&](messaging::PeerId peer, const Result<void>& how) { ended[peer] = how.has_value(); });
  Traffic traffic(ends, 4, 150);
  const std::uint64_t memory = ends.receiver->memory_bytes();
  {
    Sender lost = ends.connect();
    EXPECT_EQ(ends.receiver->peers(), 5u);
    for (int turns = 0; turns < 3; ++turns) static_cast<void>(traffic.turn());
  }
  EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn() && !ended.empty(); }, kPatience));
  EXPECT_EQ(ended, (std::map<messaging::PeerId, bool>{{4, false}}));
  EXPECT_EQ(ends.receiver->peers(), 4u);
  EXPECT_EQ(ends.receiver->memory_bytes(), memory);
  Sender another = ends.connect();  // its place is free again
  EXPECT_EQ(ends.receiver->peers(), 5u);
  must(another.close(kPatience));
  for (std::size_t i = 0; i < 4; ++i) must(traffic.sender(i).close(kPatience));
  expect_error(ends.receiver->receive(kPatience), ErrorCode::Disconnected, "no sender is left; lost: 1");
}

// Of a receiver that 64 senders sent to.
std::uint64_t memory_for_64_senders(const Way& way, std::uint32_t depth, std::uint64_t ring_bytes) {
  Ends ends(way, {.depth = depth, .ring_bytes = ring_bytes, .max_senders = 64});
  Traffic traffic(ends, 64, 20);
  EXPECT_EQ(ends.receiver->peers(), 64u);
  EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(); }, kPatience));
  return ends.receiver->memory_bytes();
}

// One pool or ring for all is four times as large here as the one of each sender there.
TEST(SharedMemory, of_64_senders_is_an_eighth_of_what_separate_ones_take_at_most) {
  struct {
    const char *shared, *separate;
  } const pairs[] = {{"shared-receive", "send-receive"},
                     {"shared-write", "buffered-write"},
                     {"shared-write/double-mapped", "buffered-write/double-mapped"}};
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
    for (const auto& pair : pairs) {
      SCOPED_TRACE(pair.shared);
      const auto memory = [&](const char* kind, std::uint32_t depth, std::uint64_t ring_bytes) {
        return memory_for_64_senders({must(messaging::parse_kind(kind)), path}, depth, ring_bytes);
      };
      EXPECT_LE(8 * memory(pair.shared, 256, 256 << 10), memory(pair.separate, 64, 64 << 10));
    }
}

// What is free again in a ring goes by its order, whoever a message is of.
TEST(SharedRing, whose_first_message_is_held_stops_all_who_share_it_until_it_is_given_back) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
    for (const char* name : {"shared-write", "shared-write/double-mapped"}) {
      const Way way{must(messaging::parse_kind(name)), path};
      SCOPED_TRACE(name_of(way));
      constexpr std::uint64_t kRing = 16384;
      Ends ends(way, {.max_message_bytes = 256, .depth = 64, .ring_bytes = kRing, .max_senders = 4});
      Traffic traffic(ends, 4, 200);
      Message held = traffic.pass_one(0);
      const std::uint64_t memory = ends.receiver->memory_bytes();
      traffic.turn_until_all_stand();
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(traffic.sender(i).try_send(numbered(9, 9, 256)).status, SendStatus::NoCredit) << i;
        EXPECT_FALSE(traffic.sender(i).closed()) << i;
        EXPECT_GE(traffic.got(i), 1u) << i;
      }
      EXPECT_LE(ends.receiver->counters().bytes, kRing);
      EXPECT_EQ(ends.receiver->memory_bytes(), memory);
      held = {};
      EXPECT_TRUE(ends.engine.run_until([&] { return traffic.turn(); }, kPatience));
      EXPECT_EQ(ends.receiver->memory_bytes(), memory);
      ends.expect_a_receive_for_every_message();
    }
}

TEST(SharedReceives, who_uses_up_its_window_gets_what_others_leave) {
  Ends ends(Way{{.protocol = Protocol::SharedReceive}},
            {.max_message_bytes = 256, .depth = 64, .max_senders = 16});
  Sender busy = ends.connect();
  Sender quiet = ends.connect();
  EXPECT_EQ(busy.credits(), 4u);
  std::uint64_t most = 0;
  const auto turn = [&] {
    while (busy.try_send({})) continue;
    while (ends.receiver->try_receive()) continue;
    most = std::max(most, busy.credits());
    return most >= 16;
  };
  EXPECT_TRUE(ends.engine.run_until(turn, kPatience)) << most;
  for (int more = 0; more < 400; ++more) turn();
  EXPECT_LE(most, 32u);
  EXPECT_EQ(quiet.credits(), 4u);
  const Options hasty{.kind = {.protocol = Protocol::SharedReceive}, .connection = {.reliability = {.rnr_retry = 6}}};
  expect_error(Sender::connect(ends.engine, "127.0.0.1:1", hasty), ErrorCode::InvalidArgument,
               "an rnr_retry of 6, by which a sender that uses up the pool ends the others");
  expect_error(Receiver::create(ends.engine, {.kind = {.protocol = Protocol::SharedReceive}, .depth = 3}),
               ErrorCode::InvalidArgument, "each needs one");
  expect_error(Receiver::create(ends.engine, {.kind = {.protocol = Protocol::SharedReceive},
                                              .max_message_bytes = 1, .depth = 16'000, .max_senders = 10'000}),
               ErrorCode::InvalidArgument, "depth of 16000", "10000 senders", "36000 receives");
}

TEST(SharedReceives, who_is_held_gets_what_is_left_over_too) {
  Ends ends(Way{{.protocol = Protocol::SharedReceive}}, {.max_message_bytes = 64, .depth = 64, .max_senders = 32});
  Sender sender = ends.connect();
  std::vector<Message> held;
  const auto turn = [&] {
    while (sender.try_send({})) continue;
    while (auto message = ends.receiver->try_receive()) held.push_back(std::move(*message));
    return held.size() >= 32;
  };
  EXPECT_TRUE(ends.engine.run_until(turn, kPatience)) << held.size();
}

// How many messages of two senders go that the receiver holds: what is left over is for the first, and each has its
// own. They leave while it does, and it learns of that before it gives their messages back, or after.
std::size_t held_of_two_that_leave(Ends& ends, bool learns_first) {
  std::vector<Message> held;
  {
    Sender first = ends.connect();
    fill_up(ends, first, held, 50);
    Sender second = ends.connect();
    fill_up(ends, second, held, 50);
  }
  if (learns_first) {
    EXPECT_TRUE(ends.engine.run_until([&] { return ends.receiver->peers() == 0; }, kPatience));
  }
  const std::size_t count = held.size();
  held.clear();
  for (Quiet quiet(ends); !quiet.is_long();) ends.engine.run_once();
  return count;
}

TEST(SharedReceives, of_those_that_have_left_are_there_for_others) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    Ends ends(Way{{.protocol = Protocol::SharedReceive}, path},
              {.max_message_bytes = 64, .depth = 16, .max_senders = 2});
    const std::size_t at_first = held_of_two_that_leave(ends, true);
    EXPECT_GE(at_first, 16u);
    for (const bool learns_first : {true, false, true, false, true})
      EXPECT_EQ(held_of_two_that_leave(ends, learns_first), at_first) << learns_first;
    ends.expect_a_receive_for_every_message();
  }
}

// Takes a request that was answered already: its sender has a window by then, which it never uses.
TEST(SharedReceives, of_those_that_could_not_be_accepted_are_there_for_others) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    Ends ends(Way{{.protocol = Protocol::SharedReceive}, path},
              {.max_message_bytes = 64, .depth = 16, .max_senders = 2});
    ends.listener->on_request([&] {
      auto request = *ends.listener->poll_request();
      must(request.reject());
      expect_error(ends.receiver->accept(std::move(request)), ErrorCode::WrongState);
    });
    for (int times = 0; times < 10; ++times) expect_error(ends.try_connect(ends.options), ErrorCode::Rejected);
    EXPECT_EQ(ends.receiver->peers(), 0u);
    ends.listener->on_request([&] { must(ends.receiver->accept(*ends.listener->poll_request())); });
    Sender sender = ends.connect();
    EXPECT_EQ(sender.credits(), 8u) << "its share";
    std::vector<Message> held;
    EXPECT_EQ(fill_up(ends, sender, held, 50), 16u) << "and what nobody else has";
    ends.expect_a_receive_for_every_message();
  }
}

// One that has grown by all that was left over, when three others have come.
TEST(SharedReceives, beyond_a_share_are_kept_as_long_as_others_find_some) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    Ends ends(Way{{.protocol = Protocol::SharedReceive}, path},
              {.max_message_bytes = 64, .depth = 16, .max_senders = 4});
    Sender busy = ends.connect();
    std::vector<Message> held;
    EXPECT_EQ(fill_up(ends, busy, held, 50), 14u) << "all but what is kept for three";
    const Sender quiet[] = {ends.connect(), ends.connect(), ends.connect()};
    for (int times = 0; times < 5; ++times) {
      held.clear();  // the first of them is left for the others, who take none
      fill_up(ends, busy, held, 50);
      EXPECT_GE(held.size(), 12u) << times;
    }
    for (const Sender& other : quiet) EXPECT_EQ(other.credits(), 2u);
    ends.expect_a_receive_for_every_message();
  }
}

TEST(SharedReceives, beyond_a_share_go_to_others_that_use_up_what_they_have) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    Ends ends(Way{{.protocol = Protocol::SharedReceive}, path},
              {.max_message_bytes = 64, .depth = 16, .max_senders = 2});
    Sender first = ends.connect();
    std::vector<Message> held;
    EXPECT_EQ(fill_up(ends, first, held, 50), 16u);
    Sender second = ends.connect();
    EXPECT_EQ(second.credits(), 2u);
    held.clear();
    std::uint64_t most = 0;
    const auto turn = [&] {
      while (first.try_send({})) continue;
      while (second.try_send({})) continue;
      while (ends.receiver->try_receive()) continue;
      most = std::max(most, second.credits());
      return most >= 6;
    };
    EXPECT_TRUE(ends.engine.run_until(turn, kPatience)) << most;
    ends.expect_a_receive_for_every_message();
  }
}

// The others have grown by all that was left over.
TEST(SharedReceives, who_comes_late_sends_on_while_the_receiver_keeps_its_last_message) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    Ends ends(Way{{.protocol = Protocol::SharedReceive}, path},
              {.max_message_bytes = 256, .depth = 8, .max_senders = 3});
    Sender busy[] = {ends.connect(), ends.connect()};
    // What they may send is there in front of a turn, or comes in it: which, may be the same each time.
    const auto turn = [&] {
      std::uint64_t sent = 0;
      for (Sender& sender : busy)
        while (sender.try_send({})) ++sent;
      while (ends.receiver->try_receive()) continue;
      return std::max(sent, busy[0].credits() + busy[1].credits()) >= 7;
    };
    EXPECT_TRUE(ends.engine.run_until(turn, kPatience));
    for (int more = 0; more < 400; ++more) turn();
    Sender late = ends.connect();
    ends.engine.run_until([&] { return !ends.receiver->try_receive(); }, kPatience);
    std::optional<Message> kept;
    for (std::uint32_t n = 0; n < 50; ++n) {
      must(late.send(text_of_message(0, n, 100), kPatience));
      std::optional<Message> next;
      while (!next || next->bytes().empty()) next = must(ends.receiver->receive(kPatience));
      EXPECT_TRUE(is_message(*next, n, 100)) << n;
      kept = std::move(next);
    }
  }
}

TEST_P(ManySenders, as_many_as_can_be_named_are_refused_by_name_or_served) {
  for (const std::uint32_t most : {~0u, ~0u - 3, 1u << 31}) {
    SCOPED_TRACE(most);
    Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
    Options there = ends.options;
    there.connection.device = &ends.server;
    there.max_senders = most;
    auto receiver = Receiver::create(ends.engine, there);
    if (!receiver) {
      expect_error(receiver, ErrorCode::InvalidArgument, std::to_string(most).c_str());
      continue;
    }
    ends.receiver.emplace(std::move(*receiver));
    Sender sender = ends.connect();
    std::vector<Message> held;
    for (std::uint32_t n = 0; n < 2; ++n) {
      must(sender.send(text_of_message(0, n, 200), kPatience));
      held.push_back(must(ends.receiver->receive(kPatience)));
      EXPECT_TRUE(is_message(held.back(), n, 200));
    }
  }
}

}  // namespace
}  // namespace verbena
