// SPDX-License-Identifier: Apache-2.0
// All that can happen between some senders and the receiver of a shared ring, the code of all being what
// runs: each queue pair carries its requests out in order, one by one, whenever it likes; any sender may die
// at any step, and what it had posted may arrive or not until it is fenced; so may the receiver's program, whose memory
// the senders still reach for a while.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <span>

#include "base/sanitizer.h"
#include "messaging/ring/test_model.h"

namespace verbena::ring::shared_model {
namespace {

constexpr std::uint32_t kUnit = 8;
constexpr std::uint64_t kCapacity = 16 * kUnit;
constexpr std::size_t kSenders = 3, kSearch = 3 + kSenders;

// What is broken on purpose, so that the model proves that it would see it.
struct Faults {
  bool no_fence = false;         // a dead sender's requests may still arrive when it is said to be gone
  bool no_waiting_word = false;  // who waits for room does not say so
  bool nobody_asked = false;     // gaps are passed over without a look at the others' counters
  bool counter_late = false;     // a sender says that it has begun after it has
  bool tail_last = false;        // the receiver reads the tail after the counters
  bool ignore_head = false;      // a sender takes whatever head it READs for one that leaves it room
};

struct Scenario {
  bool doubled = false;
  std::array<std::vector<std::uint32_t>, kSenders> units{};  // of each sender's messages
  std::size_t deaths = 0;                                    // at most
  std::uint64_t stolen = 0;  // units that somebody adds to the tail, once, who says nothing of it
  bool searches = false;     // the receiver looks for what is nobody's whenever it likes
  bool receiver_dies = false;
  std::uint64_t begin = 0;                                   // units the ring stands at
  Faults faults{};
};

struct Outcome {
  std::string violation{};
  std::uint64_t states = 0, ends = 0, waits = 0, drops = 0, gaps = 0, full = 0;
};

struct Request {
  enum Kind : std::uint8_t { Cell, Add, ReadHead, Payload, Arrive } kind;
  std::uint64_t a = 0, b = 0;
};

struct Peer {
  explicit Peer(const SharedGeometry& geometry) : writer(geometry, kSenders) {}
  SharedWriter writer;
  std::size_t begun = 0;  // messages
  enum Life : std::uint8_t { Live, Dead, Fenced, Gone } life = Live;
  std::deque<Request> posted;
  std::deque<Request> answers;
  bool said_waiting = false;
  std::size_t arrived = 0, received = 0;
};

struct State;
const State* g_state = nullptr;
Loads* g_loads = nullptr;
const Faults* g_faults = nullptr;

struct ModelMemory {
  std::uint64_t load_tail() const;
  std::uint64_t load_cell(std::uint32_t sender, CellWord word) const;
};
using ModelReader = BasicSharedReader<ModelMemory>;

struct Held {
  SharedView view;
  std::size_t message;
};

struct State {
  explicit State(const SharedGeometry& geometry)
      : reader(geometry, kSenders, ModelMemory{}), peers{Peer(geometry), Peer(geometry), Peer(geometry)} {}
  ModelReader reader;
  std::array<Peer, kSenders> peers;
  std::array<std::uint64_t, kCapacity / kUnit> ring{};
  std::array<std::array<std::uint64_t, 3>, kSenders> cells{};
  std::uint64_t tail = 0, head = 0;
  struct Completion {
    std::uint32_t sender, immediate, bytes;
  };
  std::deque<Completion> completions;
  std::vector<Held> held;
  std::vector<std::uint64_t> log;
  bool dead = false;        // the receiver
  bool stolen = false;
  std::size_t at_hand = 0;  // 0: none, 1: an arrival, 2: a look, 3 + i: peer i is gone, kSearch

