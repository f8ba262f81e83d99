// SPDX-License-Identifier: Apache-2.0
// Waiting for room, for messages and for memory: by tasks and callbacks, with deadlines, cancelled. And the
// ways a message can be handed over.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using ::testing::HasSubstr;

class Waits : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Waits, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(Waits, tasks_send_and_receive_in_line) {
  Ends ends(GetParam(), {.max_message_bytes = 300, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  constexpr std::uint32_t kMessages = 300;
  std::uint32_t wrong = 0;
  const auto send_all = [&]() -> Task<void> {
    for (std::uint32_t n = 0; n < kMessages; ++n) {
      const auto text = text_of_message(0, n, n % 301);
      must(co_await sender.async_send(text));
    }
  };
  const auto receive_all = [&]() -> Task<void> {
    for (std::uint32_t n = 0; n < kMessages; ++n) {
      auto message = co_await ends.receiver->async_receive();
      if (!message || !is_message(*message, n, n % 301)) ++wrong;
    }
  };
  ends.engine.run(when_all(send_all(), receive_all()));
  EXPECT_EQ(wrong, 0u);
}

// While there are messages a receiver does not run its engine, however much it gives back meanwhile.
TEST_P(Waits, a_receiver_that_always_finds_a_message_gives_everything_back) {
  constexpr std::uint32_t kMessages = 3'000;
  const OpenOptions driven_here{.path = GetParam().path, .service_thread = false};
  Device client = must(Device::open(driven_here)), server = must(Device::open(driven_here));
  ProgressEngine sending = must(ProgressEngine::create(client)), receiving = must(ProgressEngine::create(server));
  Options options{.kind = GetParam().kind, .max_message_bytes = 64, .depth = 16, .ring_bytes = 4096, .max_senders = 1};
  options.connection.reliability.timeout = 20;
  Listener listener = must(Listener::create(receiving, {.device = &server}));
  Receiver receiver = must(Receiver::create(receiving, options));
  listener.on_request([&] { must(receiver.accept(must(listener.wait_request(kPatience)))); });
  std::atomic<std::uint32_t> sent{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    Sender sender = must(Sender::connect(sending, listener.address().to_string(), options));
    while (!over) {
      if (sent < kMessages && sender.try_send(text_of_message(0, sent, 64)))
        ++sent;
      else
        sending.run_once();
    }
  });
  std::uint32_t got = 0, wrong = 0;
  const Instant begin = server.now();
  for (Instant last = begin; got < kMessages && server.now() - begin < kPatience;) {
    const bool leaves_some = sent > got + 1;
    if (!leaves_some && server.now() - last < Duration::milliseconds(2)) continue;
    last = server.now();
    if (auto message = receiver.try_receive()) wrong += !is_message(*message, got++, 64);
  }
  over = true;
  other.join();
  EXPECT_EQ(got, kMessages);
  EXPECT_EQ(wrong, 0u);
}

// Where room comes without a completion, too.
TEST_P(Waits, who_tries_to_send_whenever_the_engine_wakes_up_is_woken_by_room) {
  Device client = must(Device::open({.path = GetParam().path})), server = must(Device::open({.path = GetParam().path}));
  ProgressEngine sending = must(ProgressEngine::create(client, {.wait = WaitMode::Event}));
  ProgressEngine receiving = must(ProgressEngine::create(server, {.wait = WaitMode::Event}));
  Options options{.kind = GetParam().kind, .max_message_bytes = 64, .depth = 4, .ring_bytes = 4096, .max_senders = 1};
  // Nothing else wakes it, where that may be.
  if (GetParam().kind.protocol != Protocol::SharedWrite) options.connection.keep_alive = Duration{};
  Listener listener = must(Listener::create(receiving, {.device = &server}));
  Receiver receiver = must(Receiver::create(receiving, options));
  listener.on_request([&] { must(receiver.accept(must(listener.wait_request(kPatience)))); });
  std::atomic<bool> refused{false};
  std::thread other([&] {
    Sender sender = must(Sender::connect(sending, listener.address().to_string(), options));
    std::uint32_t sent = 0;
    while (sender.try_send(text_of_message(0, sent, 64))) ++sent;
    refused = true;
    EXPECT_TRUE(sending.run_until([&] { return bool(sender.try_send(text_of_message(0, sent, 64))); }, kPatience));
    must(sender.close());
  });
  while (!refused) receiving.run_until([&] { return refused.load(); }, Duration::milliseconds(1));
  std::uint32_t got = 0, wrong = 0;
  while (auto message = receiver.receive(kPatience)) wrong += !is_message(*message, got++, 64);
  other.join();
  EXPECT_GE(got, 1u);
  EXPECT_EQ(wrong, 0u);
}

// All of a sender's buffers are reserved, and a task waits for one; some kinds send without.
TEST_P(Waits, who_waits_for_a_buffer_gets_what_a_reservation_gives_back_and_commits_do_not_wait_for_him) {
  constexpr std::uint32_t kBytes = 290;
  Ends ends(GetParam(), {.max_message_bytes = 300, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  for (const bool commits : {false, true}) {
    std::vector<messaging::Reservation> reserved;
    while (auto one = sender.try_reserve(kBytes)) reserved.push_back(std::move(*one));
    ASSERT_FALSE(reserved.empty());
    const auto text = text_of_message(0, 1, kBytes);
    bool sent = false;
    const auto send = [&]() -> Task<void> {
      must(co_await sender.async_send(text, kPatience));
      sent = true;
    };
    ends.engine.spawn(send());
    for (Quiet quiet(ends); !quiet.is_long(); ends.engine.run_once())
      if (sent || ends.receiver->try_receive()) break;
    const bool waits = !sent;
    if (waits && !commits) {
      reserved.pop_back();
    } else if (waits) {
      std::ranges::copy(text_of_message(0, 0, kBytes), reserved.back().bytes().begin());
      ASSERT_TRUE(sender.try_commit(reserved.back(), kBytes));
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, kBytes));
    }
    const Instant end = ends.engine.now() + kPatience;
    EXPECT_TRUE(ends.engine.run_until([&] { return sent; }, kPatience));
    EXPECT_LT(ends.engine.now(), end);
    EXPECT_TRUE(!waits || is_message(must(ends.receiver->receive(kPatience)), 1, kBytes));
    reserved.clear();
    const auto all_back = [&] {
      while (ends.receiver->try_receive()) continue;
      return sender.freed() == sender.counters().messages;
    };
    EXPECT_TRUE(ends.engine.run_until(all_back, kPatience));
  }
}

TEST_P(Waits, room_is_told_of_once_when_a_reservation_is_given_back_and_not_before) {
  Ends ends(GetParam(), {.max_message_bytes = 300, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  std::vector<messaging::Reservation> reserved;
  while (auto one = sender.try_reserve(300)) reserved.push_back(std::move(*one));
  int told = 0;
  const std::function<void()> again = [&] {
    ++told;
    sender.on_room(again);
  };
  sender.on_room(again);
  for (Quiet quiet(ends); !quiet.is_long();) ends.engine.run_once();
  EXPECT_EQ(told, 0);
  sender.on_room([&] { ++told; });
  for (Quiet quiet(ends); !quiet.is_long();) ends.engine.run_once();
  ASSERT_EQ(told, 0);
  reserved.pop_back();
  EXPECT_TRUE(ends.engine.run_until([&] { return told == 1; }, kPatience));
  EXPECT_TRUE(sender.try_reserve(300));
}

TEST_P(Waits, a_callback_gets_every_message) {
  Ends ends(GetParam(), {.max_message_bytes = 300, .depth = 8, .max_senders = 1});
  std::uint32_t got = 0, wrong = 0;
  ends.receiver->on_message([&](Message message) { wrong += !is_message(message, got++, 250); });
  Sender sender = ends.connect();
  constexpr std::uint32_t kMessages = 200;
  std::uint32_t sent = 0;
  const auto send_on = [&] {
    while (sent < kMessages && sender.try_send(text_of_message(0, sent, 250))) ++sent;
    return got == kMessages;
  };
  EXPECT_TRUE(ends.engine.run_until(send_on, kPatience));
  EXPECT_EQ(wrong, 0u);
}

// What it threw leaves through whoever drives, and all goes on.
TEST_P(Waits, a_callback_that_throws_leaves_the_receiver_as_it_was) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 8, .max_senders = 1});
  Sender sender = ends.connect();
  for (std::uint32_t n = 0; n < 2; ++n) must(sender.send(text_of_message(0, n, 30), kPatience));
  std::uint32_t got = 0;
  ends.receiver->on_message([&](const Message&) {
    if (++got == 1) throw std::runtime_error("not today");
  });
  const auto two = [&] { return got == 2; };
  EXPECT_THROW(ends.engine.run_until(two, kPatience), std::runtime_error);
  EXPECT_TRUE(ends.engine.run_until(two, kPatience));
  ends.receiver.reset();
}

