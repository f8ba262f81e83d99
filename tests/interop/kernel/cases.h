// SPDX-License-Identifier: Apache-2.0
// The cases of the matrix. Each is written once, for a requester and a responder, and runs in both
// directions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "side.h"

namespace verbena::interop {

// What one case runs in.
struct World {
  Side& requester;
  Side& responder;
  Report& report;
  std::uint32_t mtu = 1024;  // path MTU, bytes
  std::uint64_t seed = 1;    // of patterns, PSNs and what is drawn
};

struct Case {
  std::string name;
  std::function<void(World&)> run;
  bool posts_misaligned_atomic = false;  // cannot be asked of a device that refuses the post
};

std::vector<Case> transfer_cases(std::uint32_t mtu);
std::vector<Case> atomic_cases();
std::vector<Case> receive_cases();  // not ready, too small
std::vector<Case> refusal_cases();
std::vector<Case> silence_cases();
std::vector<Case> queue_cases();
// Requests of every kind drawn from World::seed, in both directions at once.
void run_mixed(World& world);

// ---- What the cases share.
inline constexpr std::uint32_t kWaitMs = 20'000;

// Two connected pairs; ids at their sides.
struct Link {
  std::uint64_t requester = 0;
  std::uint64_t responder = 0;
};
// Options carry everything but MTU and PSN, which come from the world.
Link connect(World& world, PairOptions requester = {}, PairOptions responder = {});

std::string describe(const Outcome& outcome);

// The next completions have these ids and statuses, in this order.
struct Expected {
  std::uint64_t id = 0;
  CompletionStatus status = CompletionStatus::Success;
};
std::vector<Outcome> expect_outcomes(World& world, Side& side, std::uint64_t pair, Queue queue,
                                     const std::vector<Expected>& expected);
// None has come.
void expect_none(World& world, Side& side, std::uint64_t pair, Queue queue);
void expect_state(World& world, Side& side, std::uint64_t pair, QueuePairState state);
// [offset, offset + bytes) holds the pattern of `seed`, all else is untouched.
void expect_pattern(World& world, Side& side, std::uint64_t region, std::uint64_t offset, std::uint64_t bytes,
                    std::uint64_t seed);
void expect_untouched(World& world, Side& side, std::uint64_t region);

}  // namespace verbena::interop
