// SPDX-License-Identifier: Apache-2.0
// All that can happen between a sender that fills a ring in its own memory and a receiver that READs it: the code of
// both being what runs. Stores, READs and the WRITE of the head take effect in pieces and in any order, but for what
// their completions say; the sender, or the receiver, may die between any two of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "base/sanitizer.h"
#include "messaging/ring/test_model.h"

namespace verbena::ring::fetch_model {
namespace {

constexpr std::uint32_t kUnit = 16;
constexpr std::uint64_t kCapacity = 16 * kUnit;
constexpr std::size_t kWords = 2 * kCapacity / 8;
constexpr std::uint32_t kMostBytes = 6 * kUnit;  // of a READ
constexpr std::size_t kViews = 2;                // held at once

using Memory = std::array<std::uint64_t, kWords>;

// What is broken on purpose, so that the model proves that it would see it.
struct Faults {
  bool tail_first = false;      // the tail is stored before the message
  bool asked_is_whole = false;  // what is asked for is taken for what is there
  bool tell_position = false;   // the receiver tells how far it has read, not how far it let go
  bool tell_nothing = false;
  bool ignore_head = false;  // the sender takes whatever head it sees for all that it wrote
};

struct Scenario {
  bool doubled = false;
  Death death = Death::Nobody;
  std::uint32_t before = 0;                    // messages that came and went, one after the other
  std::vector<std::uint32_t> payload_words{};  // of each message
  Faults faults{};
};

struct Outcome {
  std::string violation{};
  std::uint64_t states = 0, ends = 0, refusals = 0, wraps = 0, spans_at_once = 0, full = 0;
};

struct State;
const State* g_state = nullptr;

struct ModelMemory {
  std::uint64_t load(std::uint64_t offset) const;
  std::uint64_t load_tail() const;
};
using ModelReader = BasicReader<ModelMemory>;

struct Request {
  enum class Kind : std::uint8_t { Tail, Span, Head } kind = Kind::Tail;
  Span span{};
  std::uint64_t value = 0;
  std::uint32_t pieces = 1;  // not done, a bit each
};

struct Held {
  View view;
  std::size_t message;
};

struct State {
  explicit State(const Geometry& geometry)
      : writer(geometry, std::as_writable_bytes(std::span(ring))),
        plan(geometry, kMostBytes),
        reader(geometry, ModelMemory{}) {}
  State(const State& other) : State(other.writer.geometry()) { *this = other; }
  State& operator=(const State& other) {
    ring = other.ring, image = other.image, tail = other.tail, head = other.head, whole = other.whole;
    writer = other.writer, plan = other.plan, reader = other.reader;
    Inspect::rebind(writer, std::as_writable_bytes(std::span(ring)));
    place = other.place, sent = other.sent, published = other.published, received = other.received;
    dead = other.dead, receiver_dead = other.receiver_dead, requests = other.requests, held = other.held;
    return *this;
  }

  Memory ring{}, image{};            // the sender's, the receiver's
  std::uint64_t tail = 0, head = 0;  // words of the sender's memory
  std::uint64_t whole = 0;           // of the receiver's: how far its reader may look
  Writer writer;
  FetchPlan plan;
  ModelReader reader;
  std::optional<Reservation> place;  // of a message that is half stored
  std::size_t sent = 0, published = 0, received = 0;
  bool dead = false, receiver_dead = false;
  std::deque<Request> requests;
  std::vector<Held> held;

  bool asks(Request::Kind kind) const {
    return std::any_of(requests.begin(), requests.end(), [kind](const auto& one) { return one.kind == kind; });
  }
  std::size_t key() const {
    Key key;
    key.add_all(ring), key.add_all(image), key.add(tail), key.add(head), key.add(whole);
    Inspect::digest(writer, key), Inspect::digest(plan, key), Inspect::digest(reader, key);
    for (const std::uint64_t value : {sent, published, received, std::size_t{dead}, std::size_t{receiver_dead},
                                      std::size_t{place.has_value()}})
      key.add(value);
    for (const Request& one : requests)
      for (const std::uint64_t value :
           {static_cast<std::uint64_t>(one.kind), one.span.offset, std::uint64_t{one.span.bytes}, one.value,
            std::uint64_t{one.pieces}})
        key.add(value);
    for (const Held& one : held) key.add(one.message);
    return key.hash();
  }
};

std::uint64_t ModelMemory::load(std::uint64_t offset) const { return g_state->image[offset / 8]; }
std::uint64_t ModelMemory::load_tail() const { return g_state->whole; }

class Explorer : StateSpace<State, Outcome> {
 public:
  explicit Explorer(const Scenario& scenario)
      : scenario_(scenario),
        geometry_{.capacity = kCapacity, .commit = Commit::Offset, .doubled = scenario.doubled, .unit = kUnit} {}