  std::size_t key() const {
    Key key;
    Inspect::digest(reader, key);
    key.add_all(ring), key.add(tail), key.add(head), key.add_all(log), key.add(at_hand), key.add(dead), key.add(stolen);
    for (const auto& cell : cells) key.add_all(cell);
    for (const Peer& peer : peers) {
      Inspect::digest(peer.writer, key);
      for (const std::uint64_t value : {peer.begun, std::size_t{peer.life}, std::size_t{peer.said_waiting},
                                        peer.arrived, peer.received, peer.posted.size(), peer.answers.size()})
        key.add(value);
      for (const Request& one : peer.posted) key.add(one.kind), key.add(one.a), key.add(one.b);
      for (const Request& one : peer.answers) key.add(one.kind), key.add(one.a);
    }
    for (const Completion& one : completions) key.add(one.sender), key.add(one.immediate);
    for (const Held& one : held) key.add(one.view.sender), key.add(one.message);
    key.add(held.size());
    return key.hash();
  }
};

std::uint64_t ModelMemory::load_tail() const {
  // As much later as it can be: when the last of the counters has been read.
  if (g_faults->tail_last) return g_state->tail;
  return g_loads->load(g_state->tail);
}
std::uint64_t ModelMemory::load_cell(std::uint32_t sender, CellWord word) const {
  if (g_faults->nobody_asked && word == CellWord::Begun && g_state->peers[sender].life == Peer::Live)
    return 0;
  return g_loads->load(g_state->cells[sender][static_cast<std::size_t>(word)]);
}

std::uint64_t sender_word(std::size_t sender, std::size_t message) { return 1 + sender * 16 + message; }

class Explorer : StateSpace<State, Outcome> {
 public:
  explicit Explorer(const Scenario& scenario)
      : scenario_(scenario), geometry_{.capacity = kCapacity, .doubled = scenario.doubled, .unit = kUnit} {}

  Outcome run() {
    State first(geometry_);
    for (std::uint32_t i = 0; i < kSenders; ++i) first.reader.add(i);
    return walk(first, [this](const State& state) { return leave(state); }, [this](const State& state) { end(state); });
  }

