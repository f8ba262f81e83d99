// SPDX-License-Identifier: Apache-2.0
// What had arrived when an end is told, by the peer or by this end: all of it can be received, however much waits in
// the completion queue that an engine's connections share. Each end has its engine, which runs when the test says so.
#include <unistd.h>

#include <utility>

#include "async/engine_state.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr Duration kQuiet = Duration::milliseconds(50);
constexpr Duration kAWhile = Duration::milliseconds(500);
constexpr std::uint32_t kMany = 1000;  // more than one run of an engine hands out
constexpr std::uint32_t kVeryMany = 3000;

class Apart {
 public:
  Apart(const Way& way, Options its_options, std::uint64_t credits)
      : sending(must(Device::open(OpenOptions{.path = way.path}))),
        receiving(must(Device::open(OpenOptions{.path = way.path}))),
        here(must(ProgressEngine::create(sending))),
        there(must(ProgressEngine::create(receiving))),
        listener(must(Listener::create(there))) {
    its_options.kind = way.kind;
    receiver.emplace(must(Receiver::create(there, its_options)));
    listener.on_request([this] {
      while (auto request = listener.poll_request()) must(receiver->accept(std::move(*request)));
    });
    receiver->on_peer_end([this](auto, const Result<void>& result) { end = how(result); });
    const auto connect = [&]() -> Task<void> {
      sender.emplace(must(co_await Sender::async_connect(here, listener.address().to_string(), its_options)));
    };
    here.spawn(connect());
    const Instant late = sending.now() + kPatience;
    while (!sender || receiver->peers() == 0 || sender->credits() < std::max<std::uint64_t>(credits, 1)) {
      here.run_once();
      there.run_once();
      if (sending.now() > late) throw std::runtime_error("the sender has no credits");
    }
  }
  // As many as go while the receiver does nothing; so many of them have certainly arrived.
  std::uint64_t send(std::uint32_t most) {
    std::uint32_t sent = 0;
    std::uint64_t before = 0;
    for (Instant late = sending.now() + kQuiet; sending.now() < late; here.run_once()) {
      while (sent < most && sender->try_send(text_of_message(0, sent, 32))) ++sent;
      if (std::exchange(before, sent + sender->freed()) != sent + sender->freed()) late = sending.now() + kQuiet;
    }
    // Where they lie with the sender until the receiver fetches them, none has.
    return sender->kind().protocol == Protocol::BufferedRead ? 0 : sender->freed();
  }
  // Until there is no sender.
  std::uint32_t receive_all() {
    std::uint32_t got = 0;
    for (auto message = receiver->receive(kPatience); message; message = receiver->receive(kPatience), ++got)
      EXPECT_TRUE(is_message(*message, got, 32)) << got;
    return got;
  }

  Device sending, receiving;
  ProgressEngine here, there;
  Listener listener;
  std::optional<Receiver> receiver;
  std::optional<Sender> sender;
  std::string end;
};

class Arrived : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Arrived, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(Arrived, messages_can_be_received_after_their_sender_is_let_go) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 16, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(5);
  EXPECT_TRUE(ends.receiver->disconnect(0));
  EXPECT_GE(ends.receive_all(), arrived);
  EXPECT_THAT(ends.end, ::testing::HasSubstr("let go of this sender"));
}

// Those that need the receiver for each message are left out: little has arrived by itself.
class ManyArrived : public Arrived {};
INSTANTIATE_TEST_SUITE_P(Messaging, ManyArrived, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
                             for (const char* name : {"send-receive", "shared-receive", "buffered-write",
                                                      "shared-write", "direct-write"})
                               ways.push_back({must(messaging::parse_kind(name)), path});
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(ManyArrived, messages_can_be_received_after_their_sender_has_gone) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(kMany);
  ends.sender.reset();
  ::usleep(20'000);  // that it went has arrived, too
  EXPECT_GE(ends.receive_all(), arrived);
}

TEST_P(ManyArrived, messages_are_handed_to_a_callback_after_their_sender_has_gone) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(kMany);
  ends.sender.reset();
  ::usleep(20'000);
  std::uint64_t got = 0;
  ends.receiver->on_message([&](const Message& message) {
    EXPECT_TRUE(is_message(message, static_cast<std::uint32_t>(got), 32));
    ++got;
  });
  EXPECT_TRUE(ends.there.run_until([&] { return !ends.end.empty(); }, kPatience));
  EXPECT_GE(got, arrived);
}

TEST_P(ManyArrived, messages_can_be_received_after_their_sender_is_let_go) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(kMany);
  EXPECT_TRUE(ends.receiver->disconnect(0));
  EXPECT_GE(ends.receive_all(), arrived);
}

