// SPDX-License-Identifier: Apache-2.0
// Ends that are destroyed while somebody waits for them: by callbacks, and by other tasks.
#include <tuple>
#include <utility>

#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

class Destroyed : public ::testing::TestWithParam<Way> {
 protected:
  // Room for one message, so that what becomes of it is told at once.
  Ends ends{GetParam(), {.max_message_bytes = 64, .depth = 1, .max_senders = 1}};
  // Who takes part in the other way round: the receiver connects.
  Receiver other_receiver() { return must(Receiver::create(ends.engine, ends.options)); }
};
INSTANTIATE_TEST_SUITE_P(Messaging, Destroyed, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

template <class T>
Task<void> destroy(std::optional<T>& it) {
  it.reset();
  co_return;
}

TEST_P(Destroyed, a_callback_may_destroy_the_sender_that_close_waits_for) {
  std::optional<Sender> sender = ends.connect();
  sender->on_room([&] { sender.reset(); });
  expect_error(sender->close(kPatience), ErrorCode::Cancelled, "was destroyed");
  EXPECT_FALSE(sender);
}

// Memory comes back with the word that the receiver has it all, or before.
TEST_P(Destroyed, a_callback_may_destroy_the_sender_whose_memory_comes_back_while_close_waits) {
  std::optional<Sender> sender = ends.connect();
  ends.receiver->on_message([](Message) {});
  sender->on_freed([&](messaging::MessageId) { sender.reset(); });
  ASSERT_TRUE(sender->try_send(text_of_message(0, 0, 30)));
  if (const auto closed = sender->close(kPatience); !closed)
    expect_error(closed, ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, who_closes_a_sender_that_is_destroyed_is_told) {
  std::optional<Sender> sender = ends.connect();
  const auto [closed, gone] = ends.engine.run(when_all(sender->async_close(kPatience), destroy(sender)));
  std::ignore = gone;
  expect_error(closed, ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, a_sender_whose_closing_has_not_begun_is_closed) {
  std::optional<Sender> sender = ends.connect();
  Task<Result<void>> closing = sender->async_close(kPatience);
  sender.reset();
  expect_error(ends.engine.run(std::move(closing)), ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, another_sender_may_take_the_place_of_the_one_that_close_waits_for) {
  ends.receiver = must(Receiver::create(ends.engine, [&] {
    Options there = ends.options;
    there.connection.device = &ends.server;
    there.depth = 2;
    there.max_senders = 2;
    return there;
  }()));
  Sender sender = ends.connect(), next = ends.connect();
  sender.on_room([&] { sender = std::move(next); });
  expect_error(sender.close(kPatience), ErrorCode::Cancelled, "was destroyed");
  must(sender.send(text_of_message(0, 3, 30), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 3, 30));
  must(sender.close(kPatience));
}

TEST_P(Destroyed, a_sender_that_waits_for_room_may_be_destroyed) {
  std::optional<Sender> sender = ends.connect();
  while (sender->try_send(text_of_message(0, 0, 30))) continue;
  ends.engine.spawn(destroy(sender));
  expect_error(sender->send(text_of_message(0, 1, 30), kPatience), ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, a_sender_that_waits_for_its_memory_may_be_destroyed) {
  std::optional<Sender> sender = ends.connect();
  ends.engine.spawn(destroy(sender));
  expect_error(sender->wait_freed(1, kPatience), ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, a_receiver_that_waits_for_a_message_may_be_destroyed) {
  const Sender sender = ends.connect();
  ends.engine.spawn(destroy(ends.receiver));
  expect_error(ends.receiver->receive(kPatience), ErrorCode::Cancelled, "was destroyed");
}

// Arrived, and not handed out: it goes with its receiver.
TEST_P(Destroyed, a_receiver_may_be_destroyed_in_the_turn_in_which_its_message_comes) {
  Sender sender = ends.connect();
  ASSERT_TRUE(sender.try_send(text_of_message(0, 0, 30)));
  ends.engine.spawn(destroy(ends.receiver));
  if (const auto message = ends.receiver->receive(kPatience); !message)
    expect_error(message, ErrorCode::Cancelled, "was destroyed");
}

TEST_P(Destroyed, a_receiver_that_looks_for_a_message_may_be_destroyed) {
  const Sender sender = ends.connect();
  ends.engine.spawn(destroy(ends.receiver));
  EXPECT_FALSE(ends.receiver->try_receive());
  EXPECT_FALSE(ends.receiver);
}

// Each is about to resume, with a message or with nothing, when the first of them destroys what they wait for.
TEST_P(Destroyed, tasks_that_wait_for_messages_are_told_when_the_first_of_them_destroys_the_receiver) {
  for (const std::uint32_t messages : {1u, 2u}) {
    Ends own{GetParam(), {.max_message_bytes = 64, .depth = 8, .max_senders = 1}};
    Sender sender = own.connect();
    std::vector<std::string> outcomes;
    const auto wait = [&]() -> Task<void> {
      auto message = co_await own.receiver->async_receive();
      outcomes.push_back(message ? "a message" : message.error().to_string());
      if (!message) co_return;
      message->give_back();
      own.receiver.reset();
    };
    own.engine.spawn(wait());
    own.engine.spawn(wait());
    own.engine.run_once();
    for (std::uint32_t n = 0; n < messages; ++n) ASSERT_TRUE(sender.try_send(text_of_message(0, n, 30)));
    ASSERT_TRUE(own.engine.run_until([&] { return outcomes.size() == 2; }, kPatience));
    EXPECT_THAT(outcomes, ::testing::ElementsAre("a message", ::testing::HasSubstr("was destroyed")));
  }
}

TEST_P(Destroyed, a_task_that_was_given_a_message_may_be_destroyed_after_the_receiver) {
  Sender sender = ends.connect();
  const auto wait = [&]() -> Task<void> { static_cast<void>(co_await ends.receiver->async_receive()); };
  const auto destroy_both = [&]() -> Task<void> {
    static_cast<void>(co_await ends.receiver->async_receive());
    ends.receiver.reset();
  };
  const auto race = [&]() -> Task<void> { co_await when_any(destroy_both(), wait()); };
  ends.engine.spawn(race());
  ends.engine.run_once();
  ASSERT_TRUE(sender.try_send(text_of_message(0, 0, 30)));
  static_cast<void>(sender.try_send(text_of_message(0, 1, 30)));
  EXPECT_TRUE(ends.engine.run_until([&] { return !ends.receiver; }, kPatience));
}

TEST_P(Destroyed, tasks_that_wait_for_room_or_memory_are_told_when_the_first_of_them_destroys_the_sender) {
  std::optional<Sender> sender = ends.connect();
  const auto text = text_of_message(0, 0, 30);
  std::vector<Message> held;
  const messaging::MessageId sent = fill_up(ends, *sender, held, 30);
  int over = 0;
  const auto send = [&]() -> Task<void> {
    const auto outcome = co_await sender->async_send(text);
    EXPECT_FALSE(outcome);
    ++over;
    sender.reset();
  };
  const auto wait = [&]() -> Task<void> {
    static_cast<void>(co_await sender->async_freed(sent + 1));
    ++over;
    sender.reset();
  };
  ends.engine.spawn(send());
  ends.engine.spawn(send());
  ends.engine.spawn(wait());
  ends.engine.spawn(wait());
  ends.engine.run_once();
  EXPECT_TRUE(ends.receiver->disconnect(0));
  EXPECT_TRUE(ends.engine.run_until([&] { return over == 4; }, kPatience));
}

TEST_P(Destroyed, a_callback_may_destroy_the_receiver_that_connects) {
  std::optional<Receiver> receiver = other_receiver();
  ends.listener->on_request([&] { receiver.reset(); });
  expect_error(receiver->connect(ends.listener->address().to_string()), ErrorCode::Cancelled, "was destroyed");
  EXPECT_FALSE(receiver);
}

// However far it has come.
TEST_P(Destroyed, who_connects_a_receiver_that_is_destroyed_is_told) {
  for (int turns = 0; turns < 12; ++turns) {
    std::optional<Receiver> receiver = other_receiver();
    std::optional<Sender> sender;
    Options there = ends.options;
    there.connection.device = &ends.server;
    ends.listener->on_request([&] {
      if (auto accepted = Sender::accept(ends.engine, *ends.listener->poll_request(), there))
        sender.emplace(std::move(*accepted));
    });
    const auto destroy_late = [&]() -> Task<void> {
      for (int turn = 0; turn < turns; ++turn) co_await ends.engine.sleep(Duration{});
      receiver.reset();
    };
    const std::string address = ends.listener->address().to_string();
    const auto [connected, gone] = ends.engine.run(when_all(receiver->async_connect(address), destroy_late()));
    std::ignore = gone;
    if (!connected || turns == 0) expect_error(connected, ErrorCode::Cancelled, "was destroyed");
  }
}

TEST_P(Destroyed, a_receiver_whose_connecting_has_not_begun_connects_to_nobody) {
  std::optional<Receiver> receiver = other_receiver();
  Task<Result<messaging::PeerId>> connecting = receiver->async_connect(ends.listener->address().to_string());
  receiver.reset();
  expect_error(ends.engine.run(std::move(connecting)), ErrorCode::Cancelled, "was destroyed");
  EXPECT_EQ(ends.refused.size(), 0u);
}

}  // namespace
}  // namespace verbena