TEST(Callbacks, one_may_run_the_engine_and_destroy_the_receiver_then) {
  Ends ends({{.protocol = Protocol::SendReceive}}, {.max_message_bytes = 64, .depth = 8, .max_senders = 1});
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 0, 30), kPatience));
  std::uint32_t got = 0;
  ends.receiver->on_message([&](Message message) {
    if (++got != 1) return;
    must(sender.send(text_of_message(0, 1, 30), kPatience));
    EXPECT_TRUE(ends.engine.run_until([&] { return got == 2; }, kPatience));
    message = {};  // the receiver outlives it
    ends.receiver.reset();
  });
  EXPECT_TRUE(ends.engine.run_until([&] { return !ends.receiver; }, kPatience));
}

// Inside it the next messages come, in order, and then the sender's end.
TEST_P(Waits, a_callback_may_run_the_engine) {
  constexpr std::uint32_t kMessages = 12;
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 16, .max_senders = 1});
  Sender sender = ends.connect();
  std::uint32_t got = 0, wrong = 0, ended = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) { ended += how ? 1u : 100u; });
  ends.receiver->on_message([&](Message message) {
    const std::uint32_t number = got++;
    if (number + 1 < kMessages) {
      must(sender.send(text_of_message(0, number + 1, 30), kPatience));
      EXPECT_TRUE(ends.engine.run_until([&] { return got > number + 1; }, kPatience));
    } else {
      must(sender.close(kPatience));
      EXPECT_TRUE(ends.engine.run_until([&] { return ended != 0; }, kPatience));
    }
    wrong += !is_message(message, number, 30);
  });
  must(sender.send(text_of_message(0, 0, 30), kPatience));
  EXPECT_TRUE(ends.engine.run_until([&] { return ended != 0; }, kPatience));
  EXPECT_EQ(got, kMessages);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(ended, 1u);
}