// A callback takes 64 in a turn of its own, and a task one: what is put off is counted by runs of the engine.
TEST_P(ManyArrived, messages_are_handed_to_a_callback_after_their_sender_is_let_go) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = kVeryMany, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(kVeryMany);
  std::uint64_t got = 0;
  ends.receiver->on_message([&](const Message& message) {
    EXPECT_TRUE(is_message(message, static_cast<std::uint32_t>(got), 32));
    ++got;
  });
  EXPECT_TRUE(ends.receiver->disconnect(0));
  EXPECT_TRUE(ends.there.run_until([&] { return !ends.end.empty(); }, kPatience));
  EXPECT_GE(got, arrived);
}

TEST_P(ManyArrived, messages_are_handed_to_a_task_after_their_sender_is_let_go) {
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = kVeryMany, .max_senders = 1}, 1);
  const std::uint64_t arrived = ends.send(kVeryMany);
  std::uint64_t got = 0;
  bool over = false;
  const auto receive = [&]() -> Task<void> {
    while (co_await ends.receiver->async_receive()) ++got;
    over = true;
  };
  EXPECT_TRUE(ends.receiver->disconnect(0));
  ends.there.spawn(receive());
  EXPECT_TRUE(ends.there.run_until([&] { return over; }, kPatience));
  EXPECT_GE(got, arrived);
}