  Outcome run() {
    State first(geometry_);
    words_.assign(scenario_.before, 5);
    words_.insert(words_.end(), scenario_.payload_words.begin(), scenario_.payload_words.end());
    for (std::size_t i = 0; i < scenario_.before; ++i) come_and_go(first);
    return walk(first, [this](const State& state) { return leave(state); }, [this](const State& state) { end(state); });
  }

 private:
  // One message, with nothing beside it.
  void come_and_go(State& state) {
    begin(state), finish(state), publish(state);
    ask_for_tail(state), perform_all(state);
    while (ask_for_span(state)) perform_all(state);
    look(state);
    if (state.held.empty()) return fail("the ring is stuck before it began");
    let_go(state, 0);
    tell(state), perform_all(state), hear(state);
  }
  void perform_all(State& state) {
    for (Request& one : state.requests)
      for (std::uint32_t piece = 0; piece < 2; ++piece) perform(state, one, piece);
    while (!state.requests.empty()) complete(state);
  }

  bool leave(const State& state) {
    const std::size_t from = state.key();
    bool any = false;
    const auto step = [&](auto f) {
      State next = state;
      f(next);
      any |= meet(next, from);
    };
    if (!state.dead) {
      if (state.place)
        step([&](State& next) { finish(next); });
      else if (state.sent < words_.size())
        step([&](State& next) { begin(next); });
      if (!state.place && state.published != state.sent) step([&](State& next) { publish(next); });
      if (state.head != state.writer.head()) step([&](State& next) { hear(next); });
      if (scenario_.death == Death::OfWriter) step([](State& next) { die(next); });
    }
    if (!state.dead && !state.receiver_dead) {
      if (scenario_.death == Death::OfReader) step([](State& next) { next.receiver_dead = true; });
      // With nothing new there it would come back as it went.
      if (state.tail != Inspect::tail(state.plan)) step([&](State& next) { ask_for_tail(next); });
      step([&](State& next) { ask_for_span(next); });
      step([&](State& next) { tell(next); });
    }
    for (std::size_t i = 0; i < state.requests.size(); ++i)
      for (std::uint32_t piece = 0; piece < 2; ++piece)
        step([&](State& next) { perform(next, next.requests[i], piece); });
    if (state.receiver_dead) {
      check_unread(state);
      return any;
    }
    step([&](State& next) { complete(next); });
    if (state.held.size() < kViews) step([&](State& next) { look(next); });
    for (std::size_t i = 0; i < state.held.size(); ++i) step([&](State& next) { let_go(next, i); });
    return any;
  }

  // ---- The sender: some of a message, the rest of it, and the tail, for one message or several.

  void begin(State& state) {
    state.place = state.writer.try_reserve(words_[state.sent] * 8);
    if (!state.place) {
      ++outcome_.refusals;
      return;
    }
    if (state.place->skip != 0) ++outcome_.wraps;
    if (places_.size() == state.sent) places_.push_back(*state.place);  // the same whatever happens
    store_payload(state, 0, words_[state.sent] / 2);
    if (scenario_.faults.tail_first) state.tail = state.place->position + state.place->frame;
  }
  void finish(State& state) {
    store_payload(state, words_[state.sent] / 2, words_[state.sent]);
    const WriteList& list = state.writer.commit(*state.place);
    for (const RemoteWrite& write : list.view())
      if (write.source == RemoteWrite::Source::Word) state.ring[write.offset / 8] = write.word;
    const std::uint64_t at = geometry_.word_offset(state.place->position) / 8;
    mirror(state.ring, at, 1);
    state.place.reset();
    ++state.sent;
  }
  void publish(State& state) {
    if (const auto tail = state.writer.publish()) state.tail = tail->word;
    state.published = state.sent;
  }
  void hear(State& state) {
    const std::uint64_t head = scenario_.faults.ignore_head ? state.writer.position() : state.head;
    if (state.writer.handle_head(head) != Fault::None) fail("the sender found a fault of the receiver");
  }
  void store_payload(State& state, std::size_t begin, std::size_t end) {
    const std::uint64_t at = state.place->payload_offset / 8;
    for (std::size_t i = begin; i < end; ++i) state.ring[at + i] = payload_word(state.sent, i);
    mirror(state.ring, at + begin, end - begin);
  }
  // The same memory is seen twice.
  void mirror(Memory& memory, std::uint64_t at, std::size_t count) const {
    if (!geometry_.doubled) return;
    for (std::uint64_t i = at; i < at + count; ++i) memory[(i + kWords / 2) % kWords] = memory[i];
  }
  // What the receiver has asked for is not answered any more.
  static void die(State& state) {
    state.dead = true;
    state.requests.clear();
  }