// The message it has stays where it is until it is given back.
TEST_P(Waits, a_callback_may_let_go_of_the_sender_and_run_the_engine) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 8, .max_senders = 1});
  Sender sender = ends.connect();
  std::uint32_t got = 0, ended = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>&) { ++ended; });
  ends.receiver->on_message([&](Message message) {
    if (got++ != 0) return;
    EXPECT_TRUE(ends.receiver->disconnect(message.peer()));
    EXPECT_TRUE(ends.engine.run_until([&] { return ended != 0; }, kPatience));
    EXPECT_TRUE(is_message(message, 0, 30));
  });
  must(sender.send(text_of_message(0, 0, 30), kPatience));
  EXPECT_TRUE(ends.engine.run_until([&] { return ended != 0; }, kPatience));
  EXPECT_EQ(ended, 1u);
  EXPECT_EQ(ends.receiver->peers(), 0u);
}

// What is told while a sender's connection ends is told inside the receiver, which is in the middle of that.
TEST_P(Waits, a_callback_of_another_may_destroy_the_receiver_while_it_ends_a_connection) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 1, .max_senders = 1});
  Sender sender = ends.connect();
  Connection other = must(Connection::prepare(ends.engine));
  must(other.close());
  Operation refused;
  refused.on_done([&](Operation&) { ends.receiver.reset(); });
  ends.receiver->on_message([&](Message message) {
    const messaging::PeerId peer = message.peer();
    message.give_back();
    EXPECT_TRUE(ends.receiver->disconnect(peer));
    other.send(refused, Segments{});
  });
  must(sender.send(text_of_message(0, 0, 30), kPatience));
  EXPECT_TRUE(ends.engine.run_until([&] { return !ends.receiver; }, kPatience));
}

