// SPDX-License-Identifier: Apache-2.0
// DirectWrite: messages land in the program's own memory, uncopied; senders that write over what they were granted.
#include <algorithm>
#include <array>
#include <functional>

#include "device/wire_bytes.h"
#include "messaging/offer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::PeerId;

constexpr Access kLentAccess = Access::LocalWrite | Access::RemoteWrite;

// The program's memory, of which a place is granted for each message, one behind the other and round again.
class GrantedPlaces {
 public:
  GrantedPlaces(Ends& ends, std::uint32_t bytes_each, std::uint32_t count)
      : memory_(must(ends.server.allocate_memory(std::size_t{bytes_each} * count, kLentAccess))),
        bytes_each_(bytes_each),
        count_(count) {}
  LentMemory next() { return LentMemory::of(memory_, std::uint64_t{bytes_each_} * (given_++ % count_), bytes_each_); }
  const std::byte* at(std::uint32_t n) const { return memory_.data() + std::size_t{bytes_each_} * (n % count_); }
  bool holds(const Message& message) const {
    const std::less_equal<> is_before;
    return is_before(memory_.data(), message.bytes().data()) &&
           is_before(message.bytes().data() + message.bytes().size(), memory_.data() + memory_.size());
  }
  const MemoryRegion& memory() const { return memory_; }
  std::uint32_t given() const { return given_; }

 private:
  MemoryRegion memory_;
  std::uint32_t bytes_each_, count_, given_ = 0;
};

class DirectWrite : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, DirectWrite,
                         ::testing::Values(Way{{.protocol = Protocol::DirectWrite}},
                                           Way{{.protocol = Protocol::DirectWrite}, PathChoice::Local}),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(DirectWrite, lent_memory_arrives_in_the_place_that_was_granted) {
  constexpr std::uint32_t kLarge = 1 << 20;
  Ends ends(GetParam(), {.max_message_bytes = kLarge, .depth = 1, .max_senders = 1});
  MemoryRegion theirs = must(ends.client.allocate_memory(kLarge));
  MemoryRegion ours = must(ends.server.allocate_memory(kLarge, kLentAccess));
  fill(theirs, 3);
  std::uint32_t asked = 0;
  ends.receiver->on_place([&](PeerId peer, std::uint32_t bytes) -> std::optional<LentMemory> {
    EXPECT_EQ(peer, 0u);
    asked = bytes;
    return LentMemory::of(ours, 0, kLarge);
  });
  Sender sender = ends.connect();
  const auto id = must(sender.lend(LentMemory::of(theirs, 0, kLarge), kPatience));
  {
    const Message message = must(ends.receiver->receive(kPatience));
    EXPECT_EQ(message.bytes().data(), ours.data());
    EXPECT_EQ(message.bytes().size(), kLarge);
  }
  EXPECT_EQ(asked, kLarge);
  EXPECT_TRUE(same(theirs, ours));
  must(sender.wait_freed(id, kPatience));
  must(sender.close(kPatience));
}

TEST_P(DirectWrite, messages_of_any_length_arrive_in_their_order_each_in_the_next_place) {
  constexpr std::uint32_t kLongest = 3000, kMessages = 200;
  Ends ends(GetParam(), {.max_message_bytes = kLongest, .depth = 8, .max_senders = 1});
  GrantedPlaces places(ends, kLongest, 16);
  ends.receiver->on_place([&](PeerId, std::uint32_t) { return std::optional(places.next()); });
  Sender sender = ends.connect();
  const auto size_of = [](std::uint32_t n) { return n * 571 % (kLongest + 1); };
  std::uint32_t sent = 0, got = 0;
  const auto exchange = [&] {
    while (sent < kMessages && sender.try_send(text_of_message(0, sent, size_of(sent)))) ++sent;
    while (auto message = ends.receiver->try_receive()) {
      EXPECT_EQ(message->bytes().data(), places.at(got)) << got;
      EXPECT_TRUE(is_message(*message, got, size_of(got))) << got;
      ++got;
    }
    return got == kMessages;
  };
  EXPECT_TRUE(ends.engine.run_until(exchange, kPatience)) << got << " of " << sent;
  must(sender.close(kPatience));
  EXPECT_LE(places.given(), kMessages + 8);
}

