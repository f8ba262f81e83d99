// SPDX-License-Identifier: Apache-2.0
// Two receivers of one device: one that takes nothing holds back its own sender alone, and nobody's memory grows.
#include "base/sanitizer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

class TwoReceivers : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr std::uint32_t kMessages = kSanitized ? 300 : 1000, kLongest = 512;

  TwoReceivers() : ends(GetParam(), {.max_message_bytes = kLongest, .depth = 8, .ring_bytes = 8192, .max_senders = 2}) {
    Options there = ends.options;
    there.connection.device = &ends.server;
    other.emplace(must(Receiver::create(ends.engine, there)));
    listener.emplace(must(Listener::create(ends.engine, {.device = &ends.server})));
    listener->on_request([this] { must(other->accept(*listener->poll_request())); });
    to_other.emplace(must(Sender::connect(ends.engine, listener->address().to_string(), ends.options)));
    EXPECT_TRUE(ends.engine.run_until([&] { return to_other->credits() != 0; }, kPatience));
  }
  static std::size_t size_of(std::uint32_t n) { return std::size_t{n} * 37 % (kLongest + 1); }
  // That many more messages go to the other, whole and in order.
  void pass(std::uint32_t count) {
    const std::uint32_t end = got + count;
    const auto both = [&] {
      while (sent < end && to_other->try_send(text_of_message(1, sent, size_of(sent)))) ++sent;
      while (auto message = other->try_receive()) {
        EXPECT_TRUE(is_message(*message, got, size_of(got), 1)) << got;
        ++got;
      }
      return got == end;
    };
    ASSERT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
  }
  std::vector<std::uint64_t> memory(const Sender& sender) const {
    return {ends.receiver->memory_bytes(), other->memory_bytes(), sender.memory_bytes(), to_other->memory_bytes()};
  }

  Ends ends;
  std::optional<Receiver> other;
  std::optional<Listener> listener;
  std::optional<Sender> to_other;
  std::uint32_t sent = 0, got = 0;
};
INSTANTIATE_TEST_SUITE_P(Messaging, TwoReceivers, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(TwoReceivers, one_that_takes_nothing_holds_back_its_own_sender_alone) {
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 0, kLongest), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, kLongest));
  pass(1);
  const auto before = memory(sender);
  const std::uint32_t full = fill_up(ends, sender, kLongest);
  EXPECT_GE(full, 6u);   // the depth, and what it was not told yet that it has back
  EXPECT_LE(full, 17u);  // the depth at each end; a ring of 16 and its gap
  EXPECT_EQ(sender.try_send(text_of_message(0, full, kLongest)).status, SendStatus::NoCredit);
  pass(kMessages);
  EXPECT_EQ(sender.try_send(text_of_message(0, full, kLongest)).status, SendStatus::NoCredit);
  EXPECT_EQ(memory(sender), before);
  EXPECT_EQ(ends.receiver->counters().messages, 1u);
  for (std::uint32_t n = 0; n < full; ++n)
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, kLongest)) << n;
  EXPECT_FALSE(ends.receiver->try_receive());
  must(sender.send(text_of_message(0, full, kLongest), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), full, kLongest));
  EXPECT_EQ(memory(sender), before);
  must(sender.close(kPatience));
  must(to_other->close(kPatience));
  ends.expect_a_receive_for_every_message();
}

TEST_P(TwoReceivers, one_that_keeps_all_it_took_holds_back_its_own_sender_alone) {
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 0, kLongest), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, kLongest));
  pass(1);
  const auto before = memory(sender);
  std::vector<Message> held;
  const std::uint32_t full = fill_up(ends, sender, held, kLongest);
  EXPECT_LE(full, 17u);
  pass(kMessages);
  EXPECT_EQ(sender.try_send(text_of_message(0, full, kLongest)).status, SendStatus::NoCredit);
  EXPECT_EQ(memory(sender), before);
  std::uint32_t n = 0;
  for (const Message& message : held) {
    EXPECT_TRUE(is_message(message, n, kLongest)) << n;
    ++n;
  }
  held.clear();
  for (; n < full; ++n) EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, kLongest)) << n;
  must(sender.send(text_of_message(0, full, kLongest), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), full, kLongest));
  EXPECT_EQ(memory(sender), before);
}

}  // namespace
}  // namespace verbena