TEST_P(Waits, who_is_told_of_a_senders_end_may_receive) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 8, .max_senders = 1});
  std::uint32_t ended = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>&) {
    ++ended;
    EXPECT_FALSE(ends.receiver->try_receive());
  });
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 0, 30), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 30));
  must(sender.close(kPatience));
  EXPECT_TRUE(ends.engine.run_until([&] { return ended != 0; }, kPatience));
  ends.engine.run_once();
  EXPECT_EQ(ended, 1u);
}

TEST_P(Waits, who_waits_for_room_gives_up_at_its_deadline_or_when_cancelled_and_nothing_was_sent) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 2, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  const std::uint32_t sent = fill_up(ends, sender, 256);
  expect_error(sender.send(text_of_message(0, 77, 256), Duration::milliseconds(5)),
               ErrorCode::DeadlineExceeded, "no credit before the deadline");
  std::string late, cancelled;
  const auto send_one = [&](Duration timeout, std::string& outcome) -> Task<void> {
    const auto text = text_of_message(0, 88, 256);
    outcome = how(co_await sender.async_send(text, timeout));
  };
  ends.engine.spawn(send_one(Duration::milliseconds(5), late));
  ends.engine.spawn(send_one(kPatience, cancelled));
  ASSERT_TRUE(ends.engine.run_until([&] { return !late.empty(); }, kPatience));
  EXPECT_THAT(late, HasSubstr("DeadlineExceeded"));
  EXPECT_EQ(cancelled, "");
  sender.cancel_waiting();
  ASSERT_TRUE(ends.engine.run_until([&] { return !cancelled.empty(); }, kPatience));
  EXPECT_THAT(cancelled, HasSubstr("Cancelled"));
  for (std::uint32_t n = 0; n < sent; ++n)
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 256)) << n;
  expect_error(ends.receiver->receive(Duration::milliseconds(5)), ErrorCode::DeadlineExceeded);
}

TEST_P(Waits, a_refusal_is_counted_once_however_long_it_is_waited_for) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 2, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  fill_up(ends, sender, 256);
  const auto text = text_of_message(0, 77, 256);
  auto counted = [&, before = std::uint64_t{0}]() mutable {
    const std::uint64_t now = sender.counters().no_credit + sender.counters().no_buffer;
    return now - std::exchange(before, now);
  };
  static_cast<void>(counted());
  EXPECT_FALSE(sender.try_send(text));
  EXPECT_EQ(counted(), 1u);
  EXPECT_FALSE(sender.send(text, Duration::milliseconds(5)));
  EXPECT_EQ(counted(), 1u);
  std::string late;
  const auto send_one = [&]() -> Task<void> {
    late = how(co_await sender.async_send(text, Duration::milliseconds(5)));
  };
  ends.engine.spawn(send_one());
  ends.engine.run_once();
  EXPECT_EQ(counted(), 1u);
  EXPECT_FALSE(sender.try_send(text)) << "in line";
  EXPECT_EQ(counted(), 1u);
  ASSERT_TRUE(ends.engine.run_until([&] { return !late.empty(); }, kPatience));
  EXPECT_EQ(counted(), 0u);
}

