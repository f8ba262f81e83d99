// SPDX-License-Identifier: Apache-2.0
// The end of a sender: what close() waits for and for how long, and what becomes of those that wait meanwhile.
#include <memory>
#include <stdexcept>

#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using ::testing::HasSubstr;

class Closing : public ::testing::TestWithParam<Way> {
 protected:
  static bool is(Protocol protocol) { return GetParam().kind.protocol == protocol; }
};
INSTANTIATE_TEST_SUITE_P(Messaging, Closing, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

// ---- What it waits for.

TEST_P(Closing, whose_receiver_stands_still_ends_in_time_and_the_sender_is_closed_all_the_same) {
  constexpr Duration kTimeout = Duration::milliseconds(50);
  constexpr std::uint32_t kMessages = 3;
  VirtualPair pair(GetParam(), small_options());
  pair.there.pause();
  for (std::uint32_t n = 0; n < kMessages; ++n) ASSERT_TRUE(pair.sender->try_send(text_of_message(0, n, kSmallBytes)));
  const Instant begin = pair.now();
  expect_error(pair.sender->close(kTimeout), ErrorCode::TimedOut, "has not said in time that it has everything");
  EXPECT_EQ(pair.now() - begin, kTimeout);
  EXPECT_TRUE(pair.sender->closed());
  expect_error(pair.sender->status(), ErrorCode::TimedOut);
  EXPECT_EQ(pair.sender->try_send({}).status, SendStatus::Closed);
  EXPECT_FALSE(pair.sender->try_reserve(1));
  expect_error(pair.sender->send({}, kPatience), ErrorCode::TimedOut);
  expect_error(pair.sender->wait_freed(kMessages + 1, kPatience), ErrorCode::TimedOut);
  expect_error(pair.sender->close(kPatience), ErrorCode::TimedOut);
  EXPECT_EQ(pair.now() - begin, kTimeout);
  // Though the sender is still there.
  pair.take_all(kSmallBytes);
  pair.there.resume();
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_LE(pair.got, is(Protocol::DirectRead) || is(Protocol::BufferedRead) ? 0u : kMessages);
  EXPECT_THAT(pair.told, HasSubstr(pair.got == kMessages ? "" : "left without closing"));
}

TEST_P(Closing, needs_no_program_that_takes_what_came_but_what_is_fetched_one_by_one) {
  VirtualPair pair(GetParam(), small_options());
  const std::uint32_t sent = pair.fill(kSmallBytes);
  const auto closed = pair.sender->close(Duration::seconds(1));
  EXPECT_EQ(pair.told, "");
  std::uint32_t arrives = sent;
  if (is(Protocol::DirectRead)) {
    expect_error(closed, ErrorCode::TimedOut);
    arrives = pair.options.depth;
    EXPECT_LT(arrives, sent);
  } else {
    must(closed);
    EXPECT_EQ(pair.sender->freed(), sent);
  }
  pair.take_all(kSmallBytes);
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.got, arrives);
  EXPECT_THAT(pair.told, HasSubstr(arrives == sent ? "well" : "left without closing"));
}

TEST_P(Closing, waits_for_a_program_that_takes_what_came_in_time) {
  VirtualPair pair(GetParam(), small_options());
  const std::uint32_t sent = pair.fill(kSmallBytes);
  pair.world.after(Duration::milliseconds(500), [&] { pair.take_all(kSmallBytes); });
  must(pair.sender->close(Duration::seconds(1)));
  EXPECT_EQ(pair.sender->freed(), sent);
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.got, sent);
  EXPECT_EQ(pair.told, "well");
  must(pair.sender->close(kPatience));
}

// ---- More than once.

