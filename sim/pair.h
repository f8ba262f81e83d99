// SPDX-License-Identifier: Apache-2.0
// Two connected queue pairs on two nodes, over all their lives, and what the programs on both sides remember.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/flow.h"
#include "sim/world.h"

namespace verbena::sim {

// A receive request as the program that posted it knows it.
struct PostedReceive {
  std::uint64_t serial = 0;  // of what fills it before
  std::uint32_t capacity = 0;
  std::uint32_t segment_count = 0;
  std::array<Segment, kMaxModelSegments> segments{};
  std::uint64_t buffers_end = 0;
};

// A completion queue that may be armed, and what is due.
struct Bell {
  enum class Armed : std::uint8_t { No, Solicited, Next };
  core::CqId cq;
  Armed armed = Armed::No;
  bool due = false;   // a completion came that must raise the event
  bool rang = false;  // the event came
};

// What all pairs on a node share.
struct Host {
  core::PdId domain, foreign_domain;
  core::CqId send_cq, receive_cq;
  std::array<Bell, 2> bells{};  // the second is unused where both queues are one
  Area locked;                  // registered without remote rights
  Area foreign;                 // registered in the other protection domain
  std::unique_ptr<SharedCells> cells;
  std::uint32_t lanes = 0;
};

// A connection as the program on one side knows it.
struct Connection {
  cm::ConnectionId id;
  bool live = false;  // the id was given out and not destroyed
  bool established = false, disconnected = false, over = false;
};

// One end.
struct Side {
  std::uint8_t node = 0;
  Area receive_area;
  BufferRing receive_buffers;

  Qpn qpn;
  core::QueuePair* queues = nullptr;  // null when there is none
  std::uint32_t send_capacity = 0, receive_capacity = 0, inline_capacity = 0;
  Ring<PostedReceive> receives;
  bool killed = false;     // put into ERR by its program
  bool abandoned = false;  // destroyed with work in it
  bool may_send = false;   // in RTS
  bool draining = false;   // in SQD
  bool drained = false;    // and the event came
  bool withdrawn = false;  // the target in its memory was deregistered
  Psn first_psn;
  Connection connection;
};

struct Pair {
  enum class State : std::uint8_t { Down, Connecting, Up, Closing };

  std::uint32_t index = 0;
  State state = State::Down;
  std::array<Side, 2> sides;
  std::array<std::unique_ptr<Flow>, 2> flows;  // flows[s]: requests of side s
  std::array<core::MemoryRegion, 2>
      stale{};  // the target that flows[s] wrote to, deregistered; base null: none yet
  std::uint32_t incarnation = 0;
  Instant asked_at;      // for the connection under way
  bool refused = false;  // by the program on the passive side
  std::uint32_t idle_ticks = 0;
  bool settled = false;

  // The queue pair of side s may be in ERR.
  bool is_broken(std::size_t s) const {
    return sides[s].killed || flows[s]->errored() || flows[1 - s]->has_broken_responder();
  }
};

}  // namespace verbena::sim