 private:
  bool leave(const State& state) {
    const std::size_t from = state.key();
    bool any = false;
    const auto step = [&](auto f) {
      State next = state;
      f(next);
      any |= meet(next, from);
    };
    std::size_t dead = 0;
    for (const Peer& peer : state.peers) dead += peer.life != Peer::Live;
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      const Peer& peer = state.peers[i];
      if (peer.life == Peer::Live) {
        if (peer.begun < scenario_.units[i].size() && peer.writer.step() == SharedWriter::Step::Idle)
          step([&](State& next) { begin(next, i); });
        if (!peer.answers.empty()) step([&](State& next) { hear(next, i); });
        if (peer.writer.step() == SharedWriter::Step::Wait && peer.posted.empty() && peer.answers.empty() &&
            peer.writer.head() != state.head)
          step([&](State& next) { next.peers[i].posted.push_back({Request::ReadHead}); });
        if (dead < scenario_.deaths && !scenario_.units[i].empty())
          step([&](State& next) { next.peers[i].life = Peer::Dead; });
      }
      if (!peer.posted.empty()) step([&](State& next) { carry_out(next, i); });
      if (state.dead) continue;
      if (peer.life == Peer::Dead) step([&](State& next) { fence(next, i); });
      if (peer.life == Peer::Fenced && (state.at_hand == 0 || state.at_hand == 3 + i))
        step([&](State& next) { read(next, 3 + i); });
    }
    if (state.dead) return any;
    if (scenario_.receiver_dies) step([](State& next) { next.dead = true; });
    if (!state.completions.empty() && state.at_hand <= 1) step([&](State& next) { read(next, 1); });
    if (state.held.empty() && (state.at_hand == 0 || state.at_hand == 2))
      step([&](State& next) { read(next, 2); });
    if (!state.held.empty()) step([&](State& next) { let_go(next); });
    if (scenario_.searches && !state.reader.is_searching() && (state.at_hand == 0 || state.at_hand == kSearch))
      step([&](State& next) { read(next, kSearch); });
    if (scenario_.stolen != 0 && !state.stolen) {
      step([&](State& next) {
        next.stolen = true;
        next.tail += scenario_.stolen * kUnit;
      });
    }
    return any;
  }
  // ---- A sender.
  void begin(State& state, std::uint32_t sender) {
    Peer& peer = state.peers[sender];
    const std::uint64_t begun = peer.writer.begin(scenario_.units[sender][peer.begun] * kUnit);
    const Request counter{Request::Cell, static_cast<std::uint64_t>(CellWord::Begun), begun};
    if (!scenario_.faults.counter_late) peer.posted.push_back(counter);
    peer.posted.push_back({Request::Add, peer.writer.frame_bytes()});
    if (scenario_.faults.counter_late) peer.posted.push_back(counter);
  }
  void hear(State& state, std::uint32_t sender) {
    Peer& peer = state.peers[sender];
    const Request answer = peer.answers.front();
    peer.answers.pop_front();
    const std::uint64_t head = scenario_.faults.ignore_head ? peer.writer.position() : answer.a;
    const Fault fault =
        answer.kind == Request::Add ? peer.writer.handle_position(answer.a) : peer.writer.handle_head(head);
    if (fault != Fault::None) return fail("a sender found a fault of the receiver");
    go_on(state, sender);
  }
  void go_on(State& state, std::uint32_t sender) {
    Peer& peer = state.peers[sender];
    const SharedWriter& writer = peer.writer;
    switch (writer.step()) {
      case SharedWriter::Step::Wait:
        if (peer.said_waiting || scenario_.faults.no_waiting_word) return;
        peer.said_waiting = true;
        ++outcome_.waits;
        peer.posted.push_back(
            {Request::Cell, static_cast<std::uint64_t>(CellWord::Waiting), writer.waiting_word()});
        return;
      case SharedWriter::Step::Ready:
        // As long as this holds, what it writes over was given back.
        if (writer.position() + writer.frame_bytes() > state.head + kCapacity)
          return fail("a sender writes over what was not given back");
        for (int half = 0; half < 2; ++half)
          peer.posted.push_back({Request::Payload, writer.offset(), sender_word(sender, peer.begun)});
        peer.posted.push_back({Request::Arrive, writer.immediate(),
                               std::uint64_t{scenario_.units[sender][peer.begun]} * kUnit});
        ++peer.begun;
        break;
      case SharedWriter::Step::Broken:
        ++outcome_.drops;
        peer.posted.push_back(
            {Request::Cell, static_cast<std::uint64_t>(CellWord::Dropped), writer.dropped_word()});
        peer.posted.push_back({Request::Arrive, writer.immediate(), 8});
        break;
      default:
        return;
    }
    peer.said_waiting = false;
    peer.writer.finish();
  }

  // ---- The receiver's device.
  void carry_out(State& state, std::uint32_t sender) {
    Peer& peer = state.peers[sender];
    const Request request = peer.posted.front();
    peer.posted.pop_front();
    switch (request.kind) {
      case Request::Cell:
        state.cells[sender][request.a] = request.b;
        break;
      case Request::Add:
        peer.answers.push_back({Request::Add, state.tail});
        state.tail += request.a;
        break;
      case Request::ReadHead:
        peer.answers.push_back({Request::ReadHead, state.head});
        break;
      case Request::Payload:
        write(state, sender, request);
        break;
      case Request::Arrive:
        state.completions.push_back(
            {sender, static_cast<std::uint32_t>(request.a), static_cast<std::uint32_t>(request.b)});
        break;
    }
  }
  // Half of the payload, then the other.
  void write(State& state, std::uint32_t sender, const Request& request) {
    const std::size_t message = static_cast<std::size_t>(request.b - sender_word(sender, 0));
    const std::uint32_t units = scenario_.units[sender][message];
    const bool second =
        state.peers[sender].posted.empty() || state.peers[sender].posted.front().kind != Request::Payload;
    for (std::uint32_t i = second ? units / 2 : 0; i < (second ? units : units / 2); ++i)
      state.ring[geometry_.frames().place_of(request.a + i * kUnit) / kUnit] = request.b;
  }
  void fence(State& state, std::uint32_t sender) {
    Peer& peer = state.peers[sender];
    peer.life = Peer::Fenced;
    if (!scenario_.faults.no_fence) peer.posted.clear();
  }

