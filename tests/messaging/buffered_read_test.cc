// SPDX-License-Identifier: Apache-2.0
// BufferedRead: the sender issues nothing, whole spans are read; rings, tails and heads that lie.
#include "messaging/buffered_read.h"

#include <sys/mman.h>

#include <cstring>

#include "messaging/offer.h"
#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Offer;
using messaging::ReadRing;
using messaging::Role;

constexpr std::uint64_t kReadRingBytes = 16384;

Options options_for_two() {
  return {.max_message_bytes = 600, .depth = 4, .ring_bytes = kReadRingBytes, .max_senders = 2};
}

class BufferedRead : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, BufferedRead, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const Way& way : every_way())
                             if (way.kind.protocol == Protocol::BufferedRead) ways.push_back(way);
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(BufferedRead, a_sender_posts_nothing_for_a_message_and_many_are_read_at_once) {
  Ends ends(GetParam(), options_for_two());
  Sender sender = ends.connect();
  const std::uint64_t posts = sender.counters().posts;
  std::uint32_t sent = 0, got = 0;
  const auto both = [&] {
    while (sent < 1000 && sender.try_send(text_of_message(0, sent, sent % 601))) ++sent;
    while (auto message = ends.receiver->try_receive()) {
      EXPECT_TRUE(is_message(*message, got, got % 601)) << got;
      ++got;
    }
    return got == 1000;
  };
  ASSERT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
  EXPECT_EQ(sender.counters().posts, posts);
  EXPECT_EQ(sender.counters().credit_messages, 0u);
  EXPECT_LE(ends.receiver->counters().credit_messages, 1000 * 400 / (kReadRingBytes / 8));
}

TEST_P(BufferedRead, messages_are_given_back_in_any_order_and_stay_whole_until_then) {
  Ends ends(GetParam(), options_for_two());
  Sender sender = ends.connect();
  std::vector<std::pair<std::uint32_t, Message>> held;
  std::uint32_t sent = 0, got = 0;
  const auto both = [&] {
    while (sent < 2000 && sender.try_send(text_of_message(0, sent, sent * 7 % 601))) ++sent;
    while (auto message = ends.receiver->try_receive()) {
      held.emplace_back(got++, std::move(*message));
      if (held.size() != 7 && got != 2000) continue;
      for (; !held.empty(); held.pop_back()) {  // the last first
        const auto& [n, whole] = held.back();
        EXPECT_TRUE(is_message(whole, n, n * 7 % 601)) << n;
      }
    }
    return got == 2000 && held.empty();
  };
  ASSERT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
}

TEST_P(BufferedRead, lent_memory_is_free_at_once) {
  Ends ends(GetParam(), options_for_two());
  Sender sender = ends.connect();
  MemoryRegion memory = must(ends.client.allocate_memory(600));
  fill(memory, 5);
  EXPECT_EQ(must(sender.lend(LentMemory::of(memory, 0, 600), kPatience)), 1u);
  EXPECT_EQ(sender.freed(), 1u);
  const std::vector<std::byte> text(memory.bytes().begin(), memory.bytes().end());
  fill(memory, 6);
  const Message message = must(ends.receiver->receive(kPatience));
  EXPECT_TRUE(std::equal(text.begin(), text.end(), message.bytes().begin(), message.bytes().end()));
}

TEST_P(BufferedRead, lent_memory_that_was_unmapped_ends_the_connection) {
  Ends ends(GetParam(), options_for_two());
  Sender sender = ends.connect();
  constexpr std::size_t kPage = 4096;
  void* const page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const MemoryRegion gone = must(ends.client.register_memory({static_cast<std::byte*>(page), kPage}));
  ASSERT_EQ(::munmap(page, kPage), 0);
  expect_error(sender.lend(LentMemory::of(gone, 0, 600), kPatience), ErrorCode::LocalProtectionError);
  expect_error(sender.status(), ErrorCode::LocalProtectionError, "must lie inside a live region");
  EXPECT_FALSE(ends.receiver->receive(kPatience));
}

TEST_P(BufferedRead, what_waits_for_room_with_memory_that_may_not_be_read_is_told_so) {
  Ends ends(GetParam(), options_for_two());
  Sender sender = ends.connect();
  std::vector<Message> held;
  fill_up(ends, sender, held, 600);
  Result<messaging::MessageId> lent = 0;
  const auto lend = [&]() -> Task<void> { lent = co_await sender.async_lend({4096, 600, {}, {}}); };
  const auto let_go = [&]() -> Task<void> {
    held.clear();
    co_return;
  };
  ends.engine.run(when_all(lend(), let_go()));
  expect_error(lent, ErrorCode::LocalProtectionError, "must lie inside a live region");
}

