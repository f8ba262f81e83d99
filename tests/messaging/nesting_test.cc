// SPDX-License-Identifier: Apache-2.0
// Callbacks that run the engine: what comes meanwhile is told inside, to a depth that a stack holds, whatever waits.
#include <algorithm>
#include <functional>

#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr int kDeepest = 32;  // as the headers say

class Nesting : public ::testing::TestWithParam<Way> {
 protected:
  // Runs the engine inside, as each of the callbacks below.
  void enter() {
    deepest = std::max(deepest, ++depth);
    ends.engine.run_once();
    --depth;
  }
  Ends ends{GetParam(), {.max_message_bytes = 64, .depth = 1000, .ring_bytes = 1 << 20, .max_senders = 1}};
  Sender sender = ends.connect();
  int depth = 0, deepest = 0;
};
INSTANTIATE_TEST_SUITE_P(Messaging, Nesting, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(Nesting, of_messages_ends_however_many_wait) {
  constexpr std::uint32_t kMost = 3000;
  std::uint32_t sent = 0, got = 0;
  const auto send = [&] {
    while (sent < kMost && sender.try_send(text_of_message(0, sent, 32))) ++sent;
  };
  for (Quiet quiet(ends); !quiet.is_long(); ends.engine.run_once()) send();
  ends.receiver->on_message([&](Message message) {
    EXPECT_TRUE(is_message(message, got++, 32));
    message.give_back();
    send();
    enter();
  });
  EXPECT_TRUE(ends.engine.run_until([&] { return send(), got == kMost; }, kPatience));
  EXPECT_LE(deepest, kDeepest);
}

TEST_P(Nesting, of_memory_that_comes_back_and_of_room_ends) {
  ends.receiver->on_message([](const Message&) {});
  constexpr std::uint64_t kMost = 1000;
  const auto text = text_of_message(0, 0, 32);
  messaging::MessageId sent = 0, freed = 0;
  const auto send = [&] {
    while (sent < kMost && sender.try_send(text)) ++sent;
  };
  sender.on_freed([&](messaging::MessageId id) {
    freed = std::max(freed, id);
    send();
    enter();
  });
  std::function<void()> on_room = [&] {
    send();
    if (sent < kMost) sender.on_room(on_room);
    enter();
  };
  sender.on_room(on_room);
  EXPECT_TRUE(ends.engine.run_until([&] { return send(), freed == kMost; }, kPatience)) << freed;
  EXPECT_LE(deepest, 2 * kDeepest) << "of each";
}

// Each of them may be that deep, all together not.
TEST(Nesting, of_many_ends_ends) {
  constexpr std::uint32_t kEnds = 80, kMessages = 40;
  const Way way{must(messaging::parse_kind("buffered-write/reversed")), PathChoice::Local};
  Options options{.kind = way.kind, .max_message_bytes = 64, .depth = 64, .ring_bytes = 8192, .max_senders = 1};
  Device client = must(Device::open({.path = way.path})), server = must(Device::open({.path = way.path}));
  ProgressEngine engine = must(ProgressEngine::create(client));
  must(engine.add(server));
  Listener listener = must(Listener::create(engine, {.device = &server}));
  std::vector<Receiver> receivers;
  std::vector<Sender> senders;
  listener.on_request([&] {
    Options there = options;
    there.connection.device = &server;
    receivers.push_back(must(Receiver::create(engine, there)));
    must(receivers.back().accept(*listener.poll_request()));
  });
  for (std::uint32_t i = 0; i < kEnds; ++i) {
    senders.push_back(must(Sender::connect(engine, listener.address().to_string(), options)));
    for (std::uint32_t n = 0; n < kMessages; ++n) must(senders.back().send(text_of_message(0, n, 32)));
  }
  std::uint32_t got = 0;
  int depth = 0, deepest = 0;
  for (Receiver& receiver : receivers)
    receiver.on_message([&](const Message&) {
      ++got;
      deepest = std::max(deepest, ++depth);
      engine.run_once();
      --depth;
    });
  EXPECT_TRUE(engine.run_until([&] { return got == kEnds * kMessages; }, kPatience)) << got;
  EXPECT_LE(deepest, 1024);
}

// One whose callback cannot be called yet has ended all the same.
TEST(NestingOfEnds, leaves_nobody_waiting_who_receives_until_the_last_has_gone) {
  constexpr int kSenders = kDeepest + 8;
  const Options options{.max_message_bytes = 64, .depth = 4, .max_senders = kSenders};
  Ends ends{Way{Kind{messaging::Protocol::SendReceive}, PathChoice::Local}, options};
  std::vector<Sender> senders;
  for (int i = 0; i < kSenders; ++i) senders.push_back(ends.connect());
  int deepest = 0, depth = 0, returned = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>&) {
    deepest = std::max(deepest, ++depth);
    const auto message = ends.receiver->receive(kPatience);
    EXPECT_NE(message.error().code(), ErrorCode::DeadlineExceeded);
    --depth;
    ++returned;
  });
  senders.clear();
  EXPECT_TRUE(ends.engine.run_until([&] { return returned == kSenders; }, kPatience));
  EXPECT_LE(deepest, kDeepest);
}

}  // namespace
}  // namespace verbena
