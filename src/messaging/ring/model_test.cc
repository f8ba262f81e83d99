// SPDX-License-Identifier: Apache-2.0
// All that can happen between a writer and a reader of a ring, the code of both being what runs: messages are written
// one by one or two at once; WRITEs arrive in pieces, in the orders the standard or O-4 allow; acknowledgements take
// their time; views are let go of in any order; the reader's loads are steps of their own; the writer may die with a
// WRITE half done, the reader with messages unread.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>

#include "base/sanitizer.h"
#include "messaging/ring/test_model.h"

namespace verbena::ring::buffered_model {
namespace {

constexpr std::uint32_t kUnit = 16;
constexpr std::uint64_t kCapacity = 16 * kUnit;
constexpr std::size_t kWords = 2 * kCapacity / 8;
constexpr std::size_t kViews = 2;  // held at once

// What is broken on purpose, so that the model proves that it would see it.
struct Faults {
  bool no_zeros = false;          // a WRITE does not clear the place of the next word
  bool zeros_from_image = false;  // what it clears with is the image, where the next word may already stand
  bool tail_first = false;        // the tail is on its way before the message
  bool skip_first = false;        // a skip before what is behind it
  bool tell_position = false;     // the reader tells how far it has read, not how far it let go
  bool late_acknowledge = false;  // it tells only when half the ring is free
  bool ignore_head = false;       // the writer takes whatever head it hears for all that it wrote
  bool plain_tail = false;        // the tail is a WRITE like any other, not an atomic, where none is in order
};

struct Scenario {
  Geometry geometry;
  bool order_in_write = true;  // O-4; otherwise what the standard says
  bool reads_head = false;     // the writer READs the head
  Death death = Death::Nobody;
  std::uint32_t before = 0;                    // messages that came and went, one after the other
  std::vector<std::uint32_t> payload_words{};  // of each message
  Faults faults{};
};

struct Outcome {
  std::string violation{};
  std::uint64_t states = 0, ends = 0, refusals = 0, wraps = 0, joined = 0, full = 0, cut = 0;
};

struct State;
const State* g_state = nullptr;
Loads* g_loads = nullptr;

struct ModelMemory {
  std::uint64_t load(std::uint64_t offset) const;
  std::uint64_t load_tail() const;
};
using ModelReader = BasicReader<ModelMemory>;

struct Held {
  View view;
  std::size_t message;
};

struct State {
  explicit State(const Geometry& geometry)
      : writer(geometry, std::as_writable_bytes(std::span(image))), reader(geometry, ModelMemory{}) {}
  State(const State& other) : State(other.writer.geometry()) { *this = other; }
  State& operator=(const State& other) {
    image = other.image, ring = other.ring, tail = other.tail, stored_head = other.stored_head;
    writer = other.writer, reader = other.reader;
    Inspect::rebind(writer, std::as_writable_bytes(std::span(image)));
    sent = other.sent, committed = other.committed, received = other.received;
    dead = other.dead, reader_dead = other.reader_dead;
    on_the_way = other.on_the_way, immediates = other.immediates;
    heads = other.heads, held = other.held, log = other.log;
    return *this;
  }

  std::array<std::uint64_t, kWords> image{}, ring{};
  std::uint64_t tail = 0, stored_head = 0;
  Writer writer;
  ModelReader reader;
  std::size_t sent = 0, committed = 0, received = 0;
  bool dead = false, reader_dead = false;
  struct Packet {
    RemoteWrite write;
    std::size_t messages;       // that are whole with it
    std::uint32_t applied = 0;  // pieces, a bit each
  };
  std::deque<Packet> on_the_way;
  std::deque<std::uint32_t> immediates;
  std::deque<std::uint64_t> heads;  // told, not arrived
  std::vector<Held> held;
  std::vector<std::uint64_t> log;

