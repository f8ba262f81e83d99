// SPDX-License-Identifier: Apache-2.0
// A queue pair inside the device: queues, transport, and its places in the device's lists.
#pragma once

#include "soft/nic.h"
#include "soft/roce/transport.h"

namespace verbena::soft {

struct Nic::Qp final : core::QueuePair {
  Qp(Qpn number, const core::QueuePairInit& init, core::EventQueue& events, const NicConfig& config,
     core::MemoryTable& memory, Counters& counters, RandomSource& random)
      : core::QueuePair(number, init, events),
        transport(*this, config.transport, memory, counters, random, config.pkey) {}

  roce::Transport transport;

  struct Hook {
    Qp* previous = nullptr;
    Qp* next = nullptr;
    bool linked = false;
  };
  std::array<Hook, kListCount> hooks;
  Instant timer_at = Instant::never();  // of its live entry in the device's heap

  std::atomic<bool> doorbell{false};
  Qp* next_doorbell = nullptr;
};

}  // namespace verbena::soft
