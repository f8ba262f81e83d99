// SPDX-License-Identifier: Apache-2.0
// A queue pair inside the device: queues, transport, and its places in the device's lists.
#pragma once

#include "soft/local/match.h"
#include "soft/nic.h"
#include "soft/paths.h"
#include "soft/roce/transport.h"

namespace verbena::soft {

struct Nic::Qp final : core::QueuePair {
  Qp(Qpn number, const core::QueuePairInit& init, core::EventQueue& events, const NicConfig& config,
     core::MemoryTable& memory, Counters& counters, RandomSource& random)
      : core::QueuePair(number, init, events),
        transport(*this, config.transport, memory, counters, random, config.pkey) {}

  roce::Transport transport;
  // None: not used here. What is decided for memory stays so in ERR.
  verbena::local::Path path = verbena::local::Path::Roce;
  // For those who ask before they take the device: it is attached to rings, and has regions of the peer's mapped.
  std::atomic<bool> on_rings{false};
  std::atomic<bool> reaches_peer{false};
  // While undecided, and on the path through memory.
  struct Local {
    Local(core::QueuePair& qp, const verbena::local::Config& config, core::MemoryTable& memory, Counters& counters,
          RandomSource& random)
        : transport(qp, config, memory, counters, random) {}

    verbena::local::Transport transport;
    std::optional<LocalLink> link;  // while attached
    Instant waits_until = Instant::never();  // undecided, and something was posted
    bool hung_up = false;                    // the peer did: it copies no more
    Instant ends_at = Instant::never();      // its farewell may still come until then
    Instant used_at{};                       // the peer's ring had something, or ours got something
  };
  std::unique_ptr<Local> local;

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