// There is nothing to look at. A processor that looks all the same does so hundreds of times in that while.
TEST_P(Waits, a_receiver_without_a_sender_sleeps) {
  Device device = must(open_standard(GetParam().path, {.promises = true, .keeps = true}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  Receiver receiver = must(Receiver::create(engine, {.kind = GetParam().kind}));
  constexpr Duration kWhile = Duration::milliseconds(20);
  constexpr std::uint64_t kFew = 20;
  std::uint64_t before = StandardContext::waits;
  expect_error(receiver.receive(kWhile), ErrorCode::DeadlineExceeded);
  EXPECT_LE(StandardContext::waits - before, kFew);
  before = StandardContext::waits;
  const auto receive_one = [&]() -> Task<void> {
    expect_error(co_await receiver.async_receive(kWhile), ErrorCode::DeadlineExceeded);
  };
  engine.run(receive_one());
  EXPECT_LE(StandardContext::waits - before, kFew);
}

TEST_P(Waits, who_waited_before_there_was_a_sender_has_its_message) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .max_senders = 2});
  const std::string address = ends.listener->address().to_string();
  std::optional<Sender> sender;
  const auto send_one = [&]() -> Task<void> {
    sender = must(co_await Sender::async_connect(ends.engine, address, ends.options));
    must(co_await sender->async_send(text_of_message(0, 1, 200), kPatience));
  };
  ends.engine.spawn(send_one());
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 200));
  ends.receiver.reset();
  Options there = ends.options;
  there.connection.device = &ends.server;
  ends.receiver.emplace(must(Receiver::create(ends.engine, there)));
  const auto receive_one = [&]() -> Task<void> {
    EXPECT_TRUE(is_message(must(co_await ends.receiver->async_receive(kPatience)), 1, 200));
  };
  ends.engine.run(when_all(receive_one(), send_one()));
}

TEST_P(Waits, who_waits_for_a_message_gives_up_at_its_deadline_or_when_cancelled) {
  Ends ends(GetParam());
  Sender sender = ends.connect();
  std::string late, cancelled;
  const auto receive_one = [&](Duration timeout, std::string& outcome) -> Task<void> {
    outcome = how(co_await ends.receiver->async_receive(timeout));
  };
  ends.engine.spawn(receive_one(Duration::milliseconds(5), late));
  ends.engine.spawn(receive_one(kPatience, cancelled));
  ASSERT_TRUE(ends.engine.run_until([&] { return !late.empty(); }, kPatience));
  EXPECT_THAT(late, HasSubstr("DeadlineExceeded"));
  ends.receiver->cancel_waiting();
  ASSERT_TRUE(ends.engine.run_until([&] { return !cancelled.empty(); }, kPatience));
  EXPECT_THAT(cancelled, HasSubstr("Cancelled"));
}

TEST_P(Waits, batches_lent_memory_and_reservations_keep_their_order) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 64, .max_senders = 1});
  Sender sender = ends.connect(42);
  MemoryRegion own = must(ends.client.allocate_memory(1000));
  const auto lent = text_of_message(0, 40, 900);
  std::copy(lent.begin(), lent.end(), own.data());
  std::vector<std::vector<std::byte>> texts;
  std::vector<std::span<const std::byte>> batch;
  for (std::uint32_t n = 0; n < 40; ++n) texts.push_back(text_of_message(0, n, n * 25));
  for (const auto& text : texts) batch.push_back(text);
  const auto sent = sender.try_send_batch(batch);
  EXPECT_TRUE(sent);
  EXPECT_EQ(sent.taken, 40u);
  EXPECT_EQ(sent.last, 40u);
  const auto id = sender.try_lend(LentMemory::of(own, 0, 900));
  ASSERT_TRUE(id);
  auto reservation = sender.try_reserve(800);
  ASSERT_TRUE(reservation);
  EXPECT_EQ(reservation->bytes().size(), 800u);
  EXPECT_EQ(sender.try_commit(*reservation, 801).status, SendStatus::TooLong);
  { EXPECT_TRUE(sender.try_reserve(1000)); }  // goes back
  const auto reserved = text_of_message(0, 41, 700);
  std::copy(reserved.begin(), reserved.end(), reservation->bytes().begin());
  EXPECT_EQ(sender.try_commit(*reservation, 700).last, 42u);
  EXPECT_TRUE(reservation->empty());
  EXPECT_EQ(sender.try_commit(*reservation, 0).status, SendStatus::NotReserved);
  for (std::uint32_t n = 0; n < 42; ++n) {
    const std::size_t bytes = n < 40 ? n * 25 : n == 40 ? 900 : 700;
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, bytes)) << n;
  }
  must(sender.wait_freed(id.last, kPatience));
  EXPECT_GE(sender.freed(), id.last);
  EXPECT_EQ(sender.counters().lent, 1u);
  EXPECT_EQ(sender.try_reserve(1001), std::nullopt);
}