// The first went while a third filled the queue, and its end is put off; the second goes when that is about to be told.
TEST(Arrived, messages_of_one_that_goes_while_anothers_end_is_put_off_can_be_received) {
  Apart ends(Way{{.protocol = Protocol::SendReceive}}, {.max_message_bytes = 64, .depth = 256, .max_senders = 2}, 1);
  std::size_t told = 0;
  ends.receiver->on_peer_end([&](auto, const Result<void>&) { ++told; });
  Listener listener = must(Listener::create(ends.there));
  constexpr std::uint32_t kNoise = 2000;
  const QueuePairCapabilities queues{.max_send_requests = kNoise, .max_receive_requests = kNoise};
  std::optional<Connection> in, out;
  std::optional<Sender> second;
  const auto post_receive = [&] {
    const ReceiveRequest request{1, {}};
    static_cast<void>(in->post_receive({&request, 1}));
  };
  listener.on_request([&] {
    in = must(listener.poll_request()->accept(must(Connection::prepare(ends.there, {.queues = queues}))));
    in->on_completion([&](const Completion& completion) {
      if (completion.status == CompletionStatus::Success) post_receive();
    });
    for (std::uint32_t i = 0; i < kNoise; ++i) post_receive();
  });
  const auto connect = [&]() -> Task<void> {
    Options options{.max_message_bytes = 64, .depth = 256};
    options.kind = {.protocol = Protocol::SendReceive};
    second = must(co_await Sender::async_connect(ends.here, ends.listener.address().to_string(), options));
    out = must(co_await Connection::async_connect(ends.here, listener.address().to_string(), {.queues = queues}));
  };
  ends.here.spawn(connect());
  const auto run_both = [&](int runs) {
    for (int i = 0; i < runs; ++i) ends.here.run_once(), ends.there.run_once();
  };
  while (!second || !out || !in || ends.receiver->peers() != 2) run_both(1);
  run_both(100);
  const SendRequest empty;
  const auto make_noise = [&](Duration time) {
    for (const Instant end = ends.sending.now() + time; ends.sending.now() < end; ends.here.run_once())
      while (out->post_send({&empty, 1})) continue;
  };
  make_noise(Duration::milliseconds(15));
  ends.sender.reset();
  for (std::uint32_t run = 1; run < ends.there.state().runs_to_hand_out(); ++run) {
    ends.there.run_once();
    make_noise(Duration::milliseconds(15));
  }
  constexpr std::uint32_t kLast = 200;
  std::uint32_t sent = 0;
  while (sent < kLast && second->try_send(text_of_message(0, sent, 32))) ++sent;
  for (const Instant end = ends.sending.now() + kQuiet; ends.sending.now() < end;) ends.here.run_once();
  const std::uint64_t arrived = second->freed();
  EXPECT_EQ(arrived, kLast);
  second.reset();
  ::usleep(20'000);
  std::uint64_t got = 0;
  ends.receiver->on_message([&](const Message&) { ++got; });
  EXPECT_TRUE(ends.there.run_until([&] { return told == 2; }, kPatience));
  EXPECT_GE(got, arrived);
}

// However many of them let go of a sender, which is there or not.
TEST(Arrived, completions_are_handed_out_one_after_the_other) {
  Apart ends(Way{{.protocol = Protocol::SendReceive}}, {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, 1);
  Listener listener = must(Listener::create(ends.there));
  const ConnectionOptions options{
      .queues = {.max_send_requests = kMany, .max_receive_requests = kMany, .max_inline_bytes = 64}};
  std::optional<Connection> in, out;
  listener.on_request([&] {
    in = must(must(listener.wait_request(kPatience)).accept(must(Connection::prepare(ends.there, options))));
    for (std::uint32_t i = 0; i < kMany; ++i) {
      const ReceiveRequest request{i, {}};
      EXPECT_TRUE(in->post_receive({&request, 1}));
    }
  });
  const auto connect = [&]() -> Task<void> {
    out = must(co_await Connection::async_connect(ends.here, listener.address().to_string(), options));
  };
  ends.here.spawn(connect());
  while (!out || !in) ends.here.run_once(), ends.there.run_once();
  int depth = 0, deepest = 0;
  std::uint64_t next = 0;
  in->on_completion([&](const Completion& completion) {
    if (completion.id >= kMany) return;
    deepest = std::max(deepest, ++depth);
    EXPECT_EQ(completion.id, next++);
    static_cast<void>(ends.receiver->disconnect(static_cast<messaging::PeerId>(completion.id % 3)));
    --depth;
  });
  SendRequest request;
  for (std::uint32_t i = 0; i < kMany; ++i) EXPECT_TRUE(out->post_send({&request, 1}));
  const Instant late = ends.sending.now() + kPatience;
  while (next < kMany && ends.sending.now() < late) ends.here.run_once(), ends.there.run_once();
  EXPECT_EQ(next, kMany);
  EXPECT_EQ(deepest, 1);
}

// Each of those inside hands out one completion until it is over itself: none of them is a run that counts.
TEST(Arrived, completions_are_told_before_an_end_though_callbacks_run_the_engine) {
  Apart ends(Way{{.protocol = Protocol::SendReceive}}, {.max_message_bytes = 64, .depth = 8, .max_senders = 1}, 1);
  Listener listener = must(Listener::create(ends.there));
  const ConnectionOptions options{.queues = {.max_send_requests = kVeryMany, .max_receive_requests = kVeryMany}};
  std::optional<Connection> in, out;
  listener.on_request([&] {
    in = must(listener.poll_request()->accept(must(Connection::prepare(ends.there, options))));
    for (std::uint32_t i = 0; i < kVeryMany; ++i) {
      const ReceiveRequest request{i, {}};
      EXPECT_TRUE(in->post_receive({&request, 1}));
    }
  });
  const auto connect = [&]() -> Task<void> {
    out = must(co_await Connection::async_connect(ends.here, listener.address().to_string(), options));
  };
  ends.here.spawn(connect());
  while (!out || !in || in->phase() != ConnectionPhase::Established) ends.here.run_once(), ends.there.run_once();
  std::uint32_t told = 0, told_at_end = 0;
  int depth = 0;
  bool is_over = false;
  in->on_completion([&](const Completion& completion) {
    told += completion.status == CompletionStatus::Success ? 1 : 0;
    if (depth == 12) return;
    ++depth;
    ends.there.run_once();
    --depth;
  });
  in->on_closed([&] { is_over = true, told_at_end = told; });
  const SendRequest request;
  for (std::uint32_t i = 0; i < kVeryMany; ++i) EXPECT_TRUE(out->post_send({&request, 1}));
  for (const Instant end = ends.sending.now() + kQuiet * 4; ends.sending.now() < end;) ends.here.run_once();
  out.reset();
  ::usleep(20'000);
  EXPECT_TRUE(ends.there.run_until([&] { return is_over; }, kPatience));
  EXPECT_EQ(told_at_end, kVeryMany);
}

// It says so, and goes: what it said stands behind a thousand other completions.
TEST_P(ManyArrived, words_of_a_receiver_that_has_everything_end_the_sender_well) {
  if (GetParam().kind.protocol == Protocol::SharedWrite) GTEST_SKIP() << "it has no room for as many at once";
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, kMany);
  for (std::uint32_t sent = 0; sent < kMany; ++sent)
    ASSERT_TRUE(ends.sender->try_send(text_of_message(0, sent, 32))) << sent;
  std::string closed;
  const auto close = [&]() -> Task<void> { closed = how(co_await ends.sender->async_close(kPatience)); };
  ends.here.spawn(close());
  ends.here.run_once();
  std::uint32_t got = 0;
  for (const Instant late = ends.receiving.now() + kPatience; got < kMany && ends.receiving.now() < late;)
    while (ends.receiver->try_receive()) ++got;
  // Until the sender's word has come, and the answer is out.
  static_cast<void>(ends.there.run_until([] { return false; }, kAWhile));
  ends.receiver.reset();
  ::usleep(20'000);
  const Instant late = ends.sending.now() + kPatience;
  while (closed.empty() && ends.sending.now() < late) ends.here.run_once();
  EXPECT_EQ(got, kMany);
  EXPECT_EQ(closed, "well");
}

}  // namespace
}  // namespace verbena
