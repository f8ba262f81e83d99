// SPDX-License-Identifier: Apache-2.0
// Peers that say what no honest end says: the connection ends with a named error, and no other notices.
#include "messaging/control.h"
#include "messaging/offer.h"
#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Control;
using messaging::Offer;
using messaging::Role;

Offer offer_of(Role role, const Options& options, std::uint64_t extra = 0) {
  Offer offer;
  offer.role = role;
  offer.kind = options.kind;
  offer.max_message_bytes = options.max_message_bytes;
  offer.depth = options.depth;
  offer.extra = extra;
  return offer;
}

PostResult say(Connection& connection, Control::Word word, std::uint32_t number) {
  SendRequest request;
  request.opcode = SendOpcode::SendWithImmediate;
  request.immediate = Control{word, number}.to_immediate();
  return connection.post_send({&request, 1});
}

const SendRequest kEmpty{};

class Hostile : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Hostile,
                         ::testing::Values(Way{{.protocol = Protocol::SendReceive}},
                                           Way{{.protocol = Protocol::SharedReceive}},
                                           Way{{.protocol = Protocol::SendReceive}, PathChoice::Local},
                                           Way{{.protocol = Protocol::SharedReceive}, PathChoice::Local}),
                         [](const auto& way) { return name_of(way.param); });

class HostileReceiver : public ::testing::TestWithParam<PathChoice> {};
INSTANTIATE_TEST_SUITE_P(Messaging, HostileReceiver, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         name_of_path);
class HostileSender : public ::testing::TestWithParam<PathChoice> {};
INSTANTIATE_TEST_SUITE_P(Messaging, HostileSender, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         name_of_path);

// A sender of our own making beside an honest one; how the receiver saw it end.
std::string end_of_a_sender(const Way& way, const std::function<void(Connection&)>& misbehave) {
  Ends ends(way, {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
    if (peer == 1) how_it_ended = how ? "well" : how.error().to_string();
  });
  Sender honest = ends.connect();
  const auto bytes = offer_of(Role::Sender, ends.options).to_bytes();
  Connection liar = must(Connection::prepare(ends.engine, {.queues = {.max_inline_bytes = 192}}));
  must(liar.connect_to(ends.listener->address().to_string(), bytes));
  misbehave(liar);
  EXPECT_TRUE(ends.engine.run_until([&] { return !how_it_ended.empty(); }, kPatience));
  must(honest.send(text_of_message(0, 1, 50)));
  for (;;) {
    auto message = must(ends.receiver->receive(kPatience));
    if (message.peer() != 0) continue;
    EXPECT_TRUE(is_message(message, 1, 50));
    break;
  }
  must(honest.close(kPatience));
  return how_it_ended;
}

TEST_P(Hostile, a_sender_that_says_what_receivers_say_is_ended) {
  for (const Control::Word word : {Control::Word::GivenBack, Control::Word::Finished,
                                   static_cast<Control::Word>(0), static_cast<Control::Word>(15)})
    EXPECT_THAT(end_of_a_sender(GetParam(), [&](Connection& c) { EXPECT_TRUE(say(c, word, 3)); }),
                ::testing::HasSubstr("ProtocolError"));
}

TEST_P(Hostile, a_sender_that_finishes_twice_is_ended) {
  const auto twice = [](Connection& c) {
    EXPECT_TRUE(say(c, Control::Word::Finish, 0));
    EXPECT_TRUE(say(c, Control::Word::Finish, 0));
  };
  EXPECT_THAT(end_of_a_sender(GetParam(), twice), ::testing::HasSubstr("ProtocolError"));
}

TEST_P(Hostile, a_sender_that_claims_more_than_it_sent_has_not_closed_well) {
  const auto claim = [](Connection& c) {
    EXPECT_TRUE(say(c, Control::Word::Finish, 7));
    must(c.close());
  };
  EXPECT_THAT(end_of_a_sender(GetParam(), claim), ::testing::HasSubstr("left without closing"));
}

