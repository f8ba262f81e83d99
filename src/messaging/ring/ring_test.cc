// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "messaging/ring/reader.h"
#include "messaging/ring/shared_reader.h"
#include "messaging/ring/shared_writer.h"
#include "messaging/ring/writer.h"

namespace verbena::ring {
namespace {

// Both sides in one process; WRITEs are carried out at once.
struct Pair {
  explicit Pair(const Geometry& geometry)
      : image(geometry.memory_bytes() / 8),
        ring(geometry.memory_bytes() / 8),
        writer(geometry, std::as_writable_bytes(std::span(image))),
        reader(geometry, RingMemory(std::as_bytes(std::span(ring)), reinterpret_cast<std::byte*>(&tail))) {}

  bool send(const std::string& text) {
    const auto place = writer.try_reserve(static_cast<std::uint32_t>(text.size()));
    if (!place) return false;
    if (!text.empty()) std::memcpy(writer.payload(*place).data(), text.data(), text.size());
    const WriteList& list = writer.commit(*place);
    for (const RemoteWrite& write : list.view()) carry_out(write);
    if (const auto tail_write = writer.publish()) carry_out(*tail_write);
    return true;
  }
  void carry_out(const RemoteWrite& write) {
    if (write.target == RemoteWrite::Target::Tail) {
      tail = write.word;
      return;
    }
    std::byte* to = reinterpret_cast<std::byte*>(ring.data()) + write.offset;
    if (write.source == RemoteWrite::Source::Word) {
      std::memcpy(to, &write.word, 8);
    } else {
      std::memset(to, 0, write.zero_bytes);
      if (write.bytes != 0)
        std::memcpy(to + write.zero_bytes, reinterpret_cast<std::byte*>(image.data()) + write.image_offset,
                    write.bytes);
    }
    mirror(write.offset, write.zero_bytes + write.bytes);
    if (write.immediate) immediates.push_back(*write.immediate);
  }
  // What two mappings of the same memory do by themselves.
  void mirror(std::uint64_t offset, std::uint64_t bytes) {
    if (!reader.geometry().doubled) return;
    auto* base = reinterpret_cast<std::byte*>(ring.data());
    const std::uint64_t capacity = reader.geometry().capacity;
    for (std::uint64_t i = offset; i < offset + bytes; ++i)
      base[i < capacity ? i + capacity : i - capacity] = base[i];
  }
  std::optional<View> receive() {
    if (reader.geometry().commit != Commit::Immediate) return reader.poll();
    if (immediates.empty()) return std::nullopt;
    const std::uint32_t immediate = immediates.front();
    immediates.pop_front();
    return reader.handle_immediate(immediate);
  }
  std::string text(const View& view) const {
    return {reinterpret_cast<const char*>(ring.data()) + view.offset, view.bytes};
  }
  void let_go(const View& view) {
    reader.release(view);
    if (reader.acknowledgement_due()) {
      EXPECT_EQ(writer.handle_head(reader.acknowledge()), Fault::None);
    }
  }

