// SPDX-License-Identifier: Apache-2.0
// What holds for every protocol over every path.
#include <algorithm>
#include <array>

#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

class EveryProtocol : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Messaging, EveryProtocol, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(EveryProtocol, messages_arrive_once_in_order_and_whole) {
  Ends ends(GetParam(), {.max_message_bytes = 3000, .depth = 16, .max_senders = 1});
  Sender sender = ends.connect();
  constexpr std::uint32_t kMessages = 2000;
  std::uint32_t sent = 0, got = 0;
  const auto size_of = [](std::uint32_t n) { return std::size_t{n} * 37 % 3001; };
  const auto both = [&] {
    while (sent < kMessages && sender.try_send(text_of_message(0, sent, size_of(sent)))) ++sent;
    while (auto message = ends.receiver->try_receive()) {
      EXPECT_TRUE(is_message(*message, got, size_of(got))) << got;
      ++got;
    }
    return got == kMessages;
  };
  ASSERT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
  EXPECT_FALSE(ends.receiver->try_receive());
  EXPECT_EQ(sender.counters().messages, kMessages);
  EXPECT_EQ(ends.receiver->counters().messages, kMessages);
  ends.expect_a_receive_for_every_message();
}

TEST_P(EveryProtocol, a_message_may_be_empty_or_of_the_greatest_length_and_no_longer) {
  Ends ends(GetParam(), {.max_message_bytes = 5000, .depth = 4, .max_senders = 1});
  Sender sender = ends.connect();
  EXPECT_EQ(sender.max_message_bytes(), 5000u);
  const auto longest = text_of_message(0, 1, 5000), too_long = text_of_message(0, 2, 5001);
  EXPECT_EQ(must(sender.send({}, kPatience)), 1u);
  EXPECT_EQ(must(sender.send(longest, kPatience)), 2u);
  EXPECT_EQ(sender.try_send(too_long).status, SendStatus::TooLong);
  expect_error(sender.send(too_long), ErrorCode::InvalidArgument, "5001 bytes", "at most 5000");
  EXPECT_TRUE(must(ends.receiver->receive(kPatience)).bytes().empty());
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 5000));
  must(sender.send(text_of_message(0, 3, 1)));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 3, 1));
  EXPECT_EQ(sender.counters().too_long, 2u);
}

TEST_P(EveryProtocol, empty_messages_arrive_whichever_way_they_are_handed_over) {
  for (const std::uint32_t inline_bytes : {0u, 192u}) {
    Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 4, .ring_bytes = 4096, .max_senders = 1,
                           .inline_bytes = inline_bytes});
    Sender sender = ends.connect();
    must(sender.send({}, kPatience));
    must(sender.lend(LentMemory{}, kPatience));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(must(ends.receiver->receive(kPatience)).bytes().empty());
    const std::array<std::span<const std::byte>, 2> batch{};
    for (std::uint32_t sent = 0, got = 0; got < batch.size();) {
      if (sent < batch.size()) sent += sender.try_send_batch(std::span(batch).subspan(sent)).taken;
      const auto message = ends.receiver->receive(sent > got ? kPatience : Duration::milliseconds(1));
      if (!message) continue;
      EXPECT_TRUE(message->bytes().empty());
      ++got;
    }
    auto reserved = sender.try_reserve(0);
    ASSERT_TRUE(reserved);
    EXPECT_TRUE(ends.engine.run_until([&] { return static_cast<bool>(sender.try_commit(*reserved, 0)); }, kPatience));
    EXPECT_TRUE(must(ends.receiver->receive(kPatience)).bytes().empty());
    must(sender.close(kPatience));
  }
}

TEST_P(EveryProtocol, as_many_messages_go_as_there_are_credits) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 4, .ring_bytes = 8192, .max_senders = 1});
  Sender sender = ends.connect();
  const std::uint64_t credits = sender.credits();
  const auto longest = text_of_message(0, 0, 256);
  std::uint64_t went = 0;
  const auto all_go = [&] {
    while (went < credits && sender.try_send(longest)) ++went;
    return went == credits;
  };
  EXPECT_TRUE(ends.engine.run_until(all_go, Duration::seconds(5))) << went << " of " << credits;
}

TEST_P(EveryProtocol, messages_up_to_the_inline_limit_go_without_a_buffer_where_the_protocol_has_that) {
  using messaging::Protocol;
  const Protocol protocol = GetParam().kind.protocol;
  const bool has_that = protocol == Protocol::SendReceive || protocol == Protocol::SharedReceive ||
                        protocol == Protocol::DirectWrite;
  const std::uint32_t most = Device::list().front().max_inline_bytes;
  for (const std::uint32_t limit : {0u, 100u, 1u << 30}) {
    Ends ends(GetParam(), {.max_message_bytes = 5000, .depth = 8, .max_senders = 1, .inline_bytes = limit});
    Sender sender = ends.connect();
    std::uint64_t inlined = 0;
    for (const std::uint32_t bytes : {1u, 100u, 101u, most, most + 1}) {
      must(sender.send(text_of_message(0, bytes, bytes), kPatience));
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), bytes, bytes));
      inlined += has_that && bytes <= std::min(limit, most) ? 1u : 0u;
    }
    EXPECT_EQ(sender.counters().inlined, inlined) << limit;
  }
}

