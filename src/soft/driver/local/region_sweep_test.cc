// SPDX-License-Identifier: Apache-2.0
// A process that dies, or stands still, at any instruction of a copy into or out of a region that its peer lends it.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "soft/driver/local/test_sweep.h"

namespace verbena::soft::local::sweep {
namespace {

// The keeper's peer, stepped from its second pause to its third. It ends with how its request ended.
inline int do_deed(const Endpoint& keeper, RKey rkey, const Deed& deed) {
  Side side(2);
  side.connect(keeper);
  SteppedProcess::pause();
  while (!side.on_rings()) side.turn();
  open_region(side, rkey);
  side.memory.fill(kNew);
  post(side, deed, rkey);
  side.nic.handle_doorbells(side.now);
  SteppedProcess::pause();
  side.nic.emit_records(side.now);
  SteppedProcess::pause();
  return static_cast<int>(finish(side));
}

struct Window {
  int first = 0, end = 0;  // instructions after which a claim stands
};

// All the way, with a look after each instruction.
Window look_at_each(Keeper& keeper, Scene& scene, const Deed& deed) {
  Window window;
  int point = 1;
  for (; scene.child.step(); ++point) {
    expect_permitted(keeper, deed);
    if (::testing::Test::HasFailure()) break;
    if (!is_claimed(scene.segment)) continue;
    if (window.first == 0) window.first = point;
    window.end = point + 1;
  }
  EXPECT_FALSE(::testing::Test::HasFailure()) << deed.name << " at instruction " << point;
  EXPECT_TRUE(scene.child.pauses());
  EXPECT_GT(window.end, window.first) << "nothing was copied under a claim";
  return window;
}

// To that instruction of the window, or near it: ways are not always of the same length.
void step_to(Scene& scene, const Window& window, int at) {
  if (at < window.first) return step_to(scene, at);
  while (!is_claimed(scene.segment) && scene.child.step()) continue;
  step_to(scene, at - window.first);
}

class RegionSweep : public ::testing::TestWithParam<Deed> {
 protected:
  void SetUp() override {
    static std::map<std::string, Window> known;
    if (known.count(GetParam().name) == 0) {
      Keeper keeper;
      Scene scene = begin(keeper);
      if (!scene.child.traced()) GTEST_SKIP() << kNoTrace;
      ASSERT_TRUE(scene.ready);
      known[GetParam().name] = look_at_each(keeper, scene, GetParam());
    }
    window_ = known[GetParam().name];
  }
  static Scene begin(Keeper& keeper) {
    static const Endpoint victim = Side(2).endpoint();
    const auto body = [&keeper] { return do_deed(keeper.endpoint(), keeper.lent_region.rkey, GetParam()); };
    return Scene(keeper, victim, body, {});
  }
  const Window& window() const { return window_; }