TEST_P(BufferedRead, a_ring_that_the_receiver_does_not_take_is_refused_to_both) {
  Ends ends(GetParam(), options_for_two());
  Options here = ends.options;
  here.ring_bytes = 2 * kReadRingBytes;
  expect_error(ends.try_connect(here), ErrorCode::Rejected, "a ring of 32768 bytes, and at most 16384 are taken");
  ASSERT_EQ(ends.refused.size(), 1u);
  EXPECT_THAT(ends.refused[0], ::testing::HasSubstr("the sender has a ring of 32768 bytes"));
  here.ring_bytes = kReadRingBytes / 2;
  Sender sender = must(ends.try_connect(here));
  must(sender.send(text_of_message(0, 1, 600)));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 600));
}

// Its image is made when its ring is known, and that its sender was answered yes does not make it one of them.
TEST_P(BufferedRead, a_sender_whose_image_there_is_no_memory_for_is_refused_and_has_no_place) {
  bool is_full = false;
  const PathChoice path = GetParam().path;
  Ends ends(must(Device::open({.path = path})), must(open_standard(path, {.is_full = &is_full})), GetParam(),
            {.max_message_bytes = 600, .depth = 4, .ring_bytes = kReadRingBytes, .max_senders = 1}, 20,
            {.wait = WaitMode::Busy});
  std::uint32_t ended = 0;
  ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>&) { ++ended; });
  ends.listener->on_request([&] {
    is_full = true;
    expect_error(ends.receiver->accept(*ends.listener->poll_request()), ErrorCode::ResourceExhausted,
                 "accept the sender at", "the device is full");
    is_full = false;
  });
  for (std::uint64_t times = 1; times <= 3; ++times) {
    const auto sender = ends.try_connect(ends.options);
    EXPECT_TRUE(ends.engine.run_until([&] { return !sender || sender->closed(); }, kPatience));
    EXPECT_EQ(ends.receiver->counters().peers_refused, times);
    EXPECT_EQ(ends.receiver->peers(), 0u);
  }
  ends.listener->on_request([&] { must(ends.receiver->accept(*ends.listener->poll_request())); });
  Sender sender = ends.connect();
  must(sender.send(text_of_message(0, 0, 600), kPatience));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 0, 600));
  EXPECT_EQ(ends.receiver->counters().peers_refused, 3u);
  EXPECT_EQ(ends.receiver->counters().peers_lost, 0u);
  EXPECT_EQ(ended, 0u) << "who was never one of them has no end to be told of";
}

TEST_P(BufferedRead, the_ring_is_mapped_as_its_sender_chose) {
  Ends ends(GetParam(), options_for_two());
  Options here = ends.options;
  const bool doubled = here.kind.ring == messaging::RingMemory::DoubleMapped;
  here.kind.ring = doubled ? messaging::RingMemory::Plain : messaging::RingMemory::DoubleMapped;
  Sender sender = must(ends.try_connect(here));
  EXPECT_EQ(sender.kind(), here.kind);
  for (std::uint32_t n = 0; n < 200; ++n) {
    must(sender.send(text_of_message(0, n, n * 11 % 601), kPatience));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, n * 11 % 601));
  }
}

// ---- Those that lie.

Offer offer_of_ring(Role role, const Options& options, const RemoteMemory& memory, std::uint64_t capacity) {
  Offer offer;
  offer.role = role;
  offer.kind = options.kind;
  offer.max_message_bytes = options.max_message_bytes;
  offer.depth = options.depth;
  offer.memory = memory;
  offer.extra = capacity;
  return offer;
}

// What a ring of kReadRingBytes takes of the address space.
std::uint64_t ring_bytes(const Way& way) {
  return kReadRingBytes * (way.kind.ring == messaging::RingMemory::DoubleMapped ? 2 : 1);
}

// A sender of our own making with that tail and that first word, beside an honest one; how it ended.
std::string end_of_a_ring(const Way& way, std::uint64_t tail, std::uint64_t word) {
  Ends ends(way, options_for_two());
  std::string how_it_ended;
  ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
    if (peer == 1) how_it_ended = how ? "well" : how.error().to_string();
  });
  Sender honest = ends.connect();
  const std::uint64_t lines = ring_bytes(way);
  auto memory =
      must(ends.client.protection_domain().allocate_memory(lines + ReadRing::kLines, Access::RemoteRead));
  std::memcpy(memory.data(), &word, 8);
  std::memcpy(memory.data() + lines + ReadRing::kTail, &tail, 8);
  Connection liar = must(Connection::prepare(ends.engine));
  const auto bytes = offer_of_ring(Role::Sender, ends.options, memory.remote(), kReadRingBytes).to_bytes();
  must(liar.connect_to(ends.listener->address().to_string(), bytes));
  const auto is_told = [&] { return ends.receiver->try_receive() || !how_it_ended.empty(); };
  EXPECT_TRUE(ends.engine.run_until(is_told, kPatience));
  must(honest.send(text_of_message(0, 1, 500)));
  EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 500));
  must(honest.close(kPatience));
  return how_it_ended;
}