  // ---- The receiver.

  void ask_for_tail(State& state) {
    if (!state.asks(Request::Kind::Tail) && !state.plan.is_full()) state.requests.push_back({Request::Kind::Tail});
  }
  bool ask_for_span(State& state) {
    const auto span = state.plan.next();
    if (!span) return false;
    if (span->offset + span->bytes > geometry_.memory_bytes()) fail("a READ behind the ring");
    state.requests.push_back({Request::Kind::Span, *span, 0, 3});
    outcome_.spans_at_once = std::max<std::uint64_t>(outcome_.spans_at_once, state.plan.asked());
    if (scenario_.faults.asked_is_whole) state.whole = Inspect::tail(state.plan);
    return true;
  }
  void tell(State& state) {
    if (scenario_.faults.tell_nothing || state.asks(Request::Kind::Head) || !state.reader.acknowledgement_due())
      return;
    const std::uint64_t position = state.reader.position();
    const std::uint64_t head = state.reader.acknowledge();
    state.plan.handle_told(head);
    state.requests.push_back({Request::Kind::Head, {}, scenario_.faults.tell_position ? position : head});
  }
  // A piece of a request takes effect.
  void perform(State& state, Request& one, std::uint32_t piece) const {
    if ((one.pieces >> piece & 1) == 0) return;
    one.pieces &= ~(1u << piece);
    if (one.kind == Request::Kind::Tail) {
      one.value = state.tail;
    } else if (one.kind == Request::Kind::Head) {
      state.head = one.value;
    } else {
      const std::uint64_t at = one.span.offset / 8, words = one.span.bytes / 8, half = words / 2;
      const std::uint64_t begin = at + (piece == 0 ? 0 : half), end = at + (piece == 0 ? half : words);
      std::copy(state.ring.begin() + static_cast<std::ptrdiff_t>(begin),
                state.ring.begin() + static_cast<std::ptrdiff_t>(end),
                state.image.begin() + static_cast<std::ptrdiff_t>(begin));
      mirror(state.image, begin, end - begin);
    }
  }
  // The oldest, when all of it is done.
  void complete(State& state) {
    if (state.requests.empty() || state.requests.front().pieces != 0) return;
    const Request one = state.requests.front();
    state.requests.pop_front();
    if (one.kind == Request::Kind::Tail && state.plan.handle_tail(one.value) != Fault::None)
      fail("the receiver found a fault of the tail");
    if (one.kind != Request::Kind::Span) return;
    state.plan.handle_fetched();
    if (!scenario_.faults.asked_is_whole) state.whole = state.plan.whole();
  }
  void look(State& state) {
    g_state = &state;
    const auto view = state.reader.poll();
    if (state.reader.fault() != Fault::None) fail("the receiver found a fault of an honest sender");
    if (!view) return;
    check_view(state, *view, state.received);
    state.held.push_back({*view, state.received++});
  }
  void let_go(State& state, std::size_t which) {
    const Held one = state.held[which];
    check_view(state, one.view, one.message);
    state.held.erase(state.held.begin() + static_cast<std::ptrdiff_t>(which));
    state.reader.release(one.view);
  }
  void check_view(const State& state, const View& view, std::size_t message) {
    if (message >= state.sent) return fail("a message from nowhere");
    if (view.bytes != words_[message] * 8) return fail("a message of another length");
    check_payload(state.image, view, message);
  }
  void check_payload(const Memory& memory, const View& view, std::size_t message) {
    for (std::size_t i = 0; i < words_[message]; ++i)
      if (memory[view.offset / 8 + i] != payload_word(message, i)) return fail("a message that is not whole");
  }

  // What a dead receiver did not give back stays where it was, and the sender does not count on it.
  void check_unread(const State& state) {
    const std::uint64_t told = Inspect::told(state.reader);
    if (state.writer.head() > told) return fail("the sender believes more than it was told");
    for (std::size_t i = 0; i < state.sent; ++i)
      if (const Reservation& place = places_[i]; place.position >= told)
        check_payload(state.ring, {place.position, place.payload_offset, place.payload_bytes}, i);
  }