 private:
  Window window_;
};

TEST_P(RegionSweep, F16_at_any_instruction_of_a_copy_the_peer_dies_and_the_region_is_its_owners_again) {
  const Holdings before = Holdings::now();
  constexpr int kMargin = 30;
  const int kills = affordable(window().end, 24);
  int claimed = 0, changed = 0;
  bool heard_first = false;
  for (const int kill_at : sample(std::max(0, window().first - kMargin), window().end + kMargin, kills)) {
    Keeper keeper;
    Scene scene = begin(keeper);
    ASSERT_TRUE(scene.ready);
    step_to(scene, window(), kill_at);
    const bool is_copying = is_claimed(scene.segment);
    claimed += is_copying ? 1 : 0;
    changed += has_changed(keeper) ? 1 : 0;
    scene.child.kill_and_wait();
    heard_first = !heard_first;
    if (heard_first) hear_end(keeper);
    EXPECT_TRUE(keeper.take_back());
    EXPECT_EQ(keeper.nic.counters().regions_renewed, 0u) << "nobody is left to write there";
    expect_permitted(keeper, GetParam());
    expect_heir(keeper);
    ASSERT_FALSE(HasFailure()) << "killed at instruction " << kill_at << " of " << window().end;
  }
  std::printf("[          ] killed %d times, %d under a claim, %d after memory changed\n", kills, claimed, changed);
  EXPECT_GT(claimed, 0);
  EXPECT_EQ(Holdings::now(), before);
}

// Its owner takes the region back while the peer stands still: in the middle of a copy, or before or after.
TEST_P(RegionSweep, F16_at_any_instruction_of_a_copy_the_peer_stands_still_and_deregistration_is_final) {
  constexpr int kMargin = 20;
  constexpr std::byte kOwn{0x55};
  const int stops = affordable(window().end, 6);
  int met = 0;
  bool stores = false;
  for (const int stop_at : sample(std::max(0, window().first - kMargin), window().end + kMargin, stops)) {
    Keeper keeper;
    Scene scene = begin(keeper);
    ASSERT_TRUE(scene.ready);
    step_to(scene, window(), stop_at);
    const bool is_copying = is_claimed(scene.segment), was_done = stop_at >= window().first && !is_copying;
    const bool was_whole = is_whole(keeper, GetParam());
    met += is_copying ? 1 : 0;
    EXPECT_TRUE(keeper.take_back());
    EXPECT_EQ(keeper.nic.counters().regions_renewed, is_copying ? 1u : 0u);
    expect_permitted(keeper, GetParam());
    // A store of its own would give the program pages of its own; so it makes none every other time.
    stores = !stores;
    if (stores) std::fill(keeper.lent.bytes().begin(), keeper.lent.bytes().end(), kOwn);
    const std::vector<std::byte> left(keeper.lent.bytes().begin(), keeper.lent.bytes().end());
    const auto turn = [&keeper] { keeper.turn(); };
    while (scene.child.go_on_until_pause(turn)) continue;
    // Success: the copy was whole before it was taken back, though that was not said yet.
    const bool may_count = was_done || (is_copying && was_whole);
    const int said = scene.child.exit_status(), refused = static_cast<int>(CompletionStatus::RemoteAccessError);
    EXPECT_TRUE((said == 0 && may_count) || (said == refused && !was_done)) << said;
    EXPECT_TRUE(std::equal(left.begin(), left.end(), keeper.lent.data())) << "changed after it was deregistered";
    ASSERT_FALSE(HasFailure()) << "stopped at instruction " << stop_at << " of " << window().end;
  }
  std::printf("[          ] %d of %d stops met a copy\n", met, stops);
  EXPECT_GT(met, 0);
}

// And goes on while its owner waits for it.
TEST_P(RegionSweep, a_copy_that_ends_while_its_owner_waits_for_it_counts) {
  Keeper keeper;
  Scene scene = begin(keeper);
  ASSERT_TRUE(scene.ready);
  step_to(scene, window(), (window().first + window().end) / 2);
  ASSERT_TRUE(is_claimed(scene.segment));
  std::atomic<bool> taken_back{false};
  std::thread owner([&] { taken_back = keeper.take_back(); });
  while (!is_ending(scene.segment)) std::this_thread::yield();
  EXPECT_TRUE(scene.child.go_on_until_pause([] {}));
  owner.join();
  EXPECT_TRUE(taken_back);
  const auto turn = [&keeper] { keeper.turn(); };
  EXPECT_FALSE(scene.child.go_on_until_pause(turn));
  // On a machine that is very busy it may have waited long enough.
  if (keeper.nic.counters().regions_renewed != 0) return;
  EXPECT_EQ(scene.child.exit_status(), static_cast<int>(CompletionStatus::Success));
  EXPECT_EQ(has_changed(keeper), GetParam().opcode != SendOpcode::RdmaRead);
  expect_permitted(keeper, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Deeds, RegionSweep, ::testing::ValuesIn(deeds()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace verbena::soft::local::sweep