TEST_P(Hostile, a_message_over_the_length_that_was_agreed_ends_its_sender) {
  const auto too_long = [](Connection& c) {
    std::vector<std::byte> bytes(129);
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(bytes.data()), 129, {}};
    SendRequest request;
    request.flags = SendFlags::Signaled | SendFlags::Inline;
    request.local = {&piece, 1};
    EXPECT_TRUE(c.post_send({&request, 1}));
  };
  EXPECT_THAT(end_of_a_sender(GetParam(), too_long), ::testing::HasSubstr("LocalLengthError"));
}

// Its messages take every receive before the receiver's program runs.
TEST_P(HostileSender, one_that_uses_up_what_is_there_for_all_holds_the_others_back_and_no_more) {
  Ends ends(Way{{.protocol = Protocol::SharedReceive}, GetParam()},
            {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
    if (peer == 1) how_it_ended = how ? "well" : how.error().to_string();
    else EXPECT_TRUE(how) << how.error().to_string();
  });
  Sender honest = ends.connect();
  Connection liar = must(Connection::prepare(ends.engine, {.queues = {.max_send_requests = 64}}));
  must(liar.connect_to(ends.listener->address().to_string(), offer_of(Role::Sender, ends.options).to_bytes()));
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(liar.post_send({&kEmpty, 1}));
  const auto none_left = [&] { return times_without_receive(ends.server) != 0; };
  for (int tries = 0; tries < 20'000 && !none_left(); ++tries) ::usleep(1'000);
  EXPECT_TRUE(none_left());
  for (std::uint32_t i = 0; i < 2; ++i) EXPECT_EQ(honest.try_send(text_of_message(0, i, 50)).status, SendStatus::Ok);
  for (std::uint32_t got = 0; got < 2;) {
    const Message message = must(ends.receiver->receive(kPatience));
    if (message.peer() != 0) continue;
    EXPECT_TRUE(is_message(message, got++, 50));
  }
  EXPECT_TRUE(ends.engine.run_until([&] { return !how_it_ended.empty(); }, kPatience));
  EXPECT_THAT(how_it_ended, ::testing::HasSubstr("ProtocolError"));
  must(honest.close(kPatience));
}

