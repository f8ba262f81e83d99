// SPDX-License-Identifier: Apache-2.0
// The callback that says where a message goes: when it is called, what it may do, and that it may throw.
#include <array>
#include <deque>
#include <stdexcept>
#include <utility>

#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::PeerId;

constexpr std::uint32_t kPlaceBytes = 256, kMessageBytes = 200;

// Of the program's own memory, one behind the other and round again.
class LentPlaces {
 public:
  explicit LentPlaces(Device& device)
      : memory_(must(device.allocate_memory(kPlaceBytes * kCount, Access::LocalWrite | Access::RemoteWrite))) {}
  LentMemory next() { return LentMemory::of(memory_, given_++ % kCount * kPlaceBytes, kPlaceBytes); }
  bool next_is(const Message& message) {
    return message.bytes().data() == memory_.data() + taken_++ % kCount * kPlaceBytes;
  }

 private:
  static constexpr std::uint64_t kCount = 64;
  MemoryRegion memory_;
  std::uint64_t given_ = 0, taken_ = 0;
};

std::vector<Way> ways_with_places() {
  std::vector<Way> all = every_way();
  std::erase_if(all, [](const Way& way) {
    return way.kind.protocol != Protocol::DirectRead && way.kind.protocol != Protocol::DirectWrite;
  });
  return all;
}

class PlacesOf : public ::testing::TestWithParam<Way> {
 protected:
  static bool grants() { return GetParam().kind.protocol == Protocol::DirectWrite; }
};
INSTANTIATE_TEST_SUITE_P(Messaging, PlacesOf, ::testing::ValuesIn(ways_with_places()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(PlacesOf, the_program_is_asked_from_the_engine_alone) {
  Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = 4, .max_senders = 1});
  bool drives = true;
  std::uint32_t inside = 0, outside = 0;
  ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
    ++(drives ? inside : outside);
    return std::nullopt;
  });
  Sender sender = ends.connect();
  std::vector<Message> held;
  for (std::uint32_t n = 0; n < 40; ++n) {
    must(sender.send(text_of_message(0, n, kMessageBytes), kPatience));
    held.push_back(must(ends.receiver->receive(kPatience)));
    EXPECT_TRUE(is_message(held.back(), n, kMessageBytes)) << n;
    if (held.size() < 3) continue;
    drives = false;
    held.clear();
    drives = true;
  }
  EXPECT_GE(inside, 40u);
  EXPECT_EQ(outside, 0u) << "by a destructor of Message";
}

// A destructor of something else runs the engine, and cannot pass on what the callback throws.
TEST_P(PlacesOf, the_program_is_not_asked_inside_a_destructor) {
  Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = 4, .max_senders = 1});
  bool destroying = false;
  int asked = 0;
  ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
    EXPECT_FALSE(destroying);
    ++asked;
    return std::nullopt;
  });
  Sender sender = ends.connect();
  std::array<std::byte, 64> box{};
  const MemoryRegion memory = must(ends.client.register_memory(box, Access::LocalWrite));
  for (std::uint32_t n = 0; n < 10; ++n) {
    std::optional<Connection> other = must(Connection::prepare(ends.engine));
    Operation waits;
    other->receive(waits, memory.local());
    must(sender.send(text_of_message(0, n, kMessageBytes), kPatience));
    destroying = true;
    other.reset();
    destroying = false;
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, kMessageBytes)) << n;
  }
  EXPECT_NE(asked, 0);
}

// Whichever time it throws, in the middle of several places or not: no message is lost, nor a place that was had.
TEST_P(PlacesOf, a_callback_that_throws_costs_no_message_and_no_place) {
  constexpr std::uint32_t kMessages = 20;
  for (std::uint32_t when = 1; when <= kMessages; ++when) {
    SCOPED_TRACE(when);
    Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = grants() ? 16u : 4u, .max_senders = 1});
    LentPlaces places(ends.server);
    std::uint32_t asked = 0, sent = 0, got = 0, thrown = 0;
    ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
      if (++asked == when) throw std::runtime_error("not today");
      return places.next();
    });
    std::optional<Sender> sender;
    const auto connect = [&]() -> Task<void> {
      auto made = co_await Sender::async_connect(ends.engine, ends.listener->address().to_string(), ends.options);
      sender.emplace(must(std::move(made)));
    };
    ends.engine.spawn(connect());
    const auto exchange = [&] {
      if (sent < kMessages && sender && sender->try_send(text_of_message(0, sent, kMessageBytes))) ++sent;
      while (auto message = ends.receiver->try_receive()) {
        EXPECT_TRUE(is_message(*message, got, kMessageBytes) && places.next_is(*message)) << got;
        ++got;
      }
      return got == kMessages;
    };
    for (bool over = false; !over;) {
      try {
        EXPECT_TRUE(ends.engine.run_until(exchange, kPatience)) << got << " of " << sent;
        over = true;
      } catch (const std::runtime_error&) {
        ++thrown;
      }
    }
    EXPECT_EQ(thrown, 1u);
  }
}