  std::size_t key() const {
    Key key;
    key.add_all(image), key.add_all(ring), key.add(tail), key.add(stored_head);
    Inspect::digest(writer, key), Inspect::digest(reader, key);
    for (const std::uint64_t value : {sent, committed, received, std::size_t{dead}, std::size_t{reader_dead}})
      key.add(value);
    for (const Packet& packet : on_the_way)
      key.add(packet.write.offset), key.add(packet.write.word), key.add(packet.write.bytes), key.add(packet.applied);
    key.add(on_the_way.size());
    key.add_all(immediates), key.add_all(heads), key.add_all(log);
    for (const Held& one : held) key.add(one.message);
    return key.hash();
  }
};

std::uint64_t ModelMemory::load(std::uint64_t offset) const {
  return g_loads->load(g_state->ring[g_state->reader.geometry().place_of(offset) / 8]);
}
std::uint64_t ModelMemory::load_tail() const { return g_loads->load(g_state->tail); }

class Explorer : StateSpace<State, Outcome> {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {}

  Outcome run() {
    State first(scenario_.geometry);
    if (!warm_up(first)) return outcome_;
    return walk(first, [this](const State& state) { return leave(state); }, [this](const State& state) { end(state); });
  }

 private:
  // Laps full of payload that looks like words.
  bool warm_up(State& state) {
    const std::size_t messages = scenario_.before + scenario_.payload_words.size();
    for (std::size_t i = 0; i < messages; ++i) words_.push_back(i < scenario_.before ? 5 : 0);
    std::copy(scenario_.payload_words.begin(), scenario_.payload_words.end(),
              words_.begin() + scenario_.before);
    for (std::size_t i = 0; i < scenario_.before; ++i) {
      send(state, 1);
      while (!state.on_the_way.empty())
        for (std::uint32_t piece = 0; piece < 4; ++piece) apply(state, 0, piece);
      Loads all{.log = {}, .stepwise = false};
      if (!look(state, all)) fail("the ring is stuck before it began");
      if (!outcome_.violation.empty()) return false;
      let_go(state, 0);
      state.writer.handle_head(state.reader.acknowledge());
      state.heads.clear();
    }
    return true;
  }

  bool leave(const State& state) {
    const std::size_t from = state.key();
    bool any = false;
    const auto step = [&](auto f) {
      State next = state;
      f(next);
      any |= meet(next, from);
    };
    for (std::size_t most = 1; most <= 2; ++most)
      if (!state.dead && state.sent + most <= words_.size()) step([&](State& next) { send(next, most); });
    for (std::size_t which = 0; which < std::min<std::size_t>(2, state.on_the_way.size()); ++which)
      for (std::uint32_t piece = 0; piece < 4; ++piece)
        if (may_arrive(state, which, piece)) step([&](State& next) { apply(next, which, piece); });
    if (!state.reader_dead && state.held.size() < kViews) step([&](State& next) { look_once(next); });
    for (std::size_t i = 0; !state.reader_dead && i < state.held.size(); ++i)
      step([&](State& next) { let_go(next, i); });
    if (!state.dead && scenario_.reads_head && state.heads.empty() &&
        state.stored_head != state.writer.head())
      step([](State& next) { next.heads.push_back(next.stored_head); });
    if (!state.dead && !state.heads.empty()) step([&](State& next) { hear(next); });
    if (scenario_.death == Death::OfWriter && !state.dead) step([](State& next) { die(next); });
    if (scenario_.death == Death::OfReader && !state.reader_dead) step([](State& next) { next.reader_dead = true; });
    if (state.reader_dead) check_unread(state);
    return any;
  }

  // So many at once, or as many as there is room for.
  void send(State& state, std::size_t most) {
    std::vector<State::Packet> packets;
    std::size_t taken = 0;
    while (taken < most && write_message(state, packets)) ++taken;
    if (taken < most) ++outcome_.refusals;
    if (taken == 0) return;
    const auto tail = state.writer.publish();
    if (tail) packets.insert(scenario_.faults.tail_first ? packets.begin() : packets.end(), {*tail, 0});
    if (tail) packets.back().messages = taken;
    state.on_the_way.insert(state.on_the_way.end(), packets.begin(), packets.end());
  }
  bool write_message(State& state, std::vector<State::Packet>& packets) {
    const std::uint32_t bytes = words_[state.sent] * 8;
    const auto place = state.writer.try_reserve(bytes);
    if (!place) return false;
    for (std::size_t i = 0; i < words_[state.sent]; ++i) {
      const std::uint64_t word = payload_word(state.sent, i);
      std::memcpy(state.writer.payload(*place).data() + 8 * i, &word, 8);
    }
    const std::uint64_t before = state.writer.position();
    const WriteList& list = state.writer.commit(*place);
    if (place->position != before) ++outcome_.wraps;
    if (places_.size() == state.sent) places_.push_back(*place);  // the same whatever happens
    std::vector<RemoteWrite> writes(list.view().begin(), list.view().end());
    if (scenario_.faults.skip_first) std::reverse(writes.begin(), writes.end());
    for (const RemoteWrite& write : writes)
      if (packets.empty() || !join(packets.back().write, write))
        packets.push_back({write, 0});
      else
        ++outcome_.joined;
    if (scenario_.geometry.commit != Commit::Offset) ++packets.back().messages;
    ++state.sent;
    return true;
  }