TEST_P(EveryProtocol, a_receiver_that_holds_its_messages_holds_back_the_sender) {
  Ends ends(GetParam(), {.max_message_bytes = 512, .depth = 8, .ring_bytes = 8192, .max_senders = 1});
  Sender sender = ends.connect();
  std::vector<Message> held;
  const std::uint32_t full = fill_up(ends, sender, held, 512);
  EXPECT_GE(full, 8u);
  EXPECT_LE(full, 17u);  // the depth at each end; a ring of 16 and its gap
  EXPECT_GE(held.size(), 8u);
  EXPECT_EQ(sender.try_send(text_of_message(0, full, 512)).status, SendStatus::NoCredit);
  EXPECT_GT(sender.counters().no_credit, 0u);
  EXPECT_EQ(sender.credits(), 0u);
  bool has_room = false;
  sender.on_room([&] { has_room = true; });
  const auto taken = static_cast<std::uint32_t>(held.size());
  held.clear();
  ASSERT_TRUE(ends.engine.run_until([&] { return has_room; }, kPatience));
  must(sender.send(text_of_message(0, full, 512), kPatience));
  for (std::uint32_t n = taken; n <= full; ++n)
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 512)) << n;
}

// As a loop does that overwrites one variable.
TEST_P(EveryProtocol, a_receiver_that_keeps_one_message_while_it_waits_for_the_next_holds_nobody_back_by_default) {
  Ends ends(GetParam());
  Sender sender = ends.connect();
  constexpr std::uint32_t kMessages = 200;
  std::optional<Message> message;
  for (std::uint32_t sent = 0, got = 0; got < kMessages; ++got) {
    std::optional<Message> next;
    ASSERT_TRUE(ends.engine.run_until(
        [&] {
          if (sent < kMessages && sender.try_send(text_of_message(0, sent, 100))) ++sent;
          return (next = ends.receiver->try_receive()).has_value();
        },
        kPatience))
        << "after " << got;
    message = std::move(next);
    EXPECT_TRUE(is_message(*message, got, 100));
  }
}

TEST_P(EveryProtocol, what_was_sent_before_close_is_received_after_it) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 8, .max_senders = 1});
  bool ended = false;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) {
    ended = true;
    must(how);
  });
  {
    Sender sender = ends.connect();
    for (std::uint32_t n = 0; n < 6; ++n) must(sender.send(text_of_message(0, n, 200), kPatience));
    must(sender.close(kPatience));
    EXPECT_TRUE(sender.closed());
    EXPECT_EQ(sender.try_send({}).status, SendStatus::Closed);
    EXPECT_EQ(sender.freed(), 6u);
  }
  for (std::uint32_t n = 0; n < 6; ++n)
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 200));
  expect_error(ends.receiver->receive(kPatience), ErrorCode::Disconnected, "all senders have closed");
  EXPECT_TRUE(ended);
}

TEST_P(EveryProtocol, a_sender_that_leaves_without_closing_is_told_as_lost) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 8, .max_senders = 1});
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) {
    how_it_ended = how ? "well" : how.error().to_string();
  });
  {
    Sender sender = ends.connect();
    must(sender.send(text_of_message(0, 0, 100)));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 100));
  }
  expect_error(ends.receiver->receive(kPatience), ErrorCode::ConnectionLost, "left without closing");
  EXPECT_THAT(how_it_ended, ::testing::HasSubstr("left without closing"));
  EXPECT_EQ(ends.receiver->counters().peers_lost, 1u);
}