TEST_P(DirectWrite, senders_are_told_apart_when_a_place_is_asked_for) {
  constexpr std::uint32_t kSize = 500, kMessages = 20;
  Ends ends(GetParam(), {.max_message_bytes = kSize, .depth = 4, .max_senders = 2});
  std::array<GrantedPlaces, 2> places{GrantedPlaces(ends, kSize, 8), GrantedPlaces(ends, kSize, 8)};
  ends.receiver->on_place([&](PeerId peer, std::uint32_t) { return std::optional(places.at(peer).next()); });
  std::array<Sender, 2> senders{ends.connect(), ends.connect()};
  for (std::uint32_t n = 0; n < kMessages; ++n)
    for (std::uint32_t i = 0; i < 2; ++i) {
      must(senders[i].send(text_of_message(i, n, kSize), kPatience));
      const Message message = must(ends.receiver->receive(kPatience));
      EXPECT_EQ(message.bytes().data(), places[message.peer()].at(n)) << n;
      EXPECT_TRUE(is_message(message, n, kSize, i)) << i << " " << n;
    }
}

TEST_P(DirectWrite, a_program_with_places_for_all_that_takes_nothing_holds_its_sender_back) {
  constexpr std::uint32_t kDepth = 4, kSize = 64, kMessages = 50;
  Ends ends(GetParam(), {.max_message_bytes = kSize, .depth = kDepth, .max_senders = 1});
  GrantedPlaces places(ends, kSize, kMessages);
  ends.receiver->on_place([&](PeerId, std::uint32_t) { return std::optional(places.next()); });
  Sender sender = ends.connect();
  EXPECT_EQ(fill_up(ends, sender, kSize), kDepth);
  EXPECT_EQ(places.given(), kDepth);
  std::vector<Message> held;
  std::uint32_t sent = kDepth, got = 0;
  const auto hold = [&] {
    while (auto message = ends.receiver->try_receive()) held.push_back(std::move(*message));
    return held.size() == kDepth;
  };
  EXPECT_TRUE(ends.engine.run_until(hold, kPatience));
  EXPECT_EQ(sender.try_send(text_of_message(0, sent, kSize)).status, SendStatus::NoCredit);
  EXPECT_EQ(places.given(), kDepth) << "what is held is not granted anew";
  for (const Message& message : held) EXPECT_TRUE(places.holds(message) && is_message(message, got++, kSize));
  held.clear();
  const auto both = [&] {
    while (sent < kMessages && sender.try_send(text_of_message(0, sent, kSize))) ++sent;
    while (auto message = ends.receiver->try_receive())
      EXPECT_TRUE(places.holds(*message) && is_message(*message, got++, kSize));
    return got == kMessages;
  };
  EXPECT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
}

TEST_P(DirectWrite, messages_that_there_is_no_place_for_now_go_to_the_receivers_own_memory) {
  constexpr std::uint32_t kDepth = 4, kSize = 200;
  Ends ends(GetParam(), {.max_message_bytes = kSize, .depth = kDepth, .max_senders = 1});
  GrantedPlaces places(ends, kSize, 2 * kDepth);
  bool has_place = false;
  ends.receiver->on_place([&](PeerId, std::uint32_t) -> std::optional<LentMemory> {
    if (!has_place) return std::nullopt;
    return places.next();
  });
  Sender sender = ends.connect();
  std::uint32_t n = 0;
  for (const bool now : {false, true, false, true}) {
    has_place = now;
    for (std::uint32_t i = 0; i < 4 * kDepth; ++i, ++n) {
      must(sender.send(text_of_message(0, n, kSize), kPatience));
      const Message message = must(ends.receiver->receive(kPatience));
      EXPECT_TRUE(is_message(message, n, kSize)) << n;
      // The first were granted before.
      if (i >= kDepth) {
        EXPECT_EQ(places.holds(message), now) << n;
      }
    }
  }
  must(sender.close(kPatience));
}

TEST_P(DirectWrite, a_place_that_is_too_small_is_not_taken) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 2, .max_senders = 1});
  GrantedPlaces small(ends, 999, 1);
  ends.receiver->on_place([&](PeerId, std::uint32_t) { return std::optional(small.next()); });
  Sender sender = ends.connect();
  for (const std::uint32_t bytes : {1u, 999u, 1000u}) {
    must(sender.send(text_of_message(0, bytes, bytes), kPatience));
    const Message message = must(ends.receiver->receive(kPatience));
    EXPECT_FALSE(small.holds(message));
    EXPECT_TRUE(is_message(message, bytes, bytes));
  }
  EXPECT_THAT(small.memory().bytes(), ::testing::Each(std::byte{0}));
}

