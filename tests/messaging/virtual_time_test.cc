// SPDX-License-Identifier: Apache-2.0
// Whole programs in virtual time, over a network that loses, doubles and reorders: each message once, whole,
// in order.
#include "base/sanitizer.h"
#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;

class InVirtualTime : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, InVirtualTime, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

struct Program {
  Program(VirtualWorld& its_world, const Options& options)
      : world(its_world), there(world.add_host()), here(world.add_host()) {
    receiver.emplace(must(Receiver::create(there.engine(), options)));
    listener.emplace(must(Listener::create(there.engine())));
    listener->on_request([this] { must(receiver->accept(*listener->poll_request())); });
    sender.emplace(must(Sender::connect(here.engine(), listener->address().to_string(), options)));
  }
  Task<void> send(std::uint32_t messages) {
    for (std::uint32_t n = 0; n < messages; ++n) {
      const auto text = text_of_message(0, n, n * 61 % 2001);
      must(co_await sender->async_send(text));
    }
    must(co_await sender->async_close(kPatience));
  }
  Task<void> receive(std::uint32_t messages) {
    for (;;) {
      auto message = co_await receiver->async_receive(kPatience);
      if (!message) {
        end = message.error().to_string();
        co_return;
      }
      EXPECT_TRUE(is_message(*message, got, got * 61 % 2001)) << got;
      if (++got % 7 == 0) co_await there.engine().sleep(Duration::microseconds(got * 3));
      EXPECT_LE(got, messages);
    }
  }

  VirtualWorld& world;
  VirtualWorld::Host &there, &here;
  std::optional<Receiver> receiver;
  std::optional<Listener> listener;
  std::optional<Sender> sender;
  std::uint32_t got = 0;
  std::string end;
};

TEST_P(InVirtualTime, messages_arrive_once_whole_and_in_order_whatever_the_network_does) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = kSanitized ? 4 : 1; seed <= (kSanitized ? 5 : 12); ++seed) {
    SCOPED_TRACE(seed);
    VirtualWorld world(seed, {.loss = 0.01 * static_cast<double>(seed % 6), .duplicate = 0.02});
    Program program(world, {.kind = GetParam().kind,
                            .max_message_bytes = 2000,
                            .depth = static_cast<std::uint32_t>(1 + seed * 3),
                            .ring_bytes = 16384,
                            .max_senders = 1,
                            .connection = {.reliability = {.timeout = 8}}});
    constexpr std::uint32_t kMessages = 150;
    program.there.engine().spawn(program.receive(kMessages));
    program.here.engine().run(program.send(kMessages));
    program.here.engine().run_until([&] { return !program.end.empty(); }, kPatience);
    EXPECT_EQ(program.got, kMessages);
    EXPECT_THAT(program.end, ::testing::HasSubstr("all senders have closed"));
    EXPECT_EQ(times_without_receive(program.here.device()), 0u);
    EXPECT_EQ(times_without_receive(program.there.device()), 0u);
    lost += world.lost();
  }
  EXPECT_GT(lost, kSanitized ? 10u : 100u);
}

TEST_P(InVirtualTime, one_seed_repeats_a_run) {
  std::vector<std::uint64_t> hashes;
  for (int run = 0; run < 2; ++run) {
    VirtualWorld world(99, {.loss = 0.03});
    Program program(world,
                    {.kind = GetParam().kind, .max_message_bytes = 2000, .depth = 8, .max_senders = 1});
    program.there.engine().spawn(program.receive(40));
    program.here.engine().run(program.send(40));
    // No message outlives its receiver.
    program.here.engine().run_until([&] { return !program.end.empty(); }, kPatience);
    hashes.push_back(world.hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// By a protocol whose room no completion announces.
struct SilentRoom {
  static Options options() {
    return {.kind = {messaging::Protocol::BufferedRead},
            .max_message_bytes = 256,
            .ring_bytes = 4096,
            .max_senders = 1,
            .connection = {.keep_alive = Duration{}}};
  }
  VirtualWorld world{1, {}};
  Program program{world, options()};
  ProgressEngine& engine = program.here.engine();
};

TEST(RefusedInVirtualTime, sender_that_tries_again_is_woken_as_soon_after_many_refusals_as_after_one) {
  SilentRoom room;
  room.program.receiver->on_message([](const Message&) {});
  const Instant begin = room.engine.now();
  for (int refused = 0; refused < 300; ++refused) {
    const auto sent = [&] { return static_cast<bool>(room.program.sender->try_send(text_of_message(0, 0, 200))); };
    while (sent()) continue;
    ASSERT_TRUE(room.engine.run_until(sent, kPatience));
  }
  EXPECT_LT(room.engine.now() - begin, Duration::milliseconds(300));
}

TEST(RefusedInVirtualTime, sender_that_does_not_try_again_is_looked_after_for_a_second) {
  SilentRoom room;
  while (room.program.sender->try_send(text_of_message(0, 0, 200))) continue;
  const auto wakes = [&](Duration time) {
    int count = 0;
    room.engine.run_until([&] { return ++count, false; }, time);
    return count;
  };
  EXPECT_GT(wakes(Duration::milliseconds(500)), 10);
  wakes(Duration::seconds(2));
  EXPECT_LE(wakes(Duration::seconds(20)), 3);
}

}  // namespace
}  // namespace verbena