TEST_P(Waits, memory_that_comes_back_is_told) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 8, .max_senders = 1});
  ends.receiver->on_message([](Message) {});
  Sender sender = ends.connect();
  MemoryRegion own = must(ends.client.allocate_memory(1000));
  messaging::MessageId told = 0;
  sender.on_freed([&](messaging::MessageId id) { told = id; });
  const auto lend = [&]() -> Task<void> {
    const auto id = must(co_await sender.async_lend(LentMemory::of(own, 0, 1000)));
    must(co_await sender.async_freed(id));
  };
  ends.engine.run(lend());
  ends.engine.run(lend());
  ASSERT_TRUE(ends.engine.run_until([&] { return told == 2; }, kPatience));
}

// Everything is sent, and nothing taken yet, when the first memory comes back.
TEST_P(Waits, who_is_told_of_memory_may_run_the_engine_until_there_is_room) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 64, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  while (sender.try_send(text_of_message(0, 0, 256))) {
  }
  bool room = false;
  const auto has_room = [&] { return room; };
  sender.on_room([&] { room = true; });
  sender.on_freed([&](messaging::MessageId) { EXPECT_TRUE(ends.engine.run_until(has_room, kPatience)); });
  const auto take_later = [&]() -> Task<void> {
    co_await ends.engine.sleep(Duration::milliseconds(20));
    ends.receiver->on_message([](Message) {});
  };
  ends.engine.spawn(take_later());
  EXPECT_TRUE(ends.engine.run_until(has_room, kPatience));
}

TEST_P(Waits, who_asks_for_room_without_having_been_refused_is_told_of_it) {
  Ends ends(GetParam(), {.max_message_bytes = 100, .depth = 1, .max_senders = 1});
  Sender sender = ends.connect();
  while (sender.credits() != 0)
    if (sender.try_send({}).status == SendStatus::NoBuffer) ends.engine.run_once();
  bool room = false;
  sender.on_room([&] { room = true; });
  const auto take_later = [&]() -> Task<void> {
    co_await ends.engine.sleep(Duration::milliseconds(5));
    ends.receiver->on_message([](Message) {});
  };
  ends.engine.spawn(take_later());
  EXPECT_TRUE(ends.engine.run_until([&] { return room; }, kPatience));
}