// A sender of our own making beside an honest one, which writes so many bytes more than it was granted; how the
// receiver saw it end.
std::string end_of_writing_beyond(const Way& way, std::uint32_t beyond, bool in_a_place) {
  constexpr std::uint32_t kSize = 128;
  Ends ends(way, {.max_message_bytes = kSize, .depth = 4, .max_senders = 2});
  std::array<GrantedPlaces, 2> places{GrantedPlaces(ends, kSize, 8), GrantedPlaces(ends, kSize, 8)};
  ends.receiver->on_place([&](PeerId peer, std::uint32_t) -> std::optional<LentMemory> {
    if (!in_a_place) return std::nullopt;
    return places.at(peer).next();
  });
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](PeerId peer, const Result<void>& how) {
    if (peer == 1) how_it_ended = how ? "well" : how.error().to_string();
  });
  Sender honest = ends.connect();
  must(honest.send(text_of_message(0, 0, kSize), kPatience));
  const Message held = must(ends.receiver->receive(kPatience));
  messaging::Offer offer;
  offer.kind = way.kind;
  offer.max_message_bytes = kSize;
  offer.depth = 4;
  const MemoryRegion inbox = must(ends.client.allocate_memory(128)), own = must(ends.client.allocate_memory(1024));
  Connection liar = must(Connection::prepare(ends.engine));
  Operation grant = liar.receive(inbox.local());
  must(liar.connect_to(ends.listener->address().to_string(), offer.to_bytes()));
  EXPECT_TRUE(ends.engine.run_until([&] { return grant.done(); }, kPatience));
  EXPECT_EQ(wire_bytes::load_le32(inbox.data() + 12), kSize);
  const std::uint32_t bytes = kSize + beyond;
  const RemoteMemory granted{wire_bytes::load_le64(inbox.data()), bytes,
                             RKey{wire_bytes::load_le32(inbox.data() + 8)}};
  Operation write = liar.write_with_immediate(own.local(0, bytes), granted, 0);
  const auto has_ended = [&] {
    while (ends.receiver->try_receive()) continue;
    return !how_it_ended.empty() || (beyond == 0 && write.done());
  };
  EXPECT_TRUE(ends.engine.run_until(has_ended, kPatience));
  EXPECT_EQ(in_a_place, places[0].holds(held));
  EXPECT_TRUE(is_message(held, 0, kSize));
  for (std::uint32_t n = 1; n < 20; ++n) {
    must(honest.send(text_of_message(0, n, kSize), kPatience));
    const Message message = must(ends.receiver->receive(kPatience));
    EXPECT_EQ(message.peer(), 0u);
    EXPECT_TRUE(is_message(message, n, kSize)) << n;
  }
  EXPECT_EQ(ends.receiver->peers(), beyond == 0 ? 2u : 1u);
  must(honest.close(kPatience));
  return how_it_ended;
}

TEST_P(DirectWrite, a_sender_that_writes_more_than_it_was_granted_is_ended_alone) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  for (const bool in_a_place : {false, true}) {
    SCOPED_TRACE(in_a_place);
    for (const std::uint32_t beyond : {1u, 8u, 128u})
      EXPECT_THAT(end_of_writing_beyond(GetParam(), beyond, in_a_place),
                  AllOf(HasSubstr("ProtocolError"), HasSubstr("wrote more than it was granted")));
    EXPECT_EQ(end_of_writing_beyond(GetParam(), 0, in_a_place), "") << "who writes no more goes on";
  }
}

TEST_P(DirectWrite, a_place_that_nobody_may_write_to_ends_the_sender_that_was_granted_it) {
  Ends ends(GetParam(), {.max_message_bytes = 64, .depth = 2, .max_senders = 2});
  const MemoryRegion closed = must(ends.server.allocate_memory(128, Access::LocalWrite));
  GrantedPlaces open(ends, 64, 4);
  ends.receiver->on_place([&](PeerId peer, std::uint32_t) {
    return std::optional(peer == 1 ? LentMemory::of(closed, 0, 64) : open.next());
  });
  Sender honest = ends.connect(), sender = ends.connect();
  EXPECT_TRUE(sender.try_send(text_of_message(1, 0, 64)));
  EXPECT_TRUE(ends.engine.run_until([&] { return sender.closed(); }, kPatience));
  EXPECT_THAT(sender.status().error().to_string(), ::testing::HasSubstr("RemoteAccessError"));
  EXPECT_THAT(closed.bytes(), ::testing::Each(std::byte{0}));
  must(honest.send(text_of_message(0, 0, 64), kPatience));
  const Message message = must(ends.receiver->receive(kPatience));
  EXPECT_TRUE(open.holds(message) && is_message(message, 0, 64));
}

}  // namespace
}  // namespace verbena