TEST_P(Closing, that_is_given_up_can_be_begun_again) {
  VirtualPair pair(GetParam(), small_options());
  ASSERT_TRUE(pair.sender->try_send(text_of_message(0, 0, kSmallBytes)));
  pair.there.pause();
  bool given_up = false;
  const auto give_up = [&]() -> Task<void> {
    const auto pause = [&]() -> Task<void> { co_await pair.here.engine().sleep(Duration::milliseconds(1)); };
    static_cast<void>(co_await when_any(pair.sender->async_close(kPatience), pause()));
    given_up = true;
  };
  pair.here.engine().spawn(give_up());
  EXPECT_TRUE(pair.run_until([&] { return given_up; }));
  pair.there.resume();
  pair.take_all(kSmallBytes);
  must(pair.sender->close(kPatience));
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.told, "well");
  EXPECT_EQ(pair.sender->freed(), 1u);
}

TEST_P(Closing, whose_callback_throws_can_be_begun_again) {
  VirtualPair pair(GetParam(), small_options());
  pair.take_all(kSmallBytes);
  pair.sender->on_room([&] { throw std::runtime_error("not today"); });
  EXPECT_THROW(static_cast<void>(pair.sender->close(kPatience)), std::runtime_error);
  must(pair.sender->close(kPatience));
}

TEST_P(Closing, may_be_waited_for_by_several) {
  VirtualPair pair(GetParam(), small_options());
  pair.take_all(kSmallBytes);
  ASSERT_TRUE(pair.sender->try_send(text_of_message(0, 0, kSmallBytes)));
  int closed = 0;
  const auto close = [&]() -> Task<void> {
    must(co_await pair.sender->async_close(kPatience));
    ++closed;
  };
  for (int i = 0; i < 2; ++i) pair.here.engine().spawn(close());
  must(pair.sender->close(kPatience));
  EXPECT_TRUE(pair.run_until([&] { return closed == 2 && !pair.told.empty(); }));
  EXPECT_EQ(pair.told, "well");
}

TEST_P(Closing, says_why_nothing_goes_from_its_beginning) {
  VirtualPair pair(GetParam(), small_options());
  pair.there.pause();
  std::string closed;
  const auto close = [&]() -> Task<void> { closed = how(co_await pair.sender->async_close(kPatience)); };
  pair.here.engine().spawn(close());
  pair.run_for(Duration::microseconds(10));
  ASSERT_EQ(closed, "");
  EXPECT_TRUE(pair.sender->closed());
  EXPECT_EQ(pair.sender->try_send({}).status, SendStatus::Closed);
  expect_error(pair.sender->status(), ErrorCode::Flushed, "is being closed here");
  pair.there.resume();
  EXPECT_TRUE(pair.run_until([&] { return !closed.empty(); }));
  expect_error(pair.sender->status(), ErrorCode::Flushed, "was closed here");
}

// ---- Those that wait meanwhile.

// One that has no room, with everybody in line who can be: by tasks.
struct Waiting {
  explicit Waiting(VirtualPair& its_pair) : pair(its_pair), own(must(pair.here.device().allocate_memory(kSmallBytes))) {
    sent = pair.fill(kSmallBytes);
    auto& engine = pair.here.engine();
    engine.spawn(send());
    engine.spawn(lend());
    engine.spawn(wait_freed(sent, of_sent));
    engine.spawn(wait_freed(sent + 1, of_unsent));
    pair.run_for(Duration::milliseconds(1));
    EXPECT_EQ(sending + lending + of_unsent, "");
    pair.world.after(Duration::milliseconds(1), [this] { pair.take_all(kSmallBytes); });
  }
  Task<void> send() {
    const auto text = text_of_message(0, 0, kSmallBytes);
    sending = how(co_await pair.sender->async_send(text, kPatience));
  }
  Task<void> lend() { lending = how(co_await pair.sender->async_lend(LentMemory::of(own, 0, kSmallBytes), kPatience)); }
  Task<void> wait_freed(messaging::MessageId id, std::string& outcome) {
    outcome = how(co_await pair.sender->async_freed(id, kPatience));
  }

  VirtualPair& pair;
  MemoryRegion own;
  std::uint32_t sent = 0;
  std::string sending, lending, of_sent, of_unsent;
};

