// SPDX-License-Identifier: Apache-2.0
// A process that dies while it asks for a region of its peer's, while its own memory is read by its peer, or while it
// takes back a region that its peer has mapped.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "soft/driver/local/test_sweep.h"

namespace verbena::soft::local::sweep {
namespace {

// The keeper's peer asks for its region.
int ask(const Endpoint& keeper, RKey rkey) {
  Side side(2);
  side.connect(keeper);
  SteppedProcess::pause();
  while (!side.on_rings()) side.turn();
  post(side, kRead, rkey);
  finish(side);
  SteppedProcess::pause();
  open_region(side, rkey);
  SteppedProcess::pause();
  return 0;
}

TEST(RegionAskSweep, F16_a_peer_that_dies_while_it_asks_for_a_region_leaves_nothing) {
  const Endpoint victim = Side(2).endpoint();
  const auto begin = [&victim](Keeper& keeper) {
    return Scene(keeper, victim, [&keeper] { return ask(keeper.endpoint(), keeper.lent_region.rkey); }, {});
  };
  const Holdings before = Holdings::now();
  int calls = 0, granted = 0;
  {
    Keeper keeper;
    Scene scene = begin(keeper);
    if (!scene.child.traced()) GTEST_SKIP() << kNoTrace;
    calls = count_calls(scene, [&keeper] { keeper.turn(); });
  }
  constexpr int kKills = 30;
  for (const Moment& moment : sample_moments(calls, kKills)) {
    Keeper keeper;
    Scene scene = begin(keeper);
    ASSERT_TRUE(scene.ready);
    step_to(scene, moment, [&keeper] { keeper.turn(); });
    granted += is_granted(scene.segment) ? 1 : 0;
    scene.child.kill_and_wait();
    if (moment.calls % 2 == 0) hear_end(keeper);
    EXPECT_TRUE(keeper.take_back());
    EXPECT_EQ(keeper.nic.counters().regions_renewed, 0u);
    EXPECT_TRUE(is_all(keeper.lent.bytes(), kOld));
    expect_heir(keeper);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "killed after " << moment;
  }
  std::printf("[          ] killed %d times in %d calls, %d after it was granted\n", kKills, calls, granted);
  EXPECT_GT(granted, 0);
  EXPECT_LT(granted, kKills);
  EXPECT_EQ(Holdings::now(), before);
}

// ---- The keeper copies from its peer's memory.

constexpr std::size_t kLarge = 12 * verbena::local::kMaxPulledBytes + 8;

// A keeper with room, of which its peer names the key once: that goes through the ring.
struct Puller : Side {
  Puller() : Side(1), room(kLarge, kOld) {
    large = *nic.register_memory(pd, room.data(), kLarge, kIova, Access::All);
  }
  std::vector<std::byte> room;
  core::MemoryRegion large;
};

// Writes all of it. `pause`: when it has asked, and when all is ready.
int be_pulled_from(const Endpoint& keeper, RKey rkey, const std::function<void()>& pause = SteppedProcess::pause) {
  Side side(2);
  std::vector<std::byte> bytes(kLarge, kNew);
  side.region = *side.nic.register_memory(side.pd, bytes.data(), kLarge, 0x10000, Access::All);
  side.connect(keeper);
  pause();
  const auto is_read = [&side] { return side.explained().find("large ones to it one") != std::string::npos; };
  for (int turns = 0; !side.on_rings() || (!is_read() && turns < 100'000); ++turns) side.turn();
  side.turn();
  pause();
  post(side, {"", SendOpcode::RdmaWrite, kLarge}, rkey);
  const CompletionStatus status = finish(side);
  pause();
  return static_cast<int>(status);
}

Scene begin_pull(Puller& keeper, const Endpoint& victim) {
  return Scene(keeper, victim, [&keeper] { return be_pulled_from(keeper.endpoint(), keeper.large.rkey); }, {});
}

void expect_pulled_is_permitted(Puller& keeper) {
  hear_end(keeper);
  expect_permitted(keeper.room);
  EXPECT_TRUE(keeper.nic.deregister_memory(keeper.large.lkey));
  expect_heir(keeper);
}

// Some of it, not all.
bool is_in_the_middle(const Puller& keeper) { return keeper.room.front() == kNew && keeper.room.back() == kOld; }

TEST(PullSweep, F16_a_peer_that_dies_at_any_moment_of_being_copied_from_leaves_what_a_broken_WRITE_may_leave) {
  const Endpoint victim = Side(2).endpoint();
  const Holdings before = Holdings::now();
  int calls = 0, middle = 0;
  {
    Puller keeper;
    Scene scene = begin_pull(keeper, victim);
    if (!scene.child.traced()) GTEST_SKIP() << kNoTrace;
    calls = count_calls(scene, [&keeper] { keeper.turn(); });
    EXPECT_TRUE(is_all(keeper.room, kNew));
  }
  constexpr int kKills = 30;
  for (const Moment& moment : sample_moments(calls, kKills)) {
    Puller keeper;
    Scene scene = begin_pull(keeper, victim);
    ASSERT_TRUE(scene.ready);
    step_to(scene, moment, [&keeper] { keeper.turn(); });
    for (int turn = moment.instructions % 14; turn != 0; --turn) keeper.turn();
    middle += is_in_the_middle(keeper) ? 1 : 0;
    scene.child.kill_and_wait();
    expect_pulled_is_permitted(keeper);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "killed after " << moment;
  }
  std::printf("[          ] killed %d times in %d calls, %d in the middle\n", kKills, calls, middle);
  EXPECT_EQ(Holdings::now(), before);
}

// By another processor, if there is one: the keeper goes on copying meanwhile.
TEST(PullSweep, F16_a_peer_that_is_killed_while_its_memory_is_read_leaves_what_a_broken_WRITE_may_leave) {
  const Endpoint victim = Side(2).endpoint();
  const Holdings before = Holdings::now();
  std::mt19937_64 random(seed_of_run());
  constexpr int kKills = 20;
  int middle = 0;
  for (int round = 0; round < kKills; ++round) {
    Puller keeper;
    const auto ends = socket_pair();
    const auto say = [&ends] { EXPECT_EQ(::send(ends[1].get(), "", 1, 0), 1); };
    TestProcess child([&] { return be_pulled_from(keeper.endpoint(), keeper.large.rkey, say); });
    char said = 0;
    ASSERT_EQ(::recv(ends[0].get(), &said, 1, 0), 1);
    keeper.connect(victim);
    while (::recv(ends[0].get(), &said, 1, MSG_DONTWAIT) != 1) keeper.turn();
    const auto delay = std::chrono::microseconds(random() % 1500);
    std::thread killer([&] {
      std::this_thread::sleep_for(delay);
      ::kill(child.pid(), SIGKILL);
    });
    hear_end(keeper);
    killer.join();
    middle += is_in_the_middle(keeper) ? 1 : 0;
    expect_pulled_is_permitted(keeper);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "killed after " << delay.count() << " us";
  }
  std::printf("[          ] killed %d times, %d in the middle\n", kKills, middle);
  EXPECT_EQ(Holdings::now(), before);
}

// ---- An owner that dies while it takes back.

// Lends until its peer has written there, and takes it back from its second pause to its third.
int lend_and_take_back(const Endpoint& user) {
  Keeper owner(2);
  owner.connect(user);
  SteppedProcess::pause();
  while (!has_changed(owner)) owner.turn();
  SteppedProcess::pause();
  const bool taken = owner.take_back();
  SteppedProcess::pause();
  return taken ? 0 : 1;
}

struct Lender {
  Endpoint endpoint;
  RKey rkey;
};

// The user's end of that.
Scene begin_lending(Side& user, const Lender& lender) {
  const auto use = [&user, &lender, posted = false]() mutable {
    user.turn();
    if (posted && user.completions().empty()) return;
    post(user, {"", direct_requests(user) == 0 ? SendOpcode::RdmaRead : SendOpcode::RdmaWrite, 8}, lender.rkey);
    posted = true;
    user.memory.fill(kNew);
  };
  return Scene(user, lender.endpoint, [&user] { return lend_and_take_back(user.endpoint()); }, use);
}

bool is_busy(const Side& side) {
  const auto& queue = side.qp.queues->send_queue();
  return queue.posted() != queue.retired();
}

// As one that stands still in a copy.
void claim(std::byte* segment) {
  const SegmentLayout layout = layout_of(Hub::kRingCapacity);
  const bool opener_owns = load_shared(segment + layout.opener_grants + 8) != 0;
  store_shared(segment + (opener_owns ? layout.acceptor_claim : layout.opener_claim), std::uint64_t{1});
}

// Its requests end, and nothing of the owner stays mapped.
void expect_owner_gone(Side& user, const Lender& lender, const Holdings& before) {
  turn_until([&] { return !is_busy(user); }, {&user});
  user.completions();
  if (user.on_rings()) {
    hear_end(user);
    post(user, {"", SendOpcode::RdmaWrite, 8}, lender.rkey);
    EXPECT_EQ(finish(user), CompletionStatus::RetryExceeded);
  }
  user.turn();
  EXPECT_EQ(Holdings::now().mappings, before.mappings);
}

TEST(TakeBackSweep, F16_an_owner_that_dies_while_it_takes_a_region_back_holds_nobody_up) {
  const Lender lender = [] {
    const Keeper same(2);
    return Lender{same.endpoint(), same.lent_region.rkey};
  }();
  const Holdings before = Holdings::now();
  for (const bool claimed : {false, true}) {
    int steps = 0, ending = 0;
    const auto begin = [&](Side& user) { return begin_lending(user, lender); };
    const auto meanwhile = [&](Side& user) {
      if (claimed) return;
      if (!is_busy(user)) post(user, {"", SendOpcode::RdmaWrite, 8}, lender.rkey);
      user.turn();
      user.completions();
    };
    {
      Side user(1);
      Scene scene = begin(user);
      if (!scene.child.traced()) GTEST_SKIP() << kNoTrace;
      ASSERT_TRUE(scene.ready);
      if (claimed) claim(scene.segment);
      for (; scene.child.step(); ++steps)
        if (steps % 64 == 63) meanwhile(user);
      EXPECT_TRUE(scene.child.pauses());
    }
    const int kills = affordable(steps / 2, 16);
    for (const int kill_at : sample(0, steps, kills)) {
      Side user(1);
      Scene scene = begin(user);
      ASSERT_TRUE(scene.ready);
      if (claimed) claim(scene.segment);
      for (int at = 0; at < kill_at && scene.child.step(); ++at)
        if (at % 64 == 63) meanwhile(user);
      ending += is_ending(scene.segment) ? 1 : 0;
      scene.child.kill_and_wait();
      expect_owner_gone(user, lender, before);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "killed at instruction " << kill_at << " of " << steps;
    }
    std::printf("[          ] killed %d times in %d instructions, %d while it took back%s\n", kills, steps, ending,
                claimed ? " from one that copied" : "");
  }
  EXPECT_EQ(Holdings::now(), before);
}

}  // namespace
}  // namespace verbena::soft::local::sweep
