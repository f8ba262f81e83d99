// SPDX-License-Identifier: Apache-2.0
// DirectRead: messages land where the program wants them, uncopied; announcements that lie.
#include "device/wire_bytes.h"
#include "messaging/offer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

class DirectRead : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, DirectRead,
                         ::testing::Values(Way{{.protocol = Protocol::DirectRead}},
                                           Way{{.protocol = Protocol::DirectRead, .fenced = true}},
                                           Way{{.protocol = Protocol::DirectRead}, PathChoice::Local},
                                           Way{{.protocol = Protocol::DirectRead, .fenced = true}, PathChoice::Local}),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(DirectRead, lent_memory_arrives_where_the_receiver_wants_it_and_nobody_else_has_memory_for_it) {
  constexpr std::uint32_t kLarge = 1 << 20;
  Ends ends(GetParam(), {.max_message_bytes = kLarge, .depth = 2, .max_senders = 1});
  MemoryRegion theirs = must(ends.client.allocate_memory(kLarge));
  MemoryRegion ours = must(ends.server.allocate_memory(kLarge));
  fill(theirs, 3);
  std::uint32_t asked = 0;
  ends.receiver->on_place([&](messaging::PeerId peer, std::uint32_t bytes) -> std::optional<LentMemory> {
    EXPECT_EQ(peer, 0u);
    asked = bytes;
    return LentMemory::of(ours, 0, kLarge);
  });
  Sender sender = ends.connect();
  const auto id = must(sender.lend(LentMemory::of(theirs, 0, kLarge), kPatience));
  const Message message = must(ends.receiver->receive(kPatience));
  EXPECT_EQ(message.bytes().data(), ours.data());
  EXPECT_EQ(asked, kLarge);
  EXPECT_TRUE(same(theirs, ours));
  EXPECT_EQ(sender.memory_bytes(), 0u);
  must(sender.wait_freed(id, kPatience));
  must(sender.close(kPatience));
}

TEST_P(DirectRead, a_program_with_places_for_all_that_takes_nothing_holds_its_sender_back) {
  constexpr std::uint32_t kDepth = 4, kSize = 64, kMessages = 50;
  Ends ends(GetParam(), {.max_message_bytes = kSize, .depth = kDepth, .max_senders = 1});
  MemoryRegion theirs = must(ends.client.allocate_memory(kSize));
  MemoryRegion ours = must(ends.server.allocate_memory(std::size_t{kSize} * kMessages));
  std::uint32_t places = 0;
  ends.receiver->on_place([&](messaging::PeerId, std::uint32_t) -> std::optional<LentMemory> {
    return LentMemory::of(ours, std::uint64_t{kSize} * (places++ % kMessages), kSize);
  });
  Sender sender = ends.connect();
  std::uint32_t sent = 0;
  const auto send_on = [&] {
    while (sent < kMessages && sender.try_lend(LentMemory::of(theirs, 0, kSize))) ++sent;
    return sent == kMessages;
  };
  EXPECT_FALSE(ends.engine.run_until(send_on, Duration::milliseconds(20)));
  EXPECT_LE(sent, 2 * kDepth);
  std::uint32_t got = 0;
  const auto both = [&] {
    send_on();
    while (ends.receiver->try_receive()) ++got;
    return got == kMessages;
  };
  EXPECT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
}

TEST_P(DirectRead, a_place_that_is_too_small_is_not_taken) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 2, .max_senders = 1});
  MemoryRegion small = must(ends.server.allocate_memory(64));
  ends.receiver->on_place(
      [&](messaging::PeerId, std::uint32_t) { return std::optional(LentMemory::of(small, 0, 64)); });
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 1, 65)));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 65));
}