TEST_P(Closing, cancels_tasks_that_wait_for_what_does_not_come_any_more) {
  VirtualPair pair(GetParam(), small_options());
  Waiting waiting(pair);
  must(pair.sender->close(kPatience));
  EXPECT_THAT(waiting.sending, HasSubstr("Cancelled"));
  EXPECT_THAT(waiting.lending, HasSubstr("Cancelled"));
  EXPECT_THAT(waiting.of_unsent, HasSubstr("Cancelled"));
  EXPECT_EQ(waiting.of_sent, "well");
  EXPECT_TRUE(pair.run_until([&] { return !pair.told.empty(); }));
  EXPECT_EQ(pair.got, waiting.sent) << "what is cancelled was not sent";
}

TEST_P(Closing, that_ends_too_late_tells_who_waits_for_memory_why) {
  VirtualPair pair(GetParam(), small_options());
  const std::uint32_t sent = pair.fill(kSmallBytes);
  MemoryRegion own = must(pair.here.device().allocate_memory(kSmallBytes));
  pair.there.pause();
  std::string of_sent;
  const auto wait = [&]() -> Task<void> { of_sent = how(co_await pair.sender->async_freed(sent, kPatience)); };
  pair.here.engine().spawn(wait());
  expect_error(pair.sender->close(Duration::milliseconds(1)), ErrorCode::TimedOut);
  pair.run_for(Duration::milliseconds(1));
  EXPECT_EQ(of_sent.substr(0, 8), pair.sender->freed() == sent ? "well" : "TimedOut");
}

// It drives the engine, and a task of that closes.
TEST_P(Closing, cancels_who_waits_and_drives_the_engine) {
  for (int which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    VirtualPair pair(GetParam(), small_options());
    MemoryRegion own = must(pair.here.device().allocate_memory(kSmallBytes));
    const std::uint32_t sent = pair.fill(kSmallBytes);
    std::string closed;
    const auto close = [&]() -> Task<void> { closed = how(co_await pair.sender->async_close(kPatience)); };
    pair.world.after(Duration::milliseconds(1), [&] { pair.here.engine().spawn(close()); });
    pair.world.after(Duration::milliseconds(3), [&] { pair.take_all(kSmallBytes); });
    const Instant begin = pair.now();
    const auto text = text_of_message(0, 0, kSmallBytes);
    const std::string outcome = which == 0   ? how(pair.sender->send(text, kPatience))
                                : which == 1 ? how(pair.sender->lend(LentMemory::of(own, 0, kSmallBytes), kPatience))
                                             : how(pair.sender->wait_freed(sent + 1, kPatience));
    EXPECT_THAT(outcome, HasSubstr("Cancelled"));
    EXPECT_LT(pair.now() - begin, Duration::milliseconds(2)) << "at once";
    EXPECT_TRUE(pair.run_until([&] { return !closed.empty() && !pair.told.empty(); }));
    EXPECT_EQ(closed, "well");
    EXPECT_EQ(pair.got, sent);
  }
}

TEST_P(Closing, lets_who_waits_for_the_memory_of_what_was_sent_wait_on) {
  VirtualPair pair(GetParam(), small_options());
  const std::uint32_t sent = pair.fill(kSmallBytes);
  std::string closed;
  const auto close = [&]() -> Task<void> { closed = how(co_await pair.sender->async_close(kPatience)); };
  pair.here.engine().spawn(close());
  pair.world.after(Duration::milliseconds(3), [&] { pair.take_all(kSmallBytes); });
  must(pair.sender->wait_freed(sent, kPatience));
  EXPECT_TRUE(pair.run_until([&] { return !closed.empty(); }));
  EXPECT_EQ(closed, "well");
}

TEST_P(Closing, tells_who_asked_for_room_once_that_nothing_goes_any_more) {
  VirtualPair pair(GetParam(), small_options());
  static_cast<void>(pair.fill(kSmallBytes));
  int told = 0;
  pair.sender->on_room([&] { ++told; });
  pair.run_for(Duration::milliseconds(5));
  EXPECT_EQ(told, 0);
  if (is(Protocol::DirectRead)) pair.take_all(kSmallBytes);
  must(pair.sender->close(kPatience));
  pair.run_for(Duration::milliseconds(5));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(pair.sender->closed());
}

// ---- Cancelled by hand.

