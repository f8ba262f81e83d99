// SPDX-License-Identifier: Apache-2.0
// What the sweeps over memory that processes share directly have in common: who lends a region, who uses it and dies or
// stands still at any instruction, what is left then. Samples are drawn from a seed that is printed;
// VERBENA_SWEEP_SEED repeats one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "base/shared_word.h"
#include "soft/driver/local/test_region.h"
#include "soft/driver/local/test_side.h"
#include "soft/driver/test_stepped_process.h"

namespace verbena::soft::local::sweep {

using verbena::local::Endpoint;
using verbena::local::layout_of;
using verbena::local::SegmentLayout;

inline constexpr std::size_t kRegionBytes = 4096;
inline constexpr std::uint64_t kIova = 0x20000;
inline constexpr std::byte kOld{0x11}, kNew{0xee};
inline constexpr std::uint64_t kOldWord = 0x1111111111111111, kNewWord = 0xeeeeeeeeeeeeeeee;
inline constexpr const char* kNoTrace = "this system lets nobody trace";

// ---- What is looked at from outside.

inline std::uint64_t seed_of_run() {
  static const std::uint64_t seed = [] {
    const char* const given = std::getenv("VERBENA_SWEEP_SEED");
    const std::uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("[          ] VERBENA_SWEEP_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

// So many numbers below `end`, spread over all of them, none at the same place in each run.
inline std::vector<int> sample(int first, int end, int count) {
  std::mt19937_64 random(seed_of_run());
  std::vector<int> all;
  for (int i = 0; i < count; ++i) {
    const int from = first + (end - first) * i / count, to = first + (end - first) * (i + 1) / count;
    if (from != to) all.push_back(from + static_cast<int>(random() % static_cast<std::uint64_t>(to - from)));
  }
  return all;
}

// How often a way of so many instructions can be gone: they are many more under a sanitizer.
inline int affordable(int instructions, int most) { return std::clamp(12'000 / std::max(instructions, 1), 3, most); }

struct Holdings {
  static Holdings now() {
    namespace fs = std::filesystem;
    Holdings held;
    held.descriptors = std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) held.mappings += line.find("memfd:verbena") != line.npos ? 1 : 0;
    return held;
  }
  bool operator==(const Holdings&) const = default;
  std::ptrdiff_t descriptors = 0;
  int mappings = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Holdings& held) {
  return out << held.descriptors << " descriptors, " << held.mappings << " mappings";
}

// The shared memory of this process' one connection, which its hub keeps to itself.
inline std::byte* find_segment() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    if (line.find("memfd:verbena ") == line.npos || std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) continue;
    if (to - from == layout_of(Hub::kRingCapacity).bytes) return reinterpret_cast<std::byte*>(from);
  }
  return nullptr;
}

// Whether either side says that it copies.
inline bool is_claimed(std::byte* segment) {
  const SegmentLayout layout = layout_of(Hub::kRingCapacity);
  return (load_shared(segment + layout.opener_claim) | load_shared(segment + layout.acceptor_claim)) != 0;
}

// The first region either side has granted; or takes back.
inline std::uint64_t first_grant(std::byte* segment) {
  const SegmentLayout layout = layout_of(Hub::kRingCapacity);
  return load_shared(segment + layout.opener_grants + 8) | load_shared(segment + layout.acceptor_grants + 8);
}
inline bool is_granted(std::byte* segment) { return first_grant(segment) != 0; }
inline bool is_ending(std::byte* segment) { return (first_grant(segment) & verbena::local::kEnding) != 0; }

// ---- Who lends a region, and who uses it.

struct Deed {
  const char* name;
  SendOpcode opcode;
  std::uint32_t bytes;
};
inline std::ostream& operator<<(std::ostream& out, const Deed& deed) { return out << deed.name; }
inline constexpr Deed kWrite{"WRITE", SendOpcode::RdmaWrite, 200}, kRead{"READ", SendOpcode::RdmaRead, 200},
    kAdd{"FETCH_ADD", SendOpcode::FetchAndAdd, 8}, kSwap{"COMPARE_SWAP", SendOpcode::CompareAndSwap, 8};
// The thread sanitizer makes a hundred instructions of each, and has no more to say of the others.
inline std::vector<Deed> deeds() {
#ifdef VERBENA_THREAD_SANITIZER
  return {kWrite};
#else
  return {kWrite, kRead, kAdd, kSwap};
#endif
}

inline void post(Side& side, const Deed& deed, RKey rkey) {
  const ScatterGather local{0x10000, deed.bytes, side.region.lkey};
  SendRequest request;
  request.opcode = deed.opcode;
  request.flags = SendFlags::Signaled;
  request.local = {&local, 1};
  request.remote_address = kIova;
  request.rkey = rkey;
  request.compare = kOldWord;
  request.swap_or_add = deed.opcode == SendOpcode::CompareAndSwap ? kNewWord : kNewWord - kOldWord;
  EXPECT_EQ(side.qp.queues->post_send({&request, 1}).posted, 1u);
  side.nic.ring_doorbell(*side.qp.queues);
}

inline CompletionStatus finish(Side& side, Side* other = nullptr) {
  for (;;) {
    const auto done = side.completions();
    if (!done.empty()) return done.front().status;
    side.turn();
    if (other != nullptr) other->turn();
  }
}

inline std::uint64_t direct_requests(const Side& side) { return side.nic.counters().direct_requests; }

// One whose region peers may map.
struct Keeper : Side {
  Keeper() : Keeper(1) {}
  explicit Keeper(std::uint8_t number) : Side(number) {
    std::fill(lent.bytes().begin(), lent.bytes().end(), kOld);
    lent_region = *nic.register_memory(pd, lent.data(), kRegionBytes, kIova, Access::All, lent.file());
  }
  bool take_back() { return nic.deregister_memory(lent_region.lkey).has_value(); }

  FileMemory lent{kRegionBytes};
  core::MemoryRegion lent_region;
};

// Until the peer's region is reached without the peer.
inline void open_region(Side& side, RKey rkey) {
  while (direct_requests(side) == 0) {
    post(side, {"", SendOpcode::RdmaRead, 8}, rkey);
    EXPECT_EQ(finish(side), CompletionStatus::Success);
  }
}

// A child at its second pause.
class Scene {
 public:
  // `meanwhile`: what this side does once it is connected.
  Scene(Side& side, const Endpoint& other, const std::function<int()>& body, const std::function<void()>& meanwhile)
      : child(body) {
    const auto turn = [&side] { side.turn(); };
    if (!child.traced() || !child.go_on_until_pause(turn)) return;
    side.connect(other);
    ready = child.go_on_until_pause(meanwhile ? meanwhile : turn);
    turn_until([&] { return side.on_rings(); }, {&side});
    segment = find_segment();
    EXPECT_TRUE(ready && segment != nullptr);
  }
  SteppedProcess child;
  bool ready = false;
  std::byte* segment = nullptr;
};

// So many instructions, or to its pause.
inline void step_to(Scene& scene, int point) {
  for (int at = 0; at < point && scene.child.step(); ++at) continue;
}

inline bool is_all(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
}

// O-4: old or new each byte, all new when the last word is, which is one or the other.
inline void expect_permitted(std::span<const std::byte> written) {
  const auto tail = written.last(8);
  const bool ended = is_all(tail, kNew);
  EXPECT_TRUE(ended || is_all(tail, kOld)) << "half a word";
  const auto known = [ended](std::byte byte) { return byte == kNew || (!ended && byte == kOld); };
  EXPECT_TRUE(std::all_of(written.begin(), written.end(), known)) << (ended ? "the end came first" : "other bytes");
}
inline void expect_permitted(const Keeper& keeper, const Deed& deed) {
  const std::size_t changes = deed.opcode == SendOpcode::RdmaRead ? 0 : deed.bytes;
  if (changes != 0) expect_permitted(keeper.lent.bytes().first(changes));
  EXPECT_TRUE(is_all(keeper.lent.bytes().subspan(changes), kOld)) << "beside it";
}

inline bool is_whole(const Keeper& keeper, const Deed& deed) {
  return deed.opcode == SendOpcode::RdmaRead || is_all(keeper.lent.bytes().first(deed.bytes), kNew);
}
inline bool has_changed(const Keeper& keeper) { return keeper.lent.data()[0] == kNew; }

inline void hear_end(Side& side) {
  turn_until([&] { return side.explained().find("which has ended") != std::string::npos; }, {&side});
}

// Its connection is over, and the next process at the dead one's address reaches the keeper and its memory.
inline void expect_heir(Side& keeper) {
  hear_end(keeper);
  keeper.write(8, keeper, 8);
  EXPECT_EQ(finish(keeper), CompletionStatus::RetryExceeded);
  Side heir(2);
  keeper.use_another();
  heir.connect(keeper.endpoint());
  keeper.connect(heir.endpoint());
  turn_until([&] { return keeper.on_rings() && heir.on_rings(); }, {&keeper, &heir});
  heir.write(9, keeper, 8);
  EXPECT_EQ(finish(heir, &keeper), CompletionStatus::Success);
}

// ---- Longer ways: so many system calls, and then so many instructions.

struct Moment {
  int calls = 0, instructions = 0;
};
inline std::ostream& operator<<(std::ostream& out, const Moment& moment) {
  return out << moment.calls << " calls and " << moment.instructions << " instructions";
}

// `meanwhile` after each call.
inline void step_to(Scene& scene, const Moment& moment, const std::function<void()>& meanwhile) {
  for (int call = 0; call < moment.calls && scene.child.step_call(); ++call) meanwhile();
  for (int at = 0; at < moment.instructions && !scene.child.pauses() && scene.child.step(); ++at) continue;
}

inline std::vector<Moment> sample_moments(int calls, int count) {
  constexpr int kMostInstructions = 400;
  std::mt19937_64 random(seed_of_run());
  std::vector<Moment> all;
  for (const int nth : sample(0, calls * count, count))
    all.push_back({nth / count, static_cast<int>(random() % kMostInstructions)});
  return all;
}

inline int count_calls(Scene& scene, const std::function<void()>& meanwhile) {
  int calls = 0;
  for (; scene.child.step_call(); ++calls) meanwhile();
  EXPECT_TRUE(scene.child.pauses()) << "it did not come to its end";
  return calls;
}

}  // namespace verbena::soft::local::sweep
