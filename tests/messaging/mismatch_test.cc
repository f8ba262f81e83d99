// SPDX-License-Identifier: Apache-2.0
// Ends of different protocols, versions and choices: what does not go together is refused by name, in words for
// both ends, and nobody else notices. What does is settled.
#include <deque>
#include <memory>

#include "messaging/offer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Offer;
using messaging::Role;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string differ(Protocol one, Protocol other) {
  return "one end speaks " + std::string(to_string(one)) + ", the other " + std::string(to_string(other));
}

// A receiver with a sender of its own, between which messages go on.
struct Undisturbed {
  Undisturbed(Protocol protocol, PathChoice path)
      : ends(Way{{.protocol = protocol}, path},
             {.max_message_bytes = 256, .depth = 16, .ring_bytes = 16384, .max_senders = 2}),
        sender(ends.connect()),
        memory(ends.receiver->memory_bytes()) {
    ends.receiver->on_peer_end([this](messaging::PeerId, const Result<void>&) { ++ended; });
  }
  void expect_no_change() {
    must(sender.send(text_of_message(0, sent, 200), kPatience));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), sent++, 200));
    EXPECT_EQ(ends.receiver->peers(), 1u);
    EXPECT_EQ(ends.receiver->memory_bytes(), memory);
    EXPECT_EQ(ended, 0u);
  }
  // No one that was refused has a place.
  void expect_room_for_another() {
    Sender another = ends.connect();
    EXPECT_EQ(ends.receiver->peers(), 2u);
    must(another.send(text_of_message(1, 0, 100), kPatience));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 100, 1));
    must(another.close(kPatience));
  }

  Ends ends;
  Sender sender;
  std::uint64_t memory;
  std::uint32_t sent = 0, ended = 0;
};

class Mismatches : public ::testing::TestWithParam<PathChoice> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Mismatches, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         name_of_path);

TEST_P(Mismatches, a_sender_of_another_protocol_is_refused_by_name) {
  for (const Protocol here : messaging::all_protocols()) {
    Undisturbed well(here, GetParam());
    Ends& ends = well.ends;
    std::size_t refused = 0;
    for (const Protocol other : messaging::all_protocols()) {
      if (other == here) continue;
      Options options = ends.options;
      options.kind = {.protocol = other};
      const std::string words = differ(here, other);
      SCOPED_TRACE(words);
      expect_error(ends.try_connect(options), ErrorCode::Rejected, words.c_str());
      ASSERT_EQ(ends.refused.size(), ++refused);
      EXPECT_THAT(ends.refused.back(), AllOf(HasSubstr("InvalidArgument"), HasSubstr(words)));
      EXPECT_EQ(ends.receiver->counters().peers_refused, refused);
      well.expect_no_change();
    }
    EXPECT_EQ(refused, messaging::all_protocols().size() - 1);
    well.expect_room_for_another();
    EXPECT_EQ(ends.receiver->counters().peers_lost, 0u);
  }
}

TEST_P(Mismatches, a_receiver_that_connects_to_a_sender_of_another_protocol_is_refused_by_name) {
  for (const Protocol here : messaging::all_protocols()) {
    Undisturbed well(here, GetParam());
    Ends& ends = well.ends;
    Listener listener = must(Listener::create(ends.engine, {.device = &ends.client}));
    Options options = ends.options;
    options.connection.device = &ends.client;
    std::string refusal;
    listener.on_request([&] {
      auto sender = Sender::accept(ends.engine, *listener.poll_request(), options);
      refusal = sender ? "none" : sender.error().to_string();
    });
    for (const Protocol other : messaging::all_protocols()) {
      if (other == here) continue;
      options.kind = {.protocol = other};
      const std::string words = differ(other, here);
      SCOPED_TRACE(words);
      expect_error(ends.receiver->connect(listener.address().to_string()), ErrorCode::Rejected, words.c_str());
      EXPECT_THAT(refusal, AllOf(HasSubstr("InvalidArgument"), HasSubstr(words)));
      well.expect_no_change();
    }
    well.expect_room_for_another();
  }
}

// What comes after the offers that do not go together: by one end's word the connection was there already.
TEST_P(Mismatches, an_answer_of_another_protocol_is_left_by_name) {
  for (const Protocol here : messaging::all_protocols()) {
    Undisturbed well(here, GetParam());
    Ends& ends = well.ends;
    Listener listener = must(Listener::create(ends.engine, {.device = &ends.client}));
    Offer answer;
    answer.max_message_bytes = 256;
    answer.depth = 16;
    std::vector<Connection> strangers;
    listener.on_request([&] {
      strangers.push_back(must(listener.poll_request()->accept({.device = &ends.client}, answer.to_bytes())));
    });
    const std::string address = listener.address().to_string();
    for (const Protocol other : messaging::all_protocols()) {
      if (other == here) continue;
      answer.kind = {.protocol = other};
      const std::string words = differ(here, other);
      SCOPED_TRACE(words);
      answer.role = Role::Receiver;
      expect_error(Sender::connect(ends.engine, address, ends.options), ErrorCode::InvalidArgument, words.c_str());
      answer.role = Role::Sender;
      expect_error(ends.receiver->connect(address), ErrorCode::InvalidArgument, words.c_str());
      well.expect_no_change();
    }
    well.expect_room_for_another();
  }
}