TEST_P(BufferedRead, tails_and_lengths_that_lie_end_their_sender_alone) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  struct Lie {
    std::uint64_t tail, word;
    const char* what;
  };
  const Lie lies[] = {
      {kReadRingBytes + 64, 0, "tail goes back, over what was not released"},
      {std::uint64_t{1} << 63, 0, "tail goes back, over what was not released"},
      {65, 0, "or between frames"},
      {64, 0, "a word that begins no message"},
      {64, ring::message_word(8) ^ std::uint64_t{1} << 40, "a word that begins no message"},
      {64, ring::message_word(57), "a length that the ring does not hold"},
      {kReadRingBytes, ring::message_word(0xffffffff), "a length that the ring does not hold"},
      {kReadRingBytes, ring::skip_word(), "skips where nothing is to be skipped"},
  };
  for (const Lie& lie : lies)
    EXPECT_THAT(end_of_a_ring(GetParam(), lie.tail, lie.word),
                AllOf(HasSubstr("ProtocolError"), HasSubstr(lie.what)));
}

TEST_P(BufferedRead, rings_that_are_none_are_refused) {
  Ends ends(GetParam(), options_for_two());
  const RemoteMemory enough{.address = 4096, .length = 1 << 20, .rkey = RKey{7}};
  RemoteMemory little = enough;
  little.length = kReadRingBytes + ReadRing::kLines - 1;
  const bool doubled = GetParam().kind.ring == messaging::RingMemory::DoubleMapped;
  const std::tuple<RemoteMemory, std::uint64_t, const char*> lies[] = {
      {enough, 0, "a ring of 0 bytes"},
      {enough, 5000, "a ring of 5000 bytes"},
      {enough, std::uint64_t{1} << 63, "a ring of 9223372036854775808 bytes"},
      {enough, 1024, doubled ? "not whole pages" : "does not hold its longest message"},
      {little, kReadRingBytes, "in memory of 16511"},
  };
  for (const auto& [memory, capacity, what] : lies) {
    ends.refused.clear();
    Connection liar = must(Connection::prepare(ends.engine));
    const auto bytes = offer_of_ring(Role::Sender, ends.options, memory, capacity).to_bytes();
    static_cast<void>(liar.connect_to(ends.listener->address().to_string(), bytes));
    EXPECT_TRUE(ends.engine.run_until([&] { return !ends.refused.empty(); }, kPatience));
    EXPECT_THAT(ends.refused.at(0), ::testing::ContainsRegex("ProtocolError|InvalidArgument"));
    EXPECT_THAT(ends.refused.at(0), ::testing::HasSubstr(what));
  }
}

TEST_P(BufferedRead, a_receiver_whose_head_lies_is_left) {
  for (const std::uint64_t head : {std::uint64_t{1} << 20, std::uint64_t{63}, std::uint64_t{0} - 64}) {
    Ends ends(GetParam(), options_for_two());
    Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
    std::optional<Connection> liar;
    Offer theirs;
    const auto bytes = offer_of_ring(Role::Receiver, ends.options, {}, kReadRingBytes).to_bytes();
    listener.on_request([&] {
      ConnectionRequest request = std::move(*listener.poll_request());
      theirs = must(Offer::from_bytes(request.private_data()));
      liar = must(request.accept({.device = &ends.server}, bytes));
    });
    Sender sender = must(Sender::connect(ends.engine, listener.address().to_string(), ends.options));
    must(liar->wait_established());
    while (sender.try_send(text_of_message(0, 1, 600))) {
    }
    EXPECT_EQ(sender.try_send({}).status, SendStatus::Ok);  // shorter
    auto word = must(ends.server.protection_domain().allocate_memory(64));
    std::memcpy(word.data(), &head, 8);
    const std::uint64_t place = ring_bytes(GetParam()) + ReadRing::kHead;
    must(liar->write(word.local(0, 8), must(theirs.memory.sub_range(place, 8))).wait(kPatience));
    expect_error(sender.send(text_of_message(0, 1, 600), kPatience), ErrorCode::ProtocolError,
                 "the peer's head goes back");
    EXPECT_TRUE(sender.closed());
  }
}

// To the last byte: no farther tail can be before something is given back, but that there is none has to be seen.
TEST_P(BufferedRead, a_sender_closes_though_its_ring_is_full_and_all_of_it_is_held) {
  Ends ends(GetParam(), {.max_message_bytes = 56, .depth = 8, .ring_bytes = 4096, .max_senders = 1});
  Sender sender = ends.connect();
  std::vector<Message> held;
  EXPECT_EQ(fill_up(ends, sender, held, 56), 64u);  // with a word each
  EXPECT_EQ(held.size(), 64u);
  must(sender.close(kPatience));
  for (std::uint32_t n = 0; n < 64; ++n) EXPECT_TRUE(is_message(held[n], n, 56)) << n;
}

}  // namespace
}  // namespace verbena