  // ---- The receiver, load by load.
  void read(State& state, std::size_t what) {
    const ModelReader before = state.reader;
    const std::uint64_t position = before.position();
    g_state = &state;
    Loads loads{.log = state.log};
    g_loads = &loads;
    g_faults = &scenario_.faults;
    std::optional<SharedView> view;
    Fault fault = Fault::None;
    if (what == 1) {
      const auto& one = state.completions.front();
      fault = state.reader.handle_arrival(one.sender, one.immediate, one.bytes);
    } else if (what == 2) {
      view = state.reader.poll();
    } else if (what == kSearch) {
      state.reader.search();
    } else {
      state.reader.handle_gone(static_cast<std::uint32_t>(what - 3));
    }
    if (loads.suspended) {
      state.reader = before;
      state.log = loads.log;
      state.at_hand = what;
      return;
    }
    state.log.clear();
    state.at_hand = 0;
    // What comes of the dead when its place was passed over is void.
    if (what == 1 && state.peers[state.completions.front().sender].life == Peer::Gone) fault = Fault::None;
    if (fault != Fault::None || state.reader.fault() != Fault::None)
      return fail("a fault of an honest sender");
    if (what == 1) {
      ++state.peers[state.completions.front().sender].arrived;
      state.completions.pop_front();
    } else if (what == 2) {
      if (view)
        take(state, *view);
      else if (state.reader.position() != position)
        ++outcome_.gaps;
    } else if (what != kSearch) {
      state.peers[what - 3].life = Peer::Gone;
    }
    state.head = state.reader.head();
  }
  void take(State& state, const SharedView& view) {
    Peer& peer = state.peers[view.sender];
    const Held one{view, peer.received++};
    check_view(state, one);
    state.held.push_back(one);
  }
  void check_view(const State& state, const Held& one) {
    const auto& units = scenario_.units[one.view.sender];
    if (one.message >= units.size() || one.view.view.bytes != units[one.message] * kUnit)
      return fail("a message that is not the next of its sender");
    for (std::uint32_t i = 0; i < units[one.message]; ++i)
      if (state.ring[geometry_.frames().place_of(one.view.view.offset + i * kUnit) / kUnit] !=
          sender_word(one.view.sender, one.message))
        return fail("a message that is not whole");
  }
  void let_go(State& state) {
    check_view(state, state.held.back());
    state.reader.release(state.held.back().view.view);
    state.held.pop_back();
    state.head = state.reader.head();
  }

  // Every sender that lives has written all, or waits for room that there is not, and knows the head that says so.
  void end_without_receiver(const State& state) {
    for (std::size_t i = 0; i < kSenders; ++i) {
      const Peer& peer = state.peers[i];
      if (peer.life != Peer::Live || peer.begun == scenario_.units[i].size()) continue;
      ++outcome_.full;
      if (peer.writer.step() != SharedWriter::Step::Wait || peer.writer.head() != state.head)
        fail("a sender waits for something else than room");
    }
  }

  void end(const State& state) {
    ++outcome_.ends;
    if (state.dead) return end_without_receiver(state);
    for (std::size_t i = 0; i < kSenders; ++i)
      if (state.peers[i].life == Peer::Live && state.peers[i].received != scenario_.units[i].size())
        return fail("a sender that lives waits for ever");
    if (state.reader.is_searching()) fail("the search for gaps does not end");
  }

  const Scenario scenario_;
  const SharedGeometry geometry_;
};

Outcome explore(const Scenario& scenario) { return Explorer(scenario).run(); }

constexpr bool kForms[] = {false, true};

TEST(SharedRingModel, every_sender_gets_each_message_through_once_whole_and_in_its_order) {
  for (const bool doubled : kForms) {
    const Outcome outcome = explore({.doubled = doubled, .units = {{{6, 2}, {7}, {5}}}});
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.ends, 0u);
    EXPECT_GT(outcome.waits, 0u) << "the ring never was full";
    EXPECT_EQ(outcome.drops > 0, !doubled);
  }
}