TEST_P(Closing, is_not_needed_to_cancel_who_waits) {
  VirtualPair pair(GetParam(), small_options());
  Waiting waiting(pair);
  const auto cancel = [&] { pair.sender->cancel_waiting(); };
  const auto cancel_soon = [&] { pair.world.after(Duration::microseconds(100), cancel); };
  cancel_soon();
  expect_error(pair.sender->send(text_of_message(0, 0, kSmallBytes), kPatience), ErrorCode::Cancelled);
  pair.run_for(Duration::microseconds(1));
  EXPECT_THAT(waiting.sending, HasSubstr("Cancelled"));
  EXPECT_THAT(waiting.lending, HasSubstr("Cancelled"));
  EXPECT_THAT(waiting.of_unsent, HasSubstr("Cancelled"));
  cancel_soon();
  expect_error(pair.sender->wait_freed(waiting.sent + 1, kPatience), ErrorCode::Cancelled);
  EXPECT_TRUE(pair.run_until([&] { return pair.got == waiting.sent; }));
  must(pair.sender->send(text_of_message(0, pair.got, kSmallBytes), kPatience));
  EXPECT_TRUE(pair.run_until([&] { return pair.got == waiting.sent + 1; }));
}

TEST_P(Closing, of_nobody_is_needed_to_cancel_who_waits_for_a_message) {
  VirtualPair pair(GetParam(), small_options());
  std::string waiting;
  const auto wait = [&]() -> Task<void> { waiting = how(co_await pair.receiver->async_receive(kPatience)); };
  pair.there.engine().spawn(wait());
  pair.world.after(Duration::milliseconds(1), [&] { pair.receiver->cancel_waiting(); });
  expect_error(pair.receiver->receive(kPatience), ErrorCode::Cancelled);
  pair.run_for(Duration::microseconds(1));
  EXPECT_THAT(waiting, HasSubstr("Cancelled"));
  ASSERT_TRUE(pair.sender->try_send(text_of_message(0, 1, kSmallBytes)));
  EXPECT_TRUE(is_message(must(pair.receiver->receive(kPatience)), 1, kSmallBytes));
}

TEST(PeerEnds, are_told_to_one_handler_that_keeps_what_it_counts) {
  Ends ends({{Protocol::SendReceive}, PathChoice::Local}, {.max_message_bytes = 64, .max_senders = 3});
  int last = 0;
  ends.receiver->on_peer_end([count = 0, &last](messaging::PeerId, const Result<void>&) mutable { last = ++count; });
  for (int i = 0; i < 3; ++i) must(ends.connect().close(kPatience));
  EXPECT_TRUE(ends.engine.run_until([&] { return last == 3; }, kPatience)) << last;
}

// As a factory moves it that returns all of them.
TEST_P(Closing, an_engine_that_moves_takes_its_ends_along) {
  Device client = must(Device::open({.path = GetParam().path})), server = must(Device::open({.path = GetParam().path}));
  Options options{.kind = GetParam().kind, .max_message_bytes = 64, .max_senders = 4}, there = options;
  there.connection.device = &server;
  std::unique_ptr<ProgressEngine> engine;
  auto first = std::make_unique<ProgressEngine>(must(ProgressEngine::create(client)));
  must(first->add(server));
  Listener listener = must(Listener::create(*first, {.device = &server}));
  Receiver receiver = must(Receiver::create(*first, there));
  listener.on_request([&] { must(receiver.accept(*listener.poll_request())); });
  Sender sender = must(Sender::connect(*first, listener.address().to_string(), options));
  engine = std::make_unique<ProgressEngine>(std::move(*first));
  first.reset();
  const auto text = text_of_message(0, 0, 32);
  const std::span<const std::byte> two[] = {text, text};
  EXPECT_TRUE(engine->run_until([&] { return sender.try_send_batch(two).taken != 0; }, kPatience));
  EXPECT_TRUE(is_message(must(receiver.receive(kPatience)), 0, 32));
  must(Sender::connect(*engine, listener.address().to_string(), options));
}

}  // namespace
}  // namespace verbena
