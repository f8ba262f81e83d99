// SPDX-License-Identifier: Apache-2.0
// All that can happen between an owner that takes a region back and a peer that copies, one shared access at
// a time, the code of the grants itself being what runs. Stores wait in a buffer and reach memory in their
// order, some time later, as on x86; a fence waits for them. A heavy fence waits until the other's buffer was empty,
// too, at some moment since it began.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "soft/local/grants.h"

namespace verbena::local::grants_model {
namespace {

enum Thread : std::size_t { kOwner, kPeer };
enum Cell : std::size_t { kGrant, kClaim, kChanges, kPayload, kCells };

struct Faults {
  bool no_fence = false;
  bool light_alone = false;  // the owner says that its fences are heavy, and they are not
  bool no_cut = false;  // the owner does not say that it waits no longer
};

// One schedule: which thread goes on, and when a store reaches memory, is decided choice by choice. Threads
// are written as lists of steps, each with one access at most.
struct World {
  struct Store {
    Cell cell;
    std::uint64_t value;
  };
  std::array<std::uint64_t, kCells> memory{7, 0, 0, 0};
  std::array<std::deque<Store>, 2> buffer;
  bool heavy = false;                  // there are heavy fences
  std::array<bool, 2> was_empty{};     // a buffer, since a heavy fence of the other began
  bool freed = false, copied_late = false, counts = false;
  bool kept = false;  // what was copied is among what the owner went on with

  std::uint64_t load(Thread who, Cell cell) const {
    for (auto i = buffer[who].rbegin(); i != buffer[who].rend(); ++i)
      if (i->cell == cell) return i->value;
    return memory[cell];
  }
};

// The accesses of one thread, recorded by running the real code against replayed loads: a step makes one
// more.
struct Script {
  World* world = nullptr;
  Thread who = kOwner;
  const Faults* faults = nullptr;
  std::vector<std::uint64_t> log;  // values of accesses made
  std::size_t at = 0;
  bool performed = false, suspended = false, blocked = false;