TEST(SharedRingModel, those_that_die_at_any_step_hold_nobody_up) {
  const std::vector<Scenario> scenarios = {
      {.doubled = false, .units = {{{6}, {7}, {5}}}, .deaths = 1},
      {.doubled = true, .units = {{{6}, {7}, {5}}}, .deaths = 1},
      {.doubled = false, .units = {{{7, 4}, {6}, {}}}, .deaths = 1},
      {.doubled = true, .units = {{{9, 4}, {6}, {}}}, .deaths = 1},
      {.doubled = true, .units = {{{9}, {6}, {}}}, .deaths = 2},
  };
  for (const Scenario& scenario : std::span(scenarios).first(kSanitized ? 2 : scenarios.size())) {
    const Outcome outcome = explore(scenario);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.gaps, 0u) << "nobody died with a reservation";
  }
}

// It may be a part of the ring, or more than that: others reserve in front of it and behind.
TEST(SharedRingModel, a_place_that_is_nobody_s_is_passed_over) {
  for (const std::uint64_t stolen : {3u, 16u, 21u}) {
    const Outcome outcome =
        explore({.doubled = true, .units = {{{6}, {7}, {}}}, .stolen = stolen, .searches = true});
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.gaps, 0u);
  }
  EXPECT_EQ(explore({.doubled = true, .units = {{{6}, {7}, {}}}, .stolen = 3}).violation,
            "a sender that lives waits for ever");
}

TEST(SharedRingModel, one_that_dies_and_a_place_that_is_nobody_s_hold_nobody_up) {
  for (const bool doubled : kForms) {
    if (kSanitized && doubled) continue;
    const Outcome outcome = explore(
        {.doubled = doubled, .units = {{{6}, {7}, {}}}, .deaths = 1, .stolen = 3, .searches = true});
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.gaps, 0u);
  }
}

TEST(SharedRingModel, a_search_at_any_time_passes_over_nobody_who_lives) {
  for (const bool doubled : kForms) {
    const Outcome outcome = explore({.doubled = doubled, .units = {{{6, 2}, {7}, {}}}, .searches = true});
    EXPECT_EQ(outcome.violation, "");
    EXPECT_EQ(outcome.gaps, 0u);
  }
}

TEST(SharedRingModel, a_receiver_that_dies_anywhere_leaves_a_full_ring_and_what_it_had_not_read) {
  for (const bool doubled : kForms)
    for (const std::size_t deaths : {0u, 1u}) {
      if (kSanitized && deaths != 0) continue;
      const Outcome outcome =
          explore({.doubled = doubled, .units = {{{6}, {7}, {5}}}, .deaths = deaths, .receiver_dies = true});
      EXPECT_EQ(outcome.violation, "");
      EXPECT_GT(outcome.full, 0u) << "the ring never stayed full";
    }
}

TEST(SharedRingModel, what_is_broken_on_purpose_is_seen) {
  const auto broken = [](Faults faults) {
    std::string found;
    for (const bool doubled : kForms)
      if (found.empty())
        found = explore({.doubled = doubled, .units = {{{6}, {7}, {5}}}, .deaths = 1, .faults = faults})
                    .violation;
    return found;
  };
  EXPECT_NE(broken({.no_fence = true}), "");
  EXPECT_NE(broken({.no_waiting_word = true}), "");
  EXPECT_NE(broken({.nobody_asked = true}), "");
  EXPECT_NE(broken({.counter_late = true}), "");
  EXPECT_NE(broken({.tail_last = true}), "");
  EXPECT_EQ(broken({.ignore_head = true}), "a sender writes over what was not given back");
}

}  // namespace
}  // namespace verbena::ring::shared_model