  // A WRITE arrives in four pieces: its zeros, two parts of what is between, and its last word.
  struct Range {
    std::uint64_t begin, end;  // words of the WRITE
  };
  static Range piece_of(const RemoteWrite& write, std::uint32_t piece) {
    const std::uint64_t zeros = write.zero_bytes / 8, words = (write.zero_bytes + write.bytes) / 8;
    const std::uint64_t last = words == 0 ? 0 : words - 1, middle = std::max(zeros, (zeros + last) / 2);
    const std::array<std::uint64_t, 5> ends = {0, std::min(zeros, last), std::min(middle, last), last, words};
    return {ends[piece], ends[piece + 1]};
  }
  // The pieces of two WRITEs in no order mix, those of the second in turn. An atomic waits for what is before it.
  bool may_arrive(const State& state, std::size_t which, std::uint32_t piece) const {
    const State::Packet& packet = state.on_the_way[which];
    if ((packet.applied >> piece & 1) != 0) return false;
    if (scenario_.order_in_write) return which == 0 && (piece != 3 || packet.applied == 7);
    if (which == 0) return true;
    return packet.applied == (1u << piece) - 1 &&
           (packet.write.target == RemoteWrite::Target::Ring || scenario_.faults.plain_tail);
  }
  void apply(State& state, std::size_t which, std::uint32_t piece) {
    State::Packet& packet = state.on_the_way[which];
    const Range range = piece_of(packet.write, piece);
    for (std::uint64_t i = range.begin; i < range.end; ++i) store(state, packet.write, i);
    packet.applied |= 1u << piece;
    while (!state.on_the_way.empty() && state.on_the_way.front().applied == 15) {
      const State::Packet& first = state.on_the_way.front();
      if (first.write.immediate) state.immediates.push_back(*first.write.immediate);
      state.committed += first.messages;
      state.on_the_way.pop_front();
    }
  }
  void store(State& state, const RemoteWrite& write, std::uint64_t index) const {
    if (write.target == RemoteWrite::Target::Tail) {
      state.tail = write.word;
      return;
    }
    const std::uint64_t at = scenario_.geometry.place_of(write.offset + 8 * index) / 8;
    if (write.source == RemoteWrite::Source::Word) {
      state.ring[at] = write.word;
    } else if (8 * index >= write.zero_bytes) {
      state.ring[at] = state.image[(write.image_offset + 8 * index - write.zero_bytes) / 8];
    } else if (scenario_.faults.zeros_from_image) {
      state.ring[at] = state.image[(write.image_offset - 8) / 8];
    } else if (!scenario_.faults.no_zeros) {
      state.ring[at] = 0;
    }
  }

  void look_once(State& state) {
    Loads loads{.log = state.log};
    const ModelReader before = state.reader;
    const bool took = look(state, loads);
    state.log.clear();
    if (loads.suspended) {
      state.reader = before;
      if (took) state.held.pop_back(), --state.received;
      state.log = loads.log;
    }
    if (state.reader.fault() != Fault::None) fail("the reader found a fault of an honest writer");
  }
  bool look(State& state, Loads& loads) {
    g_state = &state;
    g_loads = &loads;
    std::optional<View> view;
    if (scenario_.geometry.commit != Commit::Immediate) {
      view = state.reader.poll();
    } else if (!state.immediates.empty()) {
      view = state.reader.handle_immediate(state.immediates.front());
      state.immediates.pop_front();
    }
    if (!view) return false;
    if (!loads.suspended) check_view(state, *view, state.received);
    state.held.push_back({*view, state.received});
    ++state.received;
    return true;
  }
  void check_view(const State& state, const View& view, std::size_t message) {
    if (message >= state.sent) return fail("a message from nowhere");
    if (view.bytes != words_[message] * 8) return fail("a message of another length");
    for (std::size_t i = 0; i < words_[message]; ++i)
      if (state.ring[scenario_.geometry.place_of(view.offset + 8 * i) / 8] != payload_word(message, i))
        return fail("a message that is not whole");
  }

