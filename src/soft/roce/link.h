// SPDX-License-Identifier: Apache-2.0
// What the parts of one queue pair's transport share: the queue pair, its path, and the device's common
// things.
#pragma once

#include "base/random.h"
#include "soft/core/pieces.h"
#include "soft/core/queue_pair.h"
#include "soft/roce/config.h"
#include "soft/roce/counters.h"
#include "soft/roce/train.h"
#include "soft/wire/packet.h"

namespace verbena::roce {

struct Link {
  core::QueuePair& qp;
  const Config& config;
  core::MemoryTable& memory;
  Counters& counters;
  RandomSource& random;
  std::uint16_t pkey = 0xffff;
  wire::Path path;  // ours to the peer's; known from RTR on
  wire::IcrcStart icrc_start;  // of path
  std::uint32_t source_index = 0;
  bool trains_arrive_whole = false;  // nothing on the path takes them apart

  std::uint32_t mtu() const { return qp.attributes().path_mtu; }
  core::PdId pd() const { return qp.init().pd; }
};

using core::PieceList;

// Where the payloads of the next middles of a message go, and of how many; 0 where each is to be judged by itself.
struct Run {
  std::byte* to = nullptr;
  std::uint32_t count = 0;
};

inline bool find_pieces(const Link& link, core::PdId domain, std::span<const ScatterGather> sges, std::uint64_t offset,
                        std::uint64_t length, Access wanted, PieceList& out) {
  return core::find_pieces(link.memory, domain, sges, offset, length, wanted, out);
}

}  // namespace verbena::roce