TEST_P(PlacesOf, a_callback_that_throws_for_one_sender_each_time_leaves_the_others_alone) {
  Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = 4, .max_senders = 2});
  LentPlaces places(ends.server);
  bool throws = false;
  ends.receiver->on_place([&](PeerId peer, std::uint32_t) -> std::optional<LentMemory> {
    if (throws && peer == 0) throw std::runtime_error("not today");
    return places.next();
  });
  std::array<Sender, 2> senders{ends.connect(), ends.connect()};
  throws = true;
  std::array<std::uint32_t, 2> sent{}, got{};
  const auto exchange = [&] {
    for (std::uint32_t i = 0; i < 2; ++i)
      if (sent[i] < 20 && senders[i].try_send(text_of_message(i, sent[i], kMessageBytes))) ++sent[i];
    while (auto message = ends.receiver->try_receive()) {
      const PeerId peer = message->peer();
      EXPECT_TRUE(is_message(*message, got[peer], kMessageBytes, peer));
      ++got[peer];
    }
    return got[0] == 20 && got[1] == 20;
  };
  for (const Instant end = ends.client.now() + kPatience; got[1] < 20 && ends.client.now() < end;) {
    try {
      static_cast<void>(exchange());
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_EQ(got[1], 20u);
  EXPECT_LE(got[0], 4u);
  throws = false;
  EXPECT_TRUE(ends.engine.run_until(exchange, kPatience)) << got[0];
}

TEST_P(PlacesOf, a_callback_that_throws_when_a_sender_comes_leaves_no_seat_taken) {
  Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = 4, .max_senders = 1});
  bool throws = true;
  ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
    if (std::exchange(throws, false)) throw std::runtime_error("not today");
    return std::nullopt;
  });
  try {
    Sender first = must(ends.try_connect(ends.options));
    must(first.send(text_of_message(0, 0, kMessageBytes), kPatience));
    must(ends.receiver->receive(kPatience)).give_back();
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(throws);
  const auto all_taken = [&] {
    while (ends.receiver->try_receive()) continue;
    return ends.receiver->peers() == 0;
  };
  EXPECT_TRUE(ends.engine.run_until(all_taken, kPatience));
  for (Quiet quiet(ends); !quiet.is_long();) static_cast<void>(ends.receiver->try_receive());
  Sender second = ends.connect();
  must(second.send(text_of_message(0, 1, kMessageBytes), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, kMessageBytes));
}

// A program may give one back to have a place for the next.
TEST_P(PlacesOf, a_message_may_be_given_back_where_a_place_is_asked_for) {
  constexpr std::uint32_t kMessages = 200;
  Ends ends(GetParam(), {.max_message_bytes = kPlaceBytes, .depth = 16, .max_senders = 1});
  LentPlaces places(ends.server);
  std::deque<Message> held;
  ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
    if (!held.empty()) {
      held.front().give_back();
      held.pop_front();
    }
    return places.next();
  });
  Sender sender = ends.connect();
  std::uint32_t got = 0, sent = 0;
  const auto exchange = [&] {
    if (sent < kMessages && sender.try_send(text_of_message(0, sent, kMessageBytes))) ++sent;
    while (auto message = ends.receiver->try_receive()) {
      EXPECT_TRUE(is_message(*message, got, kMessageBytes)) << got;
      ++got;
      held.push_back(std::move(*message));
    }
    while (held.size() > 8) held.pop_front();
    return got == kMessages || HasFailure();
  };
  EXPECT_TRUE(ends.engine.run_until(exchange, kPatience)) << got << " of " << sent;
  ends.receiver->on_place({});
  held.clear();
}

}  // namespace
}  // namespace verbena