  bool begin(std::uint64_t& value) {
    if (at < log.size()) {
      value = log[at++];
      return false;
    }
    if (performed) suspended = true;
    return !suspended && !blocked;
  }
  std::uint64_t load(Cell cell) {
    std::uint64_t value = 0;
    if (!begin(value)) return value;
    value = world->load(who, cell);
    log.push_back(value);
    ++at;
    performed = true;
    return value;
  }
  void store(Cell cell, std::uint64_t value) {
    std::uint64_t unused = 0;
    if (!begin(unused)) return;
    world->buffer[who].push_back({cell, value});
    log.push_back(0);
    ++at;
    performed = true;
  }
  void fence() {
    std::uint64_t unused = 0;
    if (faults->no_fence || !begin(unused)) return;
    if (!world->buffer[who].empty()) {
      blocked = true;
      return;
    }
    log.push_back(0);
    ++at;
    performed = true;
  }
  void heavy_fence() {
    fence();  // and here it begins
    if (faults->light_alone) return;
    const Thread other = who == kOwner ? kPeer : kOwner;
    if (performed && at == log.size()) world->was_empty[other] = world->buffer[other].empty();
    std::uint64_t unused = 0;
    if (faults->no_fence || !begin(unused)) return;
    if (!world->was_empty[other]) {
      blocked = true;
      return;
    }
    log.push_back(0);
    ++at;
    performed = true;
  }
};
Script* current = nullptr;

struct ModelMemory {
  std::uint64_t load_changes() const { return current->load(kChanges); }
  void store_changes(std::uint64_t value) { current->store(kChanges, value); }
  bool try_load_grant(std::uint32_t, std::uint64_t& grant) const {
    grant = current->load(kGrant);
    return true;
  }
  void store_grant(std::uint32_t, std::uint64_t key) { current->store(kGrant, key); }
  std::uint64_t load_claim() const { return current->load(kClaim); }
  bool try_store_claim(std::uint64_t value) {
    current->store(kClaim, value);
    return true;
  }
  void fence() { current->fence(); }
  void light_fence() {}
  void heavy_fence() { current->heavy_fence(); }
  static bool has_heavy_fences() { return current->world->heavy; }
};

// What happens between accesses is noted when the step that reaches it is made.
bool stopped() { return current->suspended || current->blocked; }

// True: it came to its end.
// `impatient`: it takes the peer for one that stands still, and lets it go on in pages of its own.
bool run_owner(World& world, bool impatient) {
  BasicGranter<ModelMemory> granter{ModelMemory()};
  static_cast<void>(granter.try_grant(RKey{7}));
  if (stopped()) return false;
  granter.revoke(0);
  if (stopped()) return false;
  granter.fence();
  if (stopped()) return false;
  while (!impatient && granter.is_claimed(0) && !stopped()) {
    current->blocked = true;  // looks again once something has changed
    current->performed = false;
  }
  if (stopped()) return false;
  if (!impatient)
    granter.clear(0);
  else if (!current->faults->no_cut)
    granter.cut(0);
  if (stopped()) return false;
  // It goes on with the bytes that are there now: in the same pages, or in others.
  const bool kept = current->load(kPayload) != 0;
  if (stopped()) return false;
  world.kept = kept;
  world.freed = !impatient;
  return true;
}

bool run_peer(World& world) {
  BasicClaimer<ModelMemory> claimer{ModelMemory()};
  const bool claimed = claimer.claim(0, RKey{7});
  if (stopped()) return false;
  if (!claimed) return true;
  current->store(kPayload, 1);  // the copy
  if (!stopped() && world.freed && current->performed && current->at == current->log.size()) world.copied_late = true;
  if (stopped()) return false;
  const bool stands = claimer.release(0, RKey{7});
  if (stopped()) return false;
  world.counts = stands;
  return true;
}

struct State {
  World world;
  std::array<std::vector<std::uint64_t>, 2> logs;
  std::array<bool, 2> ended{};
  bool impatient = false;
};

struct Outcome {
  std::uint64_t states = 0, ends = 0, counted = 0, refused = 0;
  std::string violation;
};

void explore(const State& state, const Faults& faults, Outcome& outcome) {
  if (!outcome.violation.empty()) return;
  ++outcome.states;
  if (state.world.copied_late) outcome.violation = "copied after the owner went on";
  bool moved = false;
  for (const Thread who : {kOwner, kPeer}) {
    if (!state.world.buffer[who].empty()) {
      State next = state;
      const World::Store store = next.world.buffer[who].front();
      next.world.buffer[who].pop_front();
      next.world.memory[store.cell] = store.value;
      if (next.world.buffer[who].empty()) next.world.was_empty[who] = true;
      moved = true;
      explore(next, faults, outcome);
    }
    if (state.ended[who]) continue;
    State next = state;
    Script script{&next.world, who, &faults, next.logs[who]};
    current = &script;
    const bool ended = who == kOwner ? run_owner(next.world, state.impatient) : run_peer(next.world);
    if (!script.performed && !ended) continue;
    next.logs[who] = script.log;
    next.ended[who] = ended;
    moved = true;
    explore(next, faults, outcome);
  }
  if (moved) return;
  ++outcome.ends;
  if (!state.ended[kPeer]) outcome.violation = "the peer cannot end";
  if (!state.ended[kOwner]) outcome.violation = "the owner waits for ever";
  if (state.world.counts && !state.world.kept) outcome.violation = "a copy counts that the owner does not have";
  ++(state.world.counts ? outcome.counted : outcome.refused);
}

Outcome explore(const Faults& faults, bool impatient, bool heavy) {
  Outcome outcome;
  State first;
  first.impatient = impatient;
  first.world.heavy = heavy;
  first.world.memory[kGrant] = 0;
  explore(first, faults, outcome);
  return outcome;
}

class GrantsModel : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Fences, GrantsModel, ::testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "heavy" : "of_each"); });

TEST_P(GrantsModel, no_copy_goes_on_after_the_owner_went_on_and_what_counts_the_owner_has) {
  for (const bool impatient : {false, true}) {
    const Outcome outcome = explore(Faults{}, impatient, GetParam());
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.counted, 0u);
    EXPECT_GT(outcome.refused, 0u);
    EXPECT_GT(outcome.states, 1000u);
  }
}

TEST_P(GrantsModel, it_sees_a_fence_that_is_missing) {
  Faults faults;
  faults.no_fence = true;
  EXPECT_NE(explore(faults, false, GetParam()).violation, "");
  EXPECT_EQ(explore(faults, true, GetParam()).violation, "a copy counts that the owner does not have");
}

TEST_P(GrantsModel, it_sees_an_owner_that_does_not_say_when_it_goes_on) {
  Faults faults;
  faults.no_cut = true;
  EXPECT_EQ(explore(faults, true, GetParam()).violation, "a copy counts that the owner does not have");
}

TEST(GrantsModelOfHeavyFences, it_sees_an_owner_that_fences_for_itself_alone) {
  Faults faults;
  faults.light_alone = true;
  EXPECT_NE(explore(faults, false, true).violation, "");
  EXPECT_EQ(explore(faults, true, true).violation, "a copy counts that the owner does not have");
}

}  // namespace
}  // namespace verbena::local::grants_model