  void end(const State& state) {
    ++outcome_.ends;
    if (state.receiver_dead) {
      if (state.sent == words_.size()) return;
      ++outcome_.full;
      if (state.writer.head() != Inspect::told(state.reader)) fail("a head that was told is lost");
      return;
    }
    if (!state.dead && state.received < words_.size()) fail("somebody waits for ever");
    if (state.reader.position() != state.whole) fail("a message that was fetched is lost");
  }

  const Scenario scenario_;
  const Geometry geometry_;
  std::vector<std::uint32_t> words_;
  std::vector<Reservation> places_;  // of each message
};

Outcome explore(const Scenario& scenario) { return Explorer(scenario).run(); }

// The longest takes more than one READ, and four of them pass the end of the ring.
const std::vector<std::uint32_t> kMixed = {5, 0, 13, 1};

TEST(FetchModel, every_message_comes_once_whole_and_in_order) {
  std::uint64_t refusals = 0, wraps = 0, at_once = 0;
  for (const bool doubled : {false, true})
    for (const std::uint32_t before : {0u, 2u, 4u}) {
      if (kSanitized && before != 2) continue;  // of one thread: it has seen this code after a part of it
      const Outcome outcome = explore({.doubled = doubled, .before = before, .payload_words = kMixed});
      EXPECT_EQ(outcome.violation, "") << doubled << before;
      EXPECT_GT(outcome.ends, 0u);
      refusals += outcome.refusals;
      wraps += outcome.wraps;
      at_once = std::max(at_once, outcome.spans_at_once);
    }
  EXPECT_GT(refusals, 0u) << "no ring ever was full";
  EXPECT_GT(wraps, 0u) << "no ring ever wrapped";
  EXPECT_GT(at_once, 1u) << "no two READs were under way";
}

TEST(FetchModel, a_sender_that_dies_anywhere_leaves_whole_messages_and_all_that_were_fetched) {
  for (const bool doubled : {false, true}) {
    if (kSanitized && doubled) continue;
    const Outcome outcome =
        explore({.doubled = doubled, .death = Death::OfWriter, .before = 4, .payload_words = kMixed});
    EXPECT_EQ(outcome.violation, "") << doubled;
    EXPECT_GT(outcome.ends, 1000u) << "deaths at few places";
  }
}

TEST(FetchModel, a_receiver_that_dies_anywhere_leaves_a_full_ring_and_what_it_had_not_fetched) {
  for (const bool doubled : {false, true}) {
    if (kSanitized && doubled) continue;
    const Outcome outcome =
        explore({.doubled = doubled, .death = Death::OfReader, .before = 4, .payload_words = {5, 13, 0, 13, 9}});
    EXPECT_EQ(outcome.violation, "") << doubled;
    EXPECT_GT(outcome.full, 0u) << "the ring never stayed full";
  }
}

TEST(FetchModel, the_longest_messages_never_wait_for_ever) {
  for (const bool doubled : {false, true}) {
    if (kSanitized && doubled) continue;
    const Geometry geometry{.capacity = kCapacity, .commit = Commit::Offset, .doubled = doubled, .unit = kUnit};
    const std::uint32_t most = geometry.max_payload_bytes() / 8;
    EXPECT_EQ(explore({.doubled = doubled, .payload_words = {1, most, most, 0, most}}).violation, "") << doubled;
  }
}

TEST(FetchModel, what_is_broken_on_purpose_is_seen) {
  const auto broken = [](const Faults& faults) {
    return explore({.before = 4, .payload_words = {5, 0, 13, 13, 13}, .faults = faults}).violation;
  };
  EXPECT_EQ(broken({.tail_first = true}), "the receiver found a fault of an honest sender");
  EXPECT_EQ(broken({.asked_is_whole = true}), "the receiver found a fault of an honest sender");
  EXPECT_EQ(broken({.tell_position = true}), "the receiver found a fault of the tail");
  EXPECT_EQ(broken({.tell_nothing = true}), "somebody waits for ever");
  EXPECT_EQ(explore({.death = Death::OfReader, .payload_words = kMixed, .faults = {.ignore_head = true}}).violation,
            "the sender believes more than it was told");
}

}  // namespace
}  // namespace verbena::ring::fetch_model