// A server of something else that greets whoever comes: its words meet a receive that has no room for them.
TEST_P(Mismatches, a_peer_that_speaks_no_message_protocol_and_talks_at_once_is_no_receiver) {
  for (const Protocol here : messaging::all_protocols()) {
    SCOPED_TRACE(to_string(here));
    Undisturbed well(here, GetParam());
    Ends& ends = well.ends;
    Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
    MemoryRegion greeting = must(ends.server.allocate_memory(64));
    std::vector<std::unique_ptr<Connection>> strangers;
    std::deque<Operation> greetings;
    listener.on_request([&] {
      auto stranger = must(listener.poll_request()->accept({.device = &ends.server}));
      strangers.push_back(std::make_unique<Connection>(std::move(stranger)));
      strangers.back()->send(greetings.emplace_back(), greeting.local());
    });
    const std::string address = listener.address().to_string();
    expect_error(Sender::connect(ends.engine, address, ends.options), ErrorCode::ProtocolError,
                 "offer of a message protocol");
    expect_error(ends.receiver->connect(address), ErrorCode::ProtocolError, "offer of a message protocol");
    well.expect_no_change();
    well.expect_room_for_another();
  }
}

TEST_P(Mismatches, another_version_of_the_offer_is_refused_and_left_by_name) {
  constexpr std::size_t kVersionAt = Offer::kWireBytes - 3;
  for (const Protocol here : messaging::all_protocols()) {
    SCOPED_TRACE(to_string(here));
    Undisturbed well(here, GetParam());
    Ends& ends = well.ends;
    Offer offer;
    offer.kind = ends.options.kind;
    offer.max_message_bytes = 256;
    offer.depth = 16;
    auto newer = offer.to_bytes();
    newer[kVersionAt] = std::byte{Offer::kVersion + 1};
    Connection stranger = must(Connection::prepare(ends.engine));
    expect_error(stranger.connect_to(ends.listener->address().to_string(), newer), ErrorCode::Rejected,
                 "version 2, this side knows 1");
    ASSERT_EQ(ends.refused.size(), 1u);
    EXPECT_THAT(ends.refused[0], AllOf(HasSubstr("ProtocolError"), HasSubstr("version 2, this side knows 1")));
    well.expect_no_change();

    Listener listener = must(Listener::create(ends.engine, {.device = &ends.client}));
    std::vector<Connection> strangers;
    listener.on_request([&] {
      strangers.push_back(must(listener.poll_request()->accept({.device = &ends.client}, newer)));
    });
    const std::string address = listener.address().to_string();
    expect_error(Sender::connect(ends.engine, address, ends.options), ErrorCode::ProtocolError, "version 2");
    expect_error(ends.receiver->connect(address), ErrorCode::ProtocolError, "version 2");
    well.expect_no_change();
    well.expect_room_for_another();
  }
}

// Of one protocol, other choices are no reason to refuse: see Options::kind.
TEST_P(Mismatches, other_choices_of_one_protocol_are_settled_and_messages_go) {
  std::vector<Kind> kinds;
  for (const Way& way : every_way())
    if (way.path == GetParam()) kinds.push_back(way.kind);
  for (const Kind& there : kinds) {
    SCOPED_TRACE("receiver: " + messaging::to_string(there));
    Ends ends(Way{there, GetParam()},
              {.max_message_bytes = 256, .depth = 32, .ring_bytes = 16384, .max_senders = 12});
    std::vector<Sender> senders;
    for (const Kind& here : kinds) {
      if (here.protocol != there.protocol) continue;
      SCOPED_TRACE("sender: " + messaging::to_string(here));
      Options options = ends.options;
      options.kind = here;
      senders.push_back(must(ends.try_connect(options)));
      Kind settled = there;
      if (there.protocol == Protocol::BufferedRead) settled.ring = here.ring;
      EXPECT_EQ(senders.back().kind(), settled);
      EXPECT_EQ(ends.receiver->kind(), there);
      const auto who = static_cast<std::uint32_t>(senders.size() - 1);
      for (std::uint32_t n = 0; n < 50; ++n) {
        must(senders.back().send(text_of_message(who, n, n * 5), kPatience));
        const Message message = must(ends.receiver->receive(kPatience));
        EXPECT_EQ(message.peer(), who);
        EXPECT_EQ(message.bytes().size(), n * 5);
        EXPECT_TRUE(is_message(message, n, n * 5, who)) << n;
      }
    }
    EXPECT_TRUE(ends.refused.empty());
  }
}

}  // namespace
}  // namespace verbena