TEST_P(EveryProtocol, a_receiver_that_goes_is_told_to_those_who_wait_for_room) {
  Ends ends(GetParam(), {.max_message_bytes = 256, .depth = 2, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  const auto text = text_of_message(0, 0, 256);
  fill_up(ends, sender, 256);
  std::string outcome;
  const auto wait = [&]() -> Task<void> {
    auto sent = co_await sender.async_send(text);
    outcome = sent ? "sent" : sent.error().to_string();
  };
  ends.engine.spawn(wait());
  ends.engine.run_until([] { return false; }, Duration::milliseconds(10));
  EXPECT_EQ(outcome, "");
  ends.receiver.reset();
  ASSERT_TRUE(ends.engine.run_until([&] { return !outcome.empty(); }, kPatience));
  // A READ that is on its way may find nobody before the farewell is heard.
  const Kind& kind = GetParam().kind;
  const bool reads =
      kind.protocol == Protocol::SharedWrite ||
      (kind.protocol == Protocol::BufferedWrite && kind.acknowledge == messaging::Acknowledge::Read);
  if (reads && sender.status().error().code() == ErrorCode::RetryExceeded) return;
  EXPECT_THAT(outcome, ::testing::HasSubstr("the peer closed it"));
  expect_error(sender.status(), ErrorCode::Disconnected);
}

TEST_P(EveryProtocol, what_was_lent_without_right_ends_the_connection_and_nothing_of_it_arrives) {
  std::vector<std::byte> bytes(8192);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  for (const int wrong : {0, 1, 2}) {
    Ends ends(GetParam(), {.max_senders = 1});
    const MemoryRegion front =
        must(ends.client.register_memory(std::span(bytes).first(4096), Access::LocalWrite | Access::RemoteRead));
    const LentMemory past_its_end = LentMemory::of(front, 4050, 100);
    const LentMemory without_keys{address, 100, {}, {}};
    const LentMemory by_the_keys_of_another{address + 4096, 100, front.lkey(), front.rkey()};
    Sender sender = ends.connect();
    static_cast<void>(sender.lend(wrong == 0   ? past_its_end
                                  : wrong == 1 ? without_keys
                                               : by_the_keys_of_another,
                                  kPatience));
    EXPECT_FALSE(ends.receiver->receive(kPatience)) << wrong;
    ASSERT_TRUE(ends.engine.run_until([&] { return sender.closed(); }, kPatience)) << wrong;
    int told = 0;
    sender.on_room([&] { ++told; });
    EXPECT_TRUE(ends.engine.run_until([&] { return told == 1; }, kPatience)) << "that nothing goes any more";
    // There it is the receiver's request that names them.
    if (GetParam().kind.protocol == Protocol::DirectRead) continue;
    expect_error(sender.status(), ErrorCode::LocalProtectionError, "must lie inside a live region");
  }
}

TEST_P(EveryProtocol, a_depth_is_refused_by_name_or_senders_are_served_with_it) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 32, .ring_bytes = 1 << 16, .max_senders = 1});
  const std::uint32_t most = ends.server.info().max_requests;
  for (const std::uint32_t depth : {most, most - 16, most - 17, most / 2 - 1, most / 2 - 2}) {
    SCOPED_TRACE(depth);
    Options there = ends.options;
    there.depth = depth;
    there.connection.device = &ends.server;
    auto receiver = Receiver::create(ends.engine, there);
    if (!receiver) {
      EXPECT_GE(depth, most / 2 - 1) << receiver.error().to_string();
      expect_error(receiver, ErrorCode::InvalidArgument, std::to_string(depth).c_str(), std::to_string(most).c_str());
      continue;
    }
    ends.receiver.emplace(std::move(*receiver));
    Sender sender = ends.connect();
    must(sender.send(text_of_message(0, 0, 64), kPatience));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 64));
  }
}

// Its queue may be full for a while.
TEST(RefusedRequests, cost_no_message_no_credit_and_no_buffer) {
  for (const Protocol protocol :
       {Protocol::SendReceive, Protocol::SharedReceive, Protocol::DirectWrite, Protocol::DirectRead}) {
    SCOPED_TRACE(to_string(protocol));
    constexpr std::uint32_t kDepth = 4;
    bool refuses = false;
    Ends ends(must(open_standard(PathChoice::Roce, {.promises = true, .keeps = true, .refuses = &refuses})),
              must(Device::open({.path = PathChoice::Roce})), {{.protocol = protocol}},
              {.max_message_bytes = 256, .depth = kDepth, .max_senders = 1, .inline_bytes = 0});
    Sender sender = ends.connect(kDepth);
    const auto text = text_of_message(0, 9, 100);
    const std::array<std::span<const std::byte>, 3> batch{text, text, text};
    refuses = true;
    for (int times = 0; times < 3; ++times) {
      for (const auto& refused : {sender.try_send_batch(batch), sender.try_send(text)}) {
        EXPECT_EQ(refused.status, SendStatus::NoBuffer);
        EXPECT_EQ(refused.taken, 0u);
      }
      auto reserved = sender.try_reserve(100);
      ASSERT_TRUE(reserved);
      EXPECT_EQ(sender.try_commit(*reserved, 100).status, SendStatus::NoBuffer);
    }
    refuses = false;
    EXPECT_EQ(sender.credits(), kDepth);
    for (std::uint32_t n = 0; n < kDepth; ++n)
      EXPECT_EQ(sender.try_send(text_of_message(0, n, 100)).status, SendStatus::Ok) << n;
    for (std::uint32_t n = 0; n < kDepth; ++n)
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 100)) << n;
    EXPECT_EQ(sender.counters().messages, kDepth);
  }
}

}  // namespace
}  // namespace verbena