  std::vector<std::uint64_t> image, ring;
  std::uint64_t tail = 0;
  std::deque<std::uint32_t> immediates;
  Writer writer;
  Reader reader;
};

std::vector<Geometry> forms(std::uint64_t capacity) {
  std::vector<Geometry> all;
  for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
    for (const bool doubled : {false, true}) all.push_back({capacity, commit, doubled});
  return all;
}

std::string letters(std::size_t n, std::size_t seed) {
  std::string text(n, ' ');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>('!' + (i * 7 + seed * 13) % 90);
  return text;
}

TEST(Ring, carries_messages_of_every_length_in_order_through_many_laps) {
  for (const Geometry& geometry : forms(2048)) {
    Pair pair(geometry);
    for (std::size_t round = 0; round < 3; ++round) {
      for (std::size_t length = 0; length <= geometry.max_payload_bytes(); ++length) {
        const std::string text = letters(length, length + round);
        ASSERT_TRUE(pair.send(text)) << length;
        const auto view = pair.receive();
        ASSERT_TRUE(view) << to_string(pair.reader.fault());
        EXPECT_EQ(view->offset % 8, 0u);
        ASSERT_EQ(pair.text(*view), text);
        EXPECT_EQ(pair.receive(), std::nullopt);
        pair.let_go(*view);
      }
    }
  }
}

// Several messages whose WRITEs go together where they can.
std::size_t send_joined(Pair& pair, const std::vector<std::string>& texts) {
  std::vector<RemoteWrite> all;
  for (const std::string& text : texts) {
    const auto place = pair.writer.try_reserve(static_cast<std::uint32_t>(text.size()));
    if (!place) return all.size();  // the caller misses it
    std::memcpy(pair.writer.payload(*place).data(), text.data(), text.size());
    const WriteList& list = pair.writer.commit(*place);
    for (const RemoteWrite& write : list.view())
      if (all.empty() || !join(all.back(), write)) all.push_back(write);
  }
  for (const RemoteWrite& write : all) pair.carry_out(write);
  if (const auto tail = pair.writer.publish()) pair.carry_out(*tail);
  return all.size();
}

TEST(Ring, writes_of_neighbours_go_together_and_bring_the_same_messages) {
  for (const Geometry& geometry : forms(2048)) {
    Pair pair(geometry);
    std::size_t requests = 0, messages = 0;
    for (int round = 0; round < 300; ++round) {
      std::vector<std::string> texts;
      for (int i = 0; i <= round % 4; ++i)
        texts.push_back(letters(static_cast<std::size_t>(round * 13 + i * 7) % 100, static_cast<std::size_t>(i)));
      requests += send_joined(pair, texts);
      messages += texts.size();
      for (const std::string& text : texts) {
        const auto view = pair.receive();
        ASSERT_TRUE(view) << round;
        EXPECT_EQ(pair.text(*view), text) << round;
        pair.let_go(*view);
      }
      EXPECT_FALSE(pair.receive());
    }
    EXPECT_EQ(requests < messages / 2 + 50, geometry.commit != Commit::Immediate);
  }
}

TEST(Ring, the_longest_message_finds_room_wherever_the_ring_stands) {
  for (const Geometry& geometry : forms(2048)) {
    for (std::size_t units = 0; units < 32; ++units) {
      Pair pair(geometry);
      for (std::size_t i = 0; i < units; ++i) {
        ASSERT_TRUE(pair.send(""));
        pair.let_go(*pair.receive());
      }
      ASSERT_TRUE(pair.send(letters(geometry.max_payload_bytes(), units))) << units;
      ASSERT_TRUE(pair.receive());
    }
  }
}

TEST(Ring, the_longest_message_goes_in_one_write) {
  for (const Geometry& geometry : forms(std::uint64_t{1} << 36)) {
    const std::uint64_t payload = geometry.max_payload_bytes();
    const std::uint64_t written = geometry.commit == Commit::Reversed
                                      ? kWordBytes + geometry.frame_bytes(geometry.max_payload_bytes())
                                      : payload + geometry.word_bytes();
    EXPECT_LE(written, kMaxWriteBytes);
    EXPECT_GE(payload, kMaxWriteBytes - kUnitBytes - kWordBytes);
  }
}

TEST(Ring, refuses_when_full_and_goes_on_when_the_oldest_was_let_go_of) {
  for (const Geometry& geometry : forms(4096)) {
    Pair pair(geometry);
    std::size_t sent = 0;
    while (pair.send(letters(100, sent))) ++sent;
    ASSERT_GT(sent, 20u);
    std::vector<View> views;
    while (const auto view = pair.receive()) views.push_back(*view);
    ASSERT_EQ(views.size(), sent);
    for (std::size_t i = sent - 1; i > 0; --i) {
      pair.let_go(views[i]);
      EXPECT_EQ(pair.writer.try_reserve(100), std::nullopt) << "the oldest is still read";
    }
    EXPECT_EQ(pair.text(views[0]), letters(100, 0));
    pair.let_go(views[0]);
    EXPECT_EQ(pair.reader.head(), pair.reader.position());
    EXPECT_TRUE(pair.send("x"));
    EXPECT_EQ(pair.text(*pair.receive()), "x");
  }
}

TEST(Ring, as_many_messages_find_room_as_are_counted) {
  for (Geometry geometry : forms(2048))
    for (const std::uint32_t limit : {0u, 3u}) {
      if (limit != 0 && geometry.commit != Commit::Immediate) continue;
      geometry.max_messages = limit;
      for (std::size_t bytes = 0; bytes <= geometry.max_payload_bytes(); bytes += 60)
        for (std::size_t units = 0; units < 32; ++units) {
          Pair pair(geometry);
          for (std::size_t i = 0; i < units; ++i) {
            ASSERT_TRUE(pair.send(""));
            const auto view = pair.receive();
            pair.let_go(*view);
          }
          const std::uint64_t counted = pair.writer.count_room(static_cast<std::uint32_t>(bytes));
          std::uint64_t went = 0;
          while (pair.send(letters(bytes, went))) ++went;
          ASSERT_EQ(went, counted) << bytes << " bytes at " << units;
          EXPECT_EQ(pair.writer.count_room(static_cast<std::uint32_t>(bytes)), 0u);
        }
    }
}

TEST(Ring, no_more_messages_are_on_their_way_than_there_are_receives) {
  Pair pair({.capacity = 65536, .commit = Commit::Immediate, .max_messages = 16});
  for (int round = 0; round < 20; ++round) {
    std::size_t sent = 0;
    while (pair.send("m")) ++sent;
    EXPECT_GT(sent, 0u);
    EXPECT_LE(pair.immediates.size(), 16u);
    while (const auto view = pair.receive()) pair.let_go(*view);
  }
}

TEST(Ring, one_write_carries_a_message_and_a_second_only_its_skip_or_the_tail) {
  Pair pair({.capacity = 2048, .commit = Commit::Reversed});
  bool skipped = false;
  for (int i = 0; i < 100; ++i) {
    const auto place = pair.writer.try_reserve(200);
    ASSERT_TRUE(place);
    const WriteList& list = pair.writer.commit(*place);
    EXPECT_EQ(pair.writer.publish(), std::nullopt);
    for (const RemoteWrite& write : list.view()) pair.carry_out(write);
    skipped |= list.count == 2;
    pair.let_go(*pair.receive());
  }
  EXPECT_TRUE(skipped);
}

// A stale word of a lap before, and payload that looks like one, lie where the next frame's word will be.
TEST(Ring, what_lies_in_the_ring_from_before_is_never_taken_for_a_message) {
  for (const bool doubled : {false, true}) {
    Pair pair({.capacity = 2048, .commit = Commit::Reversed, .doubled = doubled});
    for (std::size_t i = 0; i < 400; ++i) {
      std::string text(8 * (i * 5 % 40), ' ');
      for (std::size_t at = 0; at < text.size(); at += 8) {
        const std::uint64_t word = message_word(static_cast<std::uint32_t>(i % 9));
        std::memcpy(text.data() + at, &word, 8);
      }
      ASSERT_TRUE(pair.send(text));
      const auto view = pair.receive();
      ASSERT_TRUE(view);
      ASSERT_EQ(pair.text(*view), text);
      ASSERT_EQ(pair.receive(), std::nullopt);
      pair.let_go(*view);
    }
  }
}

struct Hostile {
  const char* what;
  Commit commit;
  std::uint64_t word;
  std::uint64_t tail;
  Fault fault;
};

TEST(Ring, what_a_peer_may_not_write_is_named) {
  const std::vector<Hostile> cases = {
      {"tail beyond the ring", Commit::Offset, message_word(0), 2048 + 64, Fault::Tail},
      {"tail between units", Commit::Offset, message_word(0), 65, Fault::Tail},
      {"tail that went back", Commit::Offset, message_word(0), ~0ull - 63, Fault::Tail},
      {"no word", Commit::Offset, 0, 64, Fault::Mark},
      {"word of noise", Commit::Offset, 0x1234'5678'9abc'def0, 64, Fault::Mark},
      {"longer than the ring allows", Commit::Offset, message_word(4000), 2048, Fault::Length},
      {"longest length", Commit::Offset, message_word(~0u), 2048, Fault::Length},
      {"longer than what is there", Commit::Offset, message_word(57), 64, Fault::Length},
      {"skip at the beginning", Commit::Offset, skip_word(), 2048, Fault::Skip},
      {"word of noise", Commit::Reversed, 1, 0, Fault::Mark},
      {"skip with a length", Commit::Reversed, skip_word() | 1, 0, Fault::Mark},
      {"longer than the ring allows", Commit::Reversed, message_word(4000), 0, Fault::Length},
      {"skip at the beginning", Commit::Reversed, skip_word(), 0, Fault::Skip},
  };
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.what);
    const Geometry geometry{.capacity = 2048, .commit = hostile.commit};
    Pair pair(geometry);
    pair.ring[geometry.word_offset(0) / 8] = hostile.word;
    pair.tail = hostile.tail;
    EXPECT_EQ(pair.reader.poll(), std::nullopt);
    EXPECT_EQ(pair.reader.fault(), hostile.fault) << to_string(pair.reader.fault());
    // For good.
    pair.ring[geometry.word_offset(0) / 8] = message_word(0);
    pair.tail = 64;
    EXPECT_EQ(pair.reader.poll(), std::nullopt);
  }
}

TEST(Ring, a_peer_that_writes_over_what_was_not_released_is_found_out) {
  const Geometry reversed{.capacity = 2048, .commit = Commit::Reversed, .doubled = true};
  Pair pair(reversed);
  for (std::uint64_t& word : pair.ring) word = message_word(0);
  std::size_t taken = 0;
  while (pair.reader.poll()) ++taken;
  EXPECT_EQ(taken, 31u);
  EXPECT_EQ(pair.reader.fault(), Fault::Overrun);

  Pair immediate({.capacity = 2048, .commit = Commit::Immediate});
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(immediate.reader.handle_immediate(64));
  EXPECT_EQ(immediate.reader.handle_immediate(0), std::nullopt);
  EXPECT_EQ(immediate.reader.fault(), Fault::Overrun);
  Pair too_long({.capacity = 2048, .commit = Commit::Immediate});
  EXPECT_EQ(too_long.reader.handle_immediate(~0u), std::nullopt);
  EXPECT_EQ(too_long.reader.fault(), Fault::Length);
}

// One byte is what lies between a message and a fault.
TEST(Ring, the_longest_message_is_taken_and_a_longer_one_is_not) {
  for (const Geometry& geometry : forms(2048)) {
    const std::uint32_t most = geometry.max_payload_bytes();
    for (const std::uint32_t bytes : {most, most + 1}) {
      Pair pair(geometry);
      pair.ring[geometry.word_offset(0) / 8] = message_word(bytes);
      pair.tail = 2048;
      const auto view =
          geometry.commit == Commit::Immediate ? pair.reader.handle_immediate(bytes) : pair.reader.poll();
      EXPECT_EQ(view.has_value(), bytes == most) << bytes;
      EXPECT_EQ(pair.reader.fault(), bytes == most ? Fault::None : Fault::Length) << bytes;
    }
  }
}

// What is skipped in front of it counts.
TEST(Ring, a_message_that_begins_behind_the_end_over_what_was_not_released_is_named) {
  for (const int released : {1, 2}) {
    Pair pair({.capacity = 2048, .commit = Commit::Immediate});
    std::vector<View> views;
    for (int i = 0; i < 31; ++i) views.push_back(*pair.reader.handle_immediate(64));
    for (int i = 0; i < released; ++i) pair.reader.release(views[static_cast<std::size_t>(i)]);
    pair.reader.acknowledge();
    const auto view = pair.reader.handle_immediate(65);
    EXPECT_EQ(view.has_value(), released == 2);
    EXPECT_EQ(pair.reader.fault(), released == 2 ? Fault::None : Fault::Overrun);
  }
}

// It is within the ring still, and behind what was released.
TEST(Ring, a_tail_that_goes_back_over_what_was_read_is_named) {
  Pair pair({.capacity = 2048, .commit = Commit::Offset});
  ASSERT_TRUE(pair.send("a"));
  ASSERT_TRUE(pair.send("b"));
  ASSERT_TRUE(pair.receive());
  ASSERT_TRUE(pair.receive());
  pair.tail = 64;
  EXPECT_EQ(pair.receive(), std::nullopt);
  EXPECT_EQ(pair.reader.fault(), Fault::Tail);
}

TEST(Ring, a_head_that_no_reader_may_tell_is_named) {
  const std::vector<std::uint64_t> heads = {1, 64 * 3, ~0ull, ~0ull - 63, 1ull << 63};
  for (const std::uint64_t head : heads) {
    Pair pair({.capacity = 2048, .commit = Commit::Offset});
    ASSERT_TRUE(pair.send("a"));
    ASSERT_TRUE(pair.send("b"));
    EXPECT_EQ(pair.writer.handle_head(head), Fault::Head) << head;
    EXPECT_EQ(pair.writer.try_reserve(1), std::nullopt);
  }
  Pair pair({.capacity = 2048, .commit = Commit::Offset});
  ASSERT_TRUE(pair.send("a"));
  EXPECT_EQ(pair.writer.handle_head(64), Fault::None);
  EXPECT_EQ(pair.writer.handle_head(0), Fault::Head) << "it went back";
}

// However many senders a receiver has it that there are, of which nobody knows.
TEST(SharedRing, a_tail_that_no_sender_makes_is_found_out) {
  for (const auto& [senders, tail, found] :
       {std::tuple{1ull, 8192ull * 128, Fault::None}, {1ull, 8192ull * 128 + 64, Fault::Tail},
        {1ull << 58, kMaxPosition - 64, Fault::None}, {~0ull >> 6, kMaxPosition - 128, Fault::None}}) {
    SharedWriter writer({.capacity = 8192}, senders);
    writer.begin(0);
    ASSERT_EQ(writer.handle_position(tail - 64), Fault::None);
    EXPECT_EQ(writer.handle_head(0), found) << senders << " senders, " << tail;
  }
}

constexpr SharedGeometry kShared{.capacity = 2048};

TEST(SharedRing, a_position_that_no_tail_had_is_named) {
  const auto answer = [](std::uint64_t head, std::uint64_t first, std::uint64_t second) {
    SharedWriter writer(kShared, 2);
    writer.begin(64);
    EXPECT_EQ(writer.handle_position(first), Fault::None);
    writer.finish();
    EXPECT_EQ(writer.handle_head(head), Fault::None);
    writer.begin(64);
    return writer.handle_position(second);
  };
  EXPECT_EQ(answer(0, 128, 192), Fault::None);
  EXPECT_EQ(answer(0, 128, 128), Fault::Place) << "that is its own place";
  EXPECT_EQ(answer(0, 128, 64), Fault::Place) << "it went back";
  EXPECT_EQ(answer(0, 128, 193), Fault::Place) << "between units";
  EXPECT_EQ(answer(0, 128, kMaxPosition), Fault::Place);
  EXPECT_EQ(answer(256, 128, 256), Fault::None);
  EXPECT_EQ(answer(320, 128, 256), Fault::Head) << "the head had passed what nobody had reserved";
}

TEST(SharedRing, a_head_that_no_receiver_may_tell_is_named) {
  for (const bool open : {false, true}) {
    const auto answer = [open](std::uint64_t head) {
      SharedWriter writer(kShared, 2);
      writer.begin(64);
      EXPECT_EQ(writer.handle_position(128), Fault::None);
      if (!open) writer.finish();
      EXPECT_EQ(writer.handle_head(64), Fault::None);
      return writer.handle_head(head);
    };
    EXPECT_EQ(answer(64), Fault::None);
    EXPECT_EQ(answer(128), Fault::None);
    EXPECT_EQ(answer(192), open ? Fault::Head : Fault::None) << "it passes a place only when that was written to";
    EXPECT_EQ(answer(0), Fault::Head) << "it went back";
    EXPECT_EQ(answer(65), Fault::Head) << "between units";
    EXPECT_EQ(answer(kMaxPosition), Fault::Head);
  }
}

// What two senders of a shared ring write beside it.
struct SharedWords {
  SharedReader reader(const SharedGeometry& geometry) const {
    SharedReader made(geometry, 2,
                      SharedMemory(reinterpret_cast<const std::byte*>(&tail), std::as_bytes(std::span(cells))));
    for (const std::uint32_t sender : {0u, 1u}) made.add(sender);
    return made;
  }
  void store(std::uint32_t sender, CellWord word, std::uint64_t value) {
    cells[(sender * kCellBytes + cell_offset(word)) / 8] = value;
  }

