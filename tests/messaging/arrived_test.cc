// SPDX-License-Identifier: Apache-2.0
// What had arrived when an end is told, by the peer or by this end: all of it can be received, however much waits in
// the completion queue that an engine's connections share. Each end has its engine, which runs when the test says so.
#include <unistd.h>

#include <utility>

#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr Duration kPatience = Duration::seconds(20);
constexpr Duration kQuiet = Duration::milliseconds(50);
constexpr Duration kAWhile = Duration::milliseconds(500);
constexpr std::uint32_t kMany = 1000;  // more than one run of an engine hands out

std::string how_of(const Result<void>& how) { return how ? "well" : how.error().to_string(); }

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
    receiver->on_peer_end([this](auto, const Result<void>& how) { end = how_of(how); });
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

// It says so, and goes: what it said stands behind a thousand other completions.
TEST_P(ManyArrived, words_of_a_receiver_that_has_everything_end_the_sender_well) {
  if (GetParam().kind.protocol == Protocol::SharedWrite) GTEST_SKIP() << "it has no room for as many at once";
  Apart ends(GetParam(), {.max_message_bytes = 64, .depth = 1024, .max_senders = 1}, kMany);
  for (std::uint32_t sent = 0; sent < kMany; ++sent)
    ASSERT_TRUE(ends.sender->try_send(text_of_message(0, sent, 32))) << sent;
  std::string closed;
  const auto close = [&]() -> Task<void> { closed = how_of(co_await ends.sender->async_close(kPatience)); };
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
