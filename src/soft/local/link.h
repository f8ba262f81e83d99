// SPDX-License-Identifier: Apache-2.0
// What the parts of one queue pair's transport share: the queue pair, the rings, and the device's common things.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "base/random.h"
#include "soft/core/counters.h"
#include "soft/core/pieces.h"
#include "soft/core/queue_pair.h"
#include "soft/local/config.h"
#include "soft/local/grants.h"
#include "soft/local/message.h"
#include "soft/local/peer_memory.h"
#include "soft/local/peer_regions.h"
#include "soft/local/ring.h"

namespace verbena::local {

// The two rings of a connection, the peer's own memory, and what each side grants. All of it is the driver's.
struct Channel {
  RingProducer out;
  RingConsumer in;
  PeerMemory* peer_memory = nullptr;  // none: whoever names bytes there breaks the connection
  std::optional<Granter> granter{};   // our regions; none: the peer reaches nothing by itself
  std::optional<Claimer> claimer{};   // what we copy of the peer's
  RegionSource* regions = nullptr;    // none: nothing is copied directly
};

struct Link {
  core::QueuePair& qp;
  const Config& config;
  core::MemoryTable& memory;
  core::Counters& counters;
  RandomSource& random;
  std::optional<Channel> channel{};
  std::uint32_t max_record_bytes = 0;  // of ours, while there is a channel: several are in the ring at once
  bool peer_pulls = false;  // it said so
  bool peer_leaves = false;  // nothing is copied directly any more
  bool peer_gone = false;   // seen by a copy: nothing more is read, and the socket tells
  std::unique_ptr<PeerRegions> peer_regions{};  // from the first request on that could use one

  core::PdId pd() const { return qp.init().pd; }
  // What the peer granted under that key. Nothing, and it is asked for when it is time.
  [[gnu::always_inline]] const PeerRegion* granted(RKey rkey) {
    return reaches_regions() ? peer_regions->find(rkey, *channel->regions) : nullptr;
  }
  // Likewise, of a payload that the peer named. `first`: not in what follows of the same message.
  const PeerRegion* granted_payload(RKey rkey, bool first) {
    return reaches_regions() ? peer_regions->find_payload(rkey, first, *channel->regions) : nullptr;
  }
  bool reaches_regions() {
    if (channel->regions == nullptr || peer_leaves) return false;
    if (peer_regions == nullptr) [[unlikely]] make_peer_regions();
    return true;
  }
  [[gnu::cold, gnu::noinline]] void make_peer_regions() { peer_regions = std::make_unique<PeerRegions>(); }
  void look_whether_peer_pulls() {
    if (!peer_pulls && channel->peer_memory != nullptr) peer_pulls = channel->peer_memory->is_granted();
  }
  std::byte* reserve(RecordKind kind, std::uint32_t bytes) {
    RingProducer& out = channel->out;
    const auto at = out.try_reserve(static_cast<std::uint16_t>(kind), bytes);
    return at ? out.memory().data() + *at : nullptr;
  }
  void discard(std::byte* record, std::uint32_t bytes) {
    RingProducer& out = channel->out;
    out.discard(static_cast<std::uint32_t>(record - out.memory().data()), bytes);
  }
};

// What became of a turn at writing.
struct Written {
  bool anything = false;
  bool blocked = false;  // there is more, and no room for it
};

}  // namespace verbena::local