TEST_P(Waits, who_is_told_of_room_may_send) {
  Ends ends(GetParam(), {.max_message_bytes = 200, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
  ends.receiver->on_message([](Message) {});
  Sender sender = ends.connect();
  const std::vector<std::byte> text(200);
  constexpr int kTimes = 200;
  int told = 0, in_vain = 0;
  std::function<void()> send_all = [&] {
    ++told;
    bool sent = false;
    while (sender.try_send(text)) sent = true;
    if (!sent) ++in_vain;
    if (told < kTimes) sender.on_room(send_all);
  };
  sender.on_room(send_all);
  EXPECT_TRUE(ends.engine.run_until([&] { return told == kTimes; }, kPatience));
  EXPECT_EQ(in_vain, 0);
  ends.receiver->on_message(nullptr);
}

TEST_P(Waits, who_waits_for_memory_can_be_cancelled_too) {
  Ends ends(GetParam(), {.max_message_bytes = 200, .max_senders = 1});
  Sender sender = ends.connect();
  const auto id = must(sender.send({}, kPatience));
  std::string how;
  const auto wait = [&]() -> Task<void> {
    auto freed = co_await sender.async_freed(id + 1);
    how = freed ? "freed" : freed.error().to_string();
  };
  ends.engine.spawn(wait());
  ends.engine.run_once();
  sender.cancel_waiting();
  EXPECT_TRUE(ends.engine.run_until([&] { return !how.empty(); }, kPatience));
  EXPECT_THAT(how, ::testing::HasSubstr("Cancelled"));
}

TEST_P(Waits, who_is_told_of_memory_may_run_the_engine_until_the_rate_allows_more) {
  Ends ends(GetParam(),
            {.max_message_bytes = 100, .depth = 2, .max_senders = 1, .rate = {.messages_per_second = 10, .burst = 1}});
  ends.receiver->on_message([](Message) {});
  Sender sender = ends.connect();
  ASSERT_TRUE(sender.try_send({}));
  bool room = false;
  const auto has_room = [&] { return room; };
  sender.on_room([&] { room = true; });
  sender.on_freed([&](messaging::MessageId) { EXPECT_TRUE(ends.engine.run_until(has_room, kPatience)); });
  EXPECT_TRUE(ends.engine.run_until(has_room, kPatience));
}

// Also when its time comes between the refusal and the look at the clock that follows.
TEST_P(Waits, a_limited_sender_that_waits_each_time_is_served_each_time) {
  Ends ends(GetParam(), {.max_message_bytes = 100,
                         .depth = 64,
                         .max_senders = 1,
                         .rate = {.messages_per_second = 100'000, .burst = 1}});
  ends.receiver->on_message([](Message) {});
  Sender sender = ends.connect(5);
  const auto text = text_of_message(0, 0, 30);
  int sent = 0, refused = 0;
  const auto send = [&]() -> Task<void> {
    for (int i = 0; i < 5000; ++i) ++(co_await sender.async_send(text, Duration::milliseconds(500)) ? sent : refused);
  };
  ends.engine.run(send());
  EXPECT_EQ(sent, 5000);
  EXPECT_EQ(refused, 0);
}

TEST_P(Waits, a_limited_sender_keeps_its_rate_and_waits_for_its_turn) {
  constexpr std::int64_t kInterval = 2'000'000;  // ns between messages
  Ends ends(GetParam(), {.max_message_bytes = 100,
                         .depth = 64,
                         .max_senders = 1,
                         .rate = {.messages_per_second = 500, .burst = 4}});
  ends.receiver->on_message([](Message) {});
  Sender sender = ends.connect(5);
  const Instant begin = ends.engine.now();
  std::int64_t sent = 0;
  const auto most = [&] { return 4 + (ends.engine.now() - begin).ns / kInterval + 1; };
  SendStatus status = SendStatus::Ok;
  while (sent < 10'000 && (status = sender.try_send({}).status) == SendStatus::Ok) ++sent;
  EXPECT_GE(sent, 4);
  EXPECT_LE(sent, most());
  ASSERT_EQ(status, SendStatus::RateLimited);
  const auto send_5 = [&]() -> Task<void> {
    for (int i = 0; i < 5; ++i) must(co_await sender.async_send({}, kPatience));
  };
  ends.engine.run(send_5());
  EXPECT_LE(sent += 5, most());
  must(sender.send({}, kPatience));
  EXPECT_LE(sent += 1, most());
  EXPECT_GE(sender.counters().rate_limited, 1u);
  EXPECT_LE(sender.counters().rate_limited, 7u) << "one for each that waited";
}

// ---- Ends that do not go together.

TEST(Mismatch, another_protocol_at_the_other_end_is_told_to_both) {
  Ends ends(Way{{.protocol = Protocol::SendReceive}});
  Connection stranger = must(Connection::prepare(ends.engine));
  expect_error(stranger.connect_to(ends.listener->address().to_string(), bytes_of("hello")),
               ErrorCode::Rejected, "offer of a message protocol");
  ASSERT_EQ(ends.refused.size(), 1u);
  EXPECT_THAT(ends.refused[0], HasSubstr("ProtocolError"));
  EXPECT_EQ(ends.receiver->counters().peers_refused, 1u);
}

TEST(Mismatch, two_receivers_refuse_each_other) {
  Ends ends(Way{{.protocol = Protocol::SendReceive}});
  Receiver other = must(Receiver::create(ends.engine, ends.options));
  expect_error(other.connect(ends.listener->address().to_string()), ErrorCode::Rejected,
               "both ends are receivers");
  EXPECT_THAT(ends.refused.at(0), HasSubstr("both ends are receivers"));
}

TEST(Mismatch, the_smaller_sizes_hold_and_one_sender_too_many_is_refused) {
  Ends ends(Way{{.protocol = Protocol::SendReceive}},
            {.max_message_bytes = 100, .depth = 3, .max_senders = 1});
  Options more = ends.options;
  more.max_message_bytes = 5000;
  more.depth = 50;
  Sender sender = must(ends.try_connect(more));
  EXPECT_EQ(sender.max_message_bytes(), 100u);
  EXPECT_EQ(sender.credits(), 3u);
  expect_error(ends.try_connect(more), ErrorCode::ResourceExhausted, "try again later",
               "serves 1 sender, and takes no more");
}

// Of buffers that are allocated when the first is taken.
TEST(Mismatch, a_sender_that_would_take_long_messages_sends_the_short_ones_that_were_agreed) {
  for (const char* const name : {"direct-read", "buffered-write/offset"}) {
    SCOPED_TRACE(name);
    Ends ends(Way{must(messaging::parse_kind(name))},
              {.max_message_bytes = 256, .depth = 4, .ring_bytes = 4096, .max_senders = 1});
    Options more = ends.options;
    more.max_message_bytes = 1u << 30;
    more.depth = 10'000;
    Sender sender = must(ends.try_connect(more));
    EXPECT_EQ(sender.max_message_bytes(), 256u);
    must(sender.send(text_of_message(0, 0, 250), kPatience));
    EXPECT_TRUE(sender.try_reserve(250));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 250));
  }
}

TEST(Mismatch, options_that_no_protocol_takes_are_refused) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  expect_error(Receiver::create(engine, {.max_message_bytes = 0}), ErrorCode::InvalidArgument,
               "max_message_bytes");
  for (const Protocol protocol : messaging::all_protocols())
    expect_error(Receiver::create(engine, {.kind = {protocol}, .max_message_bytes = (1u << 31) + 64, .depth = 1}),
                 ErrorCode::InvalidArgument, "max_message_bytes is 2147483712");
  expect_error(Receiver::create(engine, {.depth = 0}), ErrorCode::InvalidArgument, "a depth of 0");
  for (const messaging::Kind& kind :
       {messaging::Kind{.commit = messaging::Commit{7}}, messaging::Kind{.acknowledge = messaging::Acknowledge{7}},
        messaging::Kind{.ring = messaging::RingMemory{7}}})
    expect_error(Receiver::create(engine, {.kind = kind}), ErrorCode::InvalidArgument, "that there is not");
  expect_error(Receiver::create(engine, {.max_senders = 0}), ErrorCode::InvalidArgument, "max_senders");
}

TEST(Kinds, choices_that_a_protocol_does_not_have_are_ignored) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  for (const auto commit : {messaging::Commit::Immediate, messaging::Commit::Offset, messaging::Commit::Reversed}) {
    const messaging::Kind kind{.protocol = Protocol::SharedWrite, .commit = commit};
    must(Receiver::create(engine, {.kind = kind, .max_message_bytes = 1792, .ring_bytes = 4096}));
  }
}

TEST(Roles, a_sender_may_listen_and_a_receiver_connect) {
  Ends ends(Way{{.protocol = Protocol::SendReceive}});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  Options there = ends.options;
  there.connection.device = &ends.server;
  std::optional<Sender> sender;
  listener.on_request([&] { sender = must(Sender::accept(ends.engine, *listener.poll_request(), there)); });
  Receiver receiver = must(Receiver::create(ends.engine, ends.options));
  EXPECT_EQ(must(receiver.connect(listener.address().to_string())), 0u);
  ASSERT_TRUE(sender);
  must(sender->send(text_of_message(0, 5, 99)));
  EXPECT_TRUE(is_message(must(receiver.receive(kPatience)), 5, 99));
  must(sender->close(kPatience));
}

}  // namespace
}  // namespace verbena