  std::uint64_t tail = 0;
  std::array<std::uint64_t, 2 * kCellBytes / 8> cells{};
};

TEST(SharedRing, an_arrival_where_none_can_be_is_named) {
  for (const bool doubled : {false, true}) {
    const SharedGeometry geometry{.capacity = 2048, .doubled = doubled};
    const std::uint32_t most = geometry.max_payload_bytes();
    SharedWords words;
    words.tail = 4096;
    // In an empty ring, at that unit.
    const auto arrive = [&](std::uint32_t unit, std::uint32_t bytes) {
      return words.reader(geometry).handle_arrival(0, unit, bytes);
    };
    EXPECT_EQ(arrive(0, most), Fault::None);
    EXPECT_EQ(arrive(0, most + 1), Fault::Length);
    EXPECT_EQ(arrive(31, 64), Fault::None);
    EXPECT_EQ(arrive(31, 65), Fault::Overrun) << "it reaches what is not released";
    EXPECT_EQ(arrive(32, 0), Fault::Overrun);
    words.tail = 128;
    EXPECT_EQ(arrive(1, 64), Fault::None);
    EXPECT_EQ(arrive(1, 65), Fault::Place) << "nobody has reserved its end";
    for (const auto& [bytes, fault] : {std::pair{std::uint64_t{64}, Fault::None}, {0, Fault::Length},
                                       {65, Fault::Length}, {2048 + 64, Fault::Length}}) {
      words.store(0, CellWord::Dropped, bytes);
      EXPECT_EQ(arrive(kDropped, 0), fault) << bytes;
    }
  }
}

// There is room for it, but not in one piece.
TEST(SharedRing, a_message_over_the_end_of_a_plain_ring_is_named) {
  for (const bool doubled : {false, true}) {
    SharedWords words;
    words.tail = 4096;
    SharedReader reader = words.reader({.capacity = 2048, .doubled = doubled});
    ASSERT_EQ(reader.handle_arrival(0, 0, 64), Fault::None);
    const auto first = reader.poll();
    ASSERT_TRUE(first);
    reader.release(first->view);
    EXPECT_EQ(reader.handle_arrival(1, 31, 65), doubled ? Fault::None : Fault::Place);
  }
}

TEST(SharedRing, two_arrivals_at_one_place_are_named) {
  SharedWords words;
  words.tail = 128;
  SharedReader reader = words.reader(kShared);
  EXPECT_EQ(reader.handle_arrival(0, 1, 0), Fault::None);
  EXPECT_EQ(reader.handle_arrival(1, 1, 0), Fault::Place);
  EXPECT_EQ(reader.handle_arrival(1, 0, 0), Fault::None);
}

// Whoever moved it: what an honest sender had reserved before is there, and is no fault of its.
TEST(SharedRing, a_tail_that_went_back_is_no_fault_of_whose_message_arrives) {
  SharedWords words;
  words.tail = 64;
  SharedReader reader = words.reader(kShared);
  ASSERT_EQ(reader.handle_arrival(0, 0, 0), Fault::None);
  ASSERT_TRUE(reader.poll());
  words.tail = 0;
  EXPECT_EQ(reader.handle_arrival(1, 1, 0), Fault::None);
}

TEST(SharedRing, a_tail_that_cannot_be_is_named_when_one_is_gone_with_a_place) {
  const std::uint64_t most = kShared.max_ahead(2);
  for (const auto& [tail, fault] : {std::pair{std::uint64_t{128}, Fault::None}, {most, Fault::None},
                                    {most + 64, Fault::Tail}, {129, Fault::Tail}, {0, Fault::Tail}}) {
    SharedWords words;
    words.tail = 64;
    SharedReader reader = words.reader(kShared);
    ASSERT_EQ(reader.handle_arrival(0, 0, 0), Fault::None);
    ASSERT_TRUE(reader.poll());
    words.tail = tail;
    words.store(1, CellWord::Begun, 1);
    reader.handle_gone(1);
    EXPECT_EQ(reader.fault(), fault) << tail;
  }
}

// Who leaves nothing behind has nothing looked for: a place in front is of one who lives.
TEST(SharedRing, nothing_is_looked_for_when_one_goes_whose_messages_all_arrived) {
  SharedWords words;
  words.tail = 128;
  SharedReader reader = words.reader(kShared);
  words.store(0, CellWord::Begun, 1);
  words.store(1, CellWord::Begun, 1);
  ASSERT_EQ(reader.handle_arrival(1, 1, 0), Fault::None);
  reader.handle_gone(1);
  EXPECT_FALSE(reader.is_searching());
  EXPECT_EQ(reader.handle_arrival(0, 0, 0), Fault::None);
  for (const std::uint32_t sender : {0u, 1u}) {
    const auto got = reader.poll();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->sender, sender);
  }
}

TEST(Ring, every_fault_says_what_it_is) {
  for (int i = 0; i <= static_cast<int>(Fault::Grant); ++i)
    EXPECT_NE(to_string(static_cast<Fault>(i)), "unknown fault");
}

}  // namespace
}  // namespace verbena::ring