  void let_go(State& state, std::size_t which) {
    const Held one = state.held[which];
    check_view(state, one.view, one.message);
    state.held.erase(state.held.begin() + static_cast<std::ptrdiff_t>(which));
    state.reader.release(one.view);
    const bool due = scenario_.faults.late_acknowledge
                         ? state.reader.head() - state.writer.head() >= kCapacity / 2
                         : state.reader.acknowledgement_due();
    if (!due && !scenario_.reads_head) return;
    const std::uint64_t head = state.reader.acknowledge();
    const std::uint64_t told = scenario_.faults.tell_position ? state.reader.position() : head;
    if (scenario_.reads_head)
      state.stored_head = told;
    else
      state.heads.push_back(told);
  }
  void hear(State& state) {
    const std::uint64_t head = scenario_.faults.ignore_head ? state.writer.position() : state.heads.front();
    if (state.writer.handle_head(head) != Fault::None)
      fail("the writer found a fault of the reader");
    state.heads.pop_front();
  }
  // What is not there yet never comes.
  static void die(State& state) {
    state.dead = true;
    state.on_the_way.clear();
  }

  // What a dead reader did not give back stays as it came, and the writer does not count on it.
  void check_unread(const State& state) {
    const std::uint64_t told = Inspect::told(state.reader);
    if (state.writer.head() > told) return fail("the writer believes more than it was told");
    for (std::size_t i = 0; i < state.committed; ++i) {
      const Reservation& place = places_[i];
      if (place.position >= told) check_view(state, {place.position, place.payload_offset, place.payload_bytes}, i);
    }
  }

  void end(const State& state) {
    ++outcome_.ends;
    if (state.reader_dead) {
      if (state.sent == words_.size()) return;
      ++outcome_.full;
      if (state.writer.fault() != Fault::None) fail("the writer found a fault of the reader");
      if (state.writer.head() != Inspect::told(state.reader)) fail("a head that was told is lost");
      return;
    }
    if (!state.dead && state.received < words_.size()) return fail("somebody waits for ever");
    if (state.received < words_.size()) ++outcome_.cut;
    if (state.received < state.committed) fail("a message that was there is lost");
  }