// A sender of our own making that announces; how the receiver saw it end.
std::string end_of_announcing(const Way& way, std::uint64_t address, std::uint32_t key, std::uint32_t bytes,
                              int times = 1, std::uint32_t size = 16) {
  Ends ends(way, {.max_message_bytes = 128, .depth = 4, .max_senders = 2});
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) {
    how_it_ended = how ? "well" : how.error().to_string();
  });
  messaging::Offer offer;
  offer.kind = way.kind;
  offer.max_message_bytes = 128;
  offer.depth = 4;
  Connection liar = must(Connection::prepare(ends.engine, {.queues = {.max_send_requests = 256}}));
  must(liar.connect_to(ends.listener->address().to_string(), offer.to_bytes()));
  const MemoryRegion own = must(ends.client.allocate_memory(128));
  if (times != 1) {  // of what is there
    address = own.remote().address;
    key = own.remote().rkey.value();
  }
  std::array<std::byte, 16> announcement{};
  wire_bytes::store_le64(&announcement[0], address);
  wire_bytes::store_le32(&announcement[8], key);
  wire_bytes::store_le32(&announcement[12], bytes);
  const ScatterGather piece{reinterpret_cast<std::uintptr_t>(announcement.data()), size, {}};
  SendRequest request;
  request.flags = SendFlags::Signaled | SendFlags::Inline;
  request.local = {&piece, 1};
  EXPECT_TRUE(liar.post_send(std::vector(static_cast<std::size_t>(times), request)));
  // What had arrived is taken before an end is told.
  const auto has_ended = [&] {
    while (ends.receiver->try_receive()) continue;
    return !how_it_ended.empty();
  };
  EXPECT_TRUE(ends.engine.run_until(has_ended, kPatience));
  Sender honest = ends.connect();
  must(honest.send(text_of_message(0, 1, 50)));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 50));
  return how_it_ended;
}

TEST_P(DirectRead, more_announcements_than_credits_end_their_sender_alone) {
  EXPECT_THAT(end_of_announcing(GetParam(), 0, 0, 100, 200), ::testing::HasSubstr("more than it had credits for"));
}

TEST_P(DirectRead, announcements_that_lie_end_their_sender_alone) {
  using ::testing::HasSubstr;
  EXPECT_THAT(end_of_announcing(GetParam(), 0x1000, 77, 100), HasSubstr("RemoteAccessError"));
  EXPECT_THAT(end_of_announcing(GetParam(), 0x1000, 77, 129), HasSubstr("ProtocolError"));
  EXPECT_THAT(end_of_announcing(GetParam(), ~std::uint64_t{0}, 77, 0xffffffff), HasSubstr("ProtocolError"));
  EXPECT_THAT(end_of_announcing(GetParam(), 0, 0, 0, 1, 15), HasSubstr("ProtocolError"));
}

TEST_P(DirectRead, one_whose_messages_are_held_leaves_the_others_their_share_of_the_buffers) {
  constexpr std::uint32_t kDepth = 8;
  Ends ends(GetParam(), {.max_message_bytes = 128, .depth = kDepth, .max_senders = 2});
  Sender one = ends.connect(), other = ends.connect();
  std::vector<Message> held;
  fill_up(ends, one, held, 100);
  EXPECT_EQ(held.size(), kDepth / 2);
  fill_up(ends, other, held, 100);
  EXPECT_EQ(held.size(), kDepth);
}

// What cannot be read, and what is being read of one that says what no sender says.
TEST_P(DirectRead, buffers_of_those_that_end_while_they_are_read_are_there_for_others) {
  constexpr std::uint32_t kDepth = 4;
  Ends ends(GetParam(), {.max_message_bytes = 4096, .depth = kDepth, .max_senders = 2});
  int ended = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) { ended += !how; });
  messaging::Offer offer;
  offer.kind = GetParam().kind;
  offer.max_message_bytes = 4096;
  offer.depth = kDepth;
  const MemoryRegion own = must(ends.client.allocate_memory(4096, Access::RemoteRead));
  for (int round = 0; round < 12; ++round) {
    Connection liar = must(Connection::prepare(ends.engine, {.queues = {.max_send_requests = 16}}));
    must(liar.connect_to(ends.listener->address().to_string(), offer.to_bytes()));
    const bool is_there = round % 2 == 0;
    std::array<std::byte, 16> announcement{};
    wire_bytes::store_le64(&announcement[0], own.remote().address);
    wire_bytes::store_le32(&announcement[8], own.rkey().value() + (is_there ? 0 : 1));
    wire_bytes::store_le32(&announcement[12], 4096);
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(announcement.data()), 16, {}};
    SendRequest request;
    request.flags = SendFlags::Inline;
    request.local = {&piece, 1};
    std::vector<SendRequest> all(3, request);
    all.emplace_back().opcode = SendOpcode::SendWithImmediate;  // an immediate that is no word
    EXPECT_TRUE(liar.post_send(std::span(all).first(is_there ? 4 : 3)));
    const auto has_ended = [&] {
      while (ends.receiver->try_receive()) continue;
      return ended > round;
    };
    ASSERT_TRUE(ends.engine.run_until(has_ended, kPatience)) << round;
  }
  Sender honest = ends.connect();
  std::vector<Message> held;
  fill_up(ends, honest, held, 100);
  EXPECT_EQ(held.size(), kDepth);
}

}  // namespace
}  // namespace verbena