// A receiver of our own making: how the sender ends.
Error end_of_a_receiver(const Way& way, std::uint64_t extra,
                        const std::function<void(Connection&)>& misbehave) {
  Ends ends(way, {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> liar;
  const auto bytes = offer_of(Role::Receiver, ends.options, extra).to_bytes();
  listener.on_request([&] { liar = must(listener.poll_request()->accept({.device = &ends.server}, bytes)); });
  auto sender = Sender::connect(ends.engine, listener.address().to_string(), ends.options);
  if (!sender) return sender.error();
  must(liar->wait_established());
  misbehave(*liar);
  EXPECT_TRUE(ends.engine.run_until([&] { return sender->closed(); }, kPatience));
  EXPECT_EQ(sender->try_send({}).status, SendStatus::Closed);
  return sender->status().error();
}

TEST_P(Hostile, a_receiver_that_says_what_it_cannot_know_is_left) {
  const std::pair<Control::Word, std::uint32_t> lies[] = {{Control::Word::GivenBack, 100},
                                                          {Control::Word::GivenBack, Control::kNumberMask},
                                                          {Control::Word::Finished, 0},
                                                          {Control::Word::Finish, 0},
                                                          {static_cast<Control::Word>(9), 0}};
  for (const auto& lie : lies)
    expect_error(
        end_of_a_receiver(GetParam(), 8, [&](Connection& c) { EXPECT_TRUE(say(c, lie.first, lie.second)); }),
        ErrorCode::ProtocolError);
}

// As many as it was told of are all, and no others.
TEST_P(Hostile, a_receiver_that_has_another_number_of_messages_than_were_sent_is_left) {
  Ends ends(GetParam(), {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> liar;
  const auto bytes = offer_of(Role::Receiver, ends.options, 8).to_bytes();
  listener.on_request([&] { liar = must(listener.poll_request()->accept({.device = &ends.server}, bytes)); });
  Sender sender = must(Sender::connect(ends.engine, listener.address().to_string(), ends.options));
  must(liar->wait_established());
  std::string outcome;
  const auto close = [&]() -> Task<void> { outcome = how(co_await sender.async_close(kPatience)); };
  ends.engine.spawn(close());
  EXPECT_TRUE(ends.engine.run_until([&] { return !sender.status(); }, kPatience)) << "it closes";
  EXPECT_EQ(outcome, "");
  EXPECT_TRUE(say(*liar, Control::Word::Finished, 1));
  EXPECT_TRUE(ends.engine.run_until([&] { return !outcome.empty(); }, kPatience));
  EXPECT_THAT(outcome, ::testing::HasSubstr("of what was not finished"));
}

// It asked while its own buffers were all taken: nobody else will tell it.
TEST_P(Hostile, a_receiver_that_is_left_is_told_to_who_asked_for_room) {
  Ends ends(GetParam(), {.max_message_bytes = 128, .depth = 2, .max_senders = 2});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> liar;
  const auto bytes = offer_of(Role::Receiver, ends.options, 2).to_bytes();
  listener.on_request([&] { liar = must(listener.poll_request()->accept({.device = &ends.server}, bytes)); });
  Sender sender = must(Sender::connect(ends.engine, listener.address().to_string(), ends.options));
  must(liar->wait_established());
  std::vector<messaging::Reservation> reserved;
  while (auto one = sender.try_reserve(1)) reserved.push_back(std::move(*one));
  int told = 0;
  sender.on_room([&] { ++told; });
  for (Quiet quiet(ends); !quiet.is_long();) ends.engine.run_once();
  ASSERT_EQ(told, 0);
  EXPECT_TRUE(say(*liar, Control::Word::GivenBack, 100));
  EXPECT_TRUE(ends.engine.run_until([&] { return told == 1 && sender.closed(); }, kPatience));
}

// Of a sender whose receiver offers that, and lies before the sender has seen it.
Result<void> end_of_one_lied_to_at_once(Ends& ends, const Offer& offer, const std::function<void(Connection&)>& lie) {
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> liar;
  const auto bytes = offer.to_bytes();
  listener.on_request([&] {
    const ConnectionOptions options{.queues = {.max_inline_bytes = 192}, .device = &ends.server};
    auto prepared = must(Connection::prepare(ends.engine, options));
    liar = must(must(listener.wait_request(kPatience)).accept(std::move(prepared), bytes));
    lie(*liar);
  });
  auto sender = Sender::connect(ends.engine, listener.address().to_string(), ends.options);
  ends.engine.run_until([&] { return !sender || sender->closed(); }, kPatience);
  return sender ? sender->status() : Result<void>(sender.error());
}
void give_back_too_much(Connection& liar) { EXPECT_TRUE(say(liar, Control::Word::GivenBack, 7777)); }

TEST_P(HostileReceiver, one_that_lies_at_once_is_left) {
  for (const Protocol protocol :
       {Protocol::SendReceive, Protocol::SharedReceive, Protocol::DirectWrite, Protocol::DirectRead}) {
    Ends ends(Way{{.protocol = protocol}, GetParam()}, {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
    const Offer offer = offer_of(Role::Receiver, ends.options, 8);
    expect_error(end_of_one_lied_to_at_once(ends, offer, give_back_too_much), ErrorCode::ProtocolError);
  }
}

// The senders hear the lie, and look at the offer after it.
constexpr StandardOptions kSlow{.promises = true, .keeps = true, .looks_away = Duration::milliseconds(20)};

TEST_P(HostileReceiver, one_that_lies_before_its_ring_is_known_is_left) {
  for (const char* kind : {"buffered-write", "buffered-write/offset", "buffered-write/reversed", "buffered-read"}) {
    SCOPED_TRACE(kind);
    Ends ends(must(open_standard(GetParam(), kSlow)), must(Device::open(OpenOptions{.path = GetParam()})),
              Way{must(messaging::parse_kind(kind)), GetParam()},
              {.max_message_bytes = 128, .depth = 8, .ring_bytes = 4096, .max_senders = 2});
    const MemoryRegion ring = must(ends.server.allocate_memory(1 << 16, Access::All));
    Offer offer = offer_of(Role::Receiver, ends.options, 4096);
    offer.order_in_write = true;
    offer.memory = ring.remote();
    expect_error(end_of_one_lied_to_at_once(ends, offer, give_back_too_much), ErrorCode::ProtocolError);
  }
}

TEST_P(HostileReceiver, one_that_grants_too_little_at_once_is_left) {
  Ends ends(must(open_standard(GetParam(), kSlow)), must(Device::open(OpenOptions{.path = GetParam()})),
            Way{{.protocol = Protocol::DirectWrite}, GetParam()},
            {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  const auto grant_little = [](Connection& liar) {
    std::array<std::byte, 16> grant{};
    grant[12] = std::byte{16};  // bytes, of which messages have more
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(grant.data()), 16, {}};
    SendRequest request;
    request.flags = SendFlags::Inline;
    request.local = {&piece, 1};
    EXPECT_TRUE(liar.post_send({&request, 1}));
  };
  expect_error(end_of_one_lied_to_at_once(ends, offer_of(Role::Receiver, ends.options), grant_little),
               ErrorCode::ProtocolError, "granted 16 bytes for messages of 128");
}

// It says that it has everything, which ends the sender well, and then what nobody may say, and answers no goodbye.
TEST_P(HostileReceiver, what_one_says_after_it_has_everything_is_not_heard) {
  Ends ends({{.protocol = Protocol::SendReceive}, GetParam()},
            {.max_message_bytes = 128, .depth = 8, .max_senders = 1});
  Device far = must(Device::open({.path = GetParam()}));
  ProgressEngine there = must(ProgressEngine::create(far));
  Listener listener = must(Listener::create(there));
  std::optional<Connection> liar;
  std::array<std::byte, 64> inbox;
  const auto memory = must(far.register_memory(inbox, Access::LocalWrite));
  Operation finish;
  const auto bytes = offer_of(Role::Receiver, ends.options, 8).to_bytes();
  listener.on_request([&] {
    auto prepared = must(Connection::prepare(there));
    prepared.receive(finish, memory.local());
    liar = must(must(listener.wait_request(kPatience)).accept(std::move(prepared), bytes));
  });
  finish.on_done([&](Operation&) {
    EXPECT_TRUE(say(*liar, Control::Word::Finished, 0));
    EXPECT_TRUE(say(*liar, Control::Word::Finish, 0));
  });
  std::optional<Sender> sender;
  const auto connect = [&]() -> Task<void> {
    sender = must(co_await Sender::async_connect(ends.engine, listener.address().to_string(), ends.options));
  };
  ends.engine.spawn(connect());
  const auto drive_both = [&](const auto& done) {
    while (!done()) {
      there.run_once();
      ends.engine.run_once();
    }
  };
  drive_both([&] { return sender.has_value(); });
  bool closed = false;
  const auto close = [&]() -> Task<void> {
    const auto how = co_await sender->async_close(Duration::milliseconds(300));
    EXPECT_TRUE(how) << how.error().to_string();
    closed = true;
  };
  ends.engine.spawn(close());
  drive_both([&] { return finish.done(); });
  while (!closed) ends.engine.run_once();
}

TEST_P(HostileReceiver, grants_that_lie_are_refused) {
  const auto grants = [path = GetParam()](std::uint32_t count, std::uint32_t bytes_each, std::uint32_t odd) {
    const auto send = [=](Connection& c) {
      std::vector<std::byte> bytes(std::size_t{count} * 16 + odd);
      for (std::uint32_t i = 0; i < count; ++i) std::memcpy(&bytes[i * 16 + 12], &bytes_each, 4);
      const ScatterGather piece{
          reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()), {}};
      SendRequest request;
      request.flags = SendFlags::Signaled | SendFlags::Inline;
      request.local = {&piece, 1};
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(c.post_send({&request, 1}));
    };
    return end_of_a_receiver(Way{{.protocol = Protocol::DirectWrite}, path}, 0, send);
  };
  expect_error(grants(4, 128, 0), ErrorCode::ProtocolError, "granted more than was agreed");
  expect_error(grants(1, 127, 0), ErrorCode::ProtocolError, "granted 127 bytes for messages of 128");
  expect_error(grants(1, 128, 3), ErrorCode::ProtocolError, "what are no grants");
  expect_error(grants(0, 0, 0), ErrorCode::ProtocolError, "what are no grants");
}

// Into memory that the sender's program lets anybody write to, behind the back of what is for grants.
TEST_P(HostileReceiver, a_write_that_comes_where_grants_do_is_refused) {
  Ends ends(Way{{.protocol = Protocol::DirectWrite}, GetParam()},
            {.max_message_bytes = 128, .depth = 8, .max_senders = 2});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> liar;
  const auto offer = offer_of(Role::Receiver, ends.options).to_bytes();
  listener.on_request([&] { liar = must(listener.poll_request()->accept({.device = &ends.server}, offer)); });
  Sender sender = must(Sender::connect(ends.engine, listener.address().to_string(), ends.options));
  must(liar->wait_established());
  const MemoryRegion open = must(ends.client.allocate_memory(16));
  std::array<std::byte, 16> grant{};
  const ScatterGather piece{reinterpret_cast<std::uintptr_t>(grant.data()), 16, {}};
  SendRequest request;
  request.opcode = SendOpcode::RdmaWriteWithImmediate;
  request.flags = SendFlags::Signaled | SendFlags::Inline;
  request.local = {&piece, 1};
  request.remote_address = open.remote().address;
  request.rkey = open.rkey();
  EXPECT_TRUE(liar->post_send({&request, 1}));
  EXPECT_TRUE(ends.engine.run_until([&] { return sender.closed(); }, kPatience));
  expect_error(sender.status(), ErrorCode::ProtocolError, "what are no grants");
}

TEST_P(HostileSender, a_write_out_of_turn_ends_its_sender) {
  for (const std::uint32_t immediate : {1u, 0x80000000u}) {
    const auto out_of_turn = [&](Connection& c) {
      SendRequest request;
      request.opcode = SendOpcode::RdmaWriteWithImmediate;
      request.immediate = {
          static_cast<std::byte>(immediate >> 24), {}, {}, static_cast<std::byte>(immediate)};
      EXPECT_TRUE(c.post_send({&request, 1}));
    };
    for (const Protocol protocol : {Protocol::DirectWrite, Protocol::SendReceive, Protocol::DirectRead})
      EXPECT_THAT(end_of_a_sender(Way{{.protocol = protocol}, GetParam()}, out_of_turn),
                  ::testing::HasSubstr("ProtocolError"));
  }
}

TEST_P(HostileReceiver, a_grant_that_was_not_agreed_is_refused) {
  for (const std::uint64_t extra : {std::uint64_t{0}, std::uint64_t{9}, ~std::uint64_t{0}})
    expect_error(end_of_a_receiver(Way{{.protocol = Protocol::SharedReceive}, GetParam()}, extra, [](Connection&) {}),
                 ErrorCode::ProtocolError, "the receiver grants");
}

TEST_P(HostileReceiver, an_answer_that_is_no_offer_is_refused) {
  Ends ends(Way{{.protocol = Protocol::SendReceive}, GetParam()});
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  std::optional<Connection> stranger;
  listener.on_request([&] { stranger = must(listener.poll_request()->accept({.device = &ends.server})); });
  expect_error(Sender::connect(ends.engine, listener.address().to_string(), ends.options),
               ErrorCode::ProtocolError, "offer of a message protocol");
}

}  // namespace
}  // namespace verbena