  const Scenario scenario_;
  std::vector<std::uint32_t> words_;
  std::vector<Reservation> places_;  // of each message
};

Outcome explore(const Scenario& scenario) { return Explorer(scenario).run(); }

Geometry form(Commit commit, bool doubled) {
  // As many as there are receives for, of immediates.
  const std::uint32_t most = commit == Commit::Immediate ? 3 : 0;
  return {.capacity = kCapacity, .commit = commit, .doubled = doubled, .max_messages = most, .unit = kUnit};
}

// Long enough that four of them pass the end of the ring, short enough to be many.
const std::vector<std::uint32_t> kMixed = {5, 0, 9, 1, 7};

std::vector<Scenario> scenarios(Death death) {
  std::vector<Scenario> all;
  for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
    for (const bool doubled : {false, true})
      for (const bool reads_head : {false, true})
        for (const std::uint32_t before : {3u, 8u})
          all.push_back({.geometry = form(commit, doubled),
                         .order_in_write = commit == Commit::Reversed,
                         .reads_head = reads_head,
                         .death = death,
                         .before = before,
                         .payload_words = kMixed});
  // One thread takes every step: a sanitizer has seen its code after a part of them.
  std::erase_if(all, [n = 0](const Scenario&) mutable { return kSanitized && n++ % 5 != 0; });
  return all;
}

TEST(BufferedRingModel, every_form_delivers_each_message_once_whole_and_in_order) {
  std::uint64_t refusals = 0, wraps = 0, joined = 0;
  for (const Scenario& scenario : scenarios(Death::Nobody)) {
    const Outcome outcome = explore(scenario);
    EXPECT_EQ(outcome.violation, "") << static_cast<int>(scenario.geometry.commit)
                                     << scenario.geometry.doubled << scenario.reads_head << scenario.before;
    EXPECT_GT(outcome.ends, 0u);
    refusals += outcome.refusals;
    wraps += outcome.wraps;
    joined += outcome.joined;
  }
  EXPECT_GT(refusals, 0u) << "no ring ever was full";
  EXPECT_GT(wraps, 0u) << "no ring ever wrapped";
  EXPECT_GT(joined, 0u) << "no two messages ever were one WRITE";
}

TEST(BufferedRingModel, a_writer_that_dies_anywhere_leaves_whole_messages_and_all_that_were_committed) {
  for (const Scenario& scenario : scenarios(Death::OfWriter)) {
    const Outcome outcome = explore(scenario);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.cut, 0u) << "no writer ever died before its last message was there";
  }
}

TEST(BufferedRingModel, a_reader_that_dies_anywhere_leaves_a_full_ring_and_what_it_had_not_read) {
  std::uint64_t full = 0;
  for (const Scenario& scenario : scenarios(Death::OfReader)) {
    const Outcome outcome = explore(scenario);
    EXPECT_EQ(outcome.violation, "");
    full += outcome.full;
  }
  EXPECT_GT(full, 0u) << "no ring ever stayed full";
}

TEST(BufferedRingModel, the_longest_messages_never_wait_for_ever) {
  for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed}) {
    for (const bool doubled : {false, true}) {
      Scenario scenario{.geometry = form(commit, doubled), .order_in_write = commit == Commit::Reversed};
      const std::uint32_t most = scenario.geometry.max_payload_bytes() / 8;
      scenario.payload_words = {1, most, most, 0, most, most};
      EXPECT_EQ(explore(scenario).violation, "") << static_cast<int>(commit) << doubled;
    }
  }
}

TEST(BufferedRingModel, a_reversed_ring_needs_order_inside_a_write) {
  Scenario scenario{.geometry = form(Commit::Reversed, false), .before = 8, .payload_words = kMixed};
  scenario.order_in_write = false;
  EXPECT_EQ(explore(scenario).violation, "a message that is not whole");
}

TEST(BufferedRingModel, what_is_broken_on_purpose_is_seen) {
  const auto broken = [](Commit commit, Faults faults) {
    std::string found;
    for (const std::uint32_t before : {0u, 3u, 8u})
      for (const bool doubled : {false, true}) {
        const Geometry geometry = form(commit, doubled);
        const std::uint32_t most = geometry.max_payload_bytes() / 8;
        const std::vector<std::uint32_t> words = {5, 0, 9, 1, 7, most, most, most};
        if (found.empty())
          found = explore({.geometry = geometry, .before = before, .payload_words = words, .faults = faults})
                      .violation;
      }
    return found;
  };
  for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
    EXPECT_EQ(explore({.geometry = form(commit, false),
                       .death = Death::OfReader,
                       .before = 8,
                       .payload_words = kMixed,
                       .faults = {.ignore_head = true}})
                  .violation,
              "the writer believes more than it was told");
  EXPECT_NE(broken(Commit::Reversed, {.no_zeros = true}), "");
  EXPECT_NE(broken(Commit::Reversed, {.zeros_from_image = true}), "");
  EXPECT_NE(broken(Commit::Reversed, {.skip_first = true}), "");
  EXPECT_NE(broken(Commit::Offset, {.tail_first = true}), "");
  EXPECT_NE(explore({.geometry = form(Commit::Offset, false),
                     .order_in_write = false,
                     .before = 8,
                     .payload_words = kMixed,
                     .faults = {.plain_tail = true}})
                .violation,
            "");
  for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed}) {
    EXPECT_NE(broken(commit, {.tell_position = true}), "");
    EXPECT_EQ(broken(commit, {.late_acknowledge = true}), "somebody waits for ever");
  }
}

}  // namespace
}  // namespace verbena::ring::buffered_model
