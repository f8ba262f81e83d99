// SPDX-License-Identifier: Apache-2.0
// What became of every datagram, for people and capture files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "soft/wire/path.h"
#include "verbena/base/time.h"

namespace verbena::sim {

enum class Fate : std::uint8_t {
  Delivered,
  Lost,        // by the network
  QueueFull,   // on the way, or in the receiver's buffer
  Duplicated,  // this is a further copy, which arrives
  Replayed,    // a copy that arrives much later
  Corrupted,   // arrives, damaged
  Forged,      // made by the network, with a right ICRC
};
std::string_view to_string(Fate fate);

// One datagram on one way from one node to another. Spans and the path live during the call only.
struct PacketRecord {
  Instant sent;
  Instant arrives;  // never() when it does not
  std::uint64_t ordinal = 0;
  std::uint8_t from = 0, to = 0;
  Fate fate = Fate::Delivered;
  wire::Path path;
  std::uint16_t identification = 0;
  std::span<const std::byte> datagram;  // UDP payload; wire::append_ip() makes an IP datagram of it
};
using TraceSink = std::function<void(const PacketRecord&)>;

// "0.000012345 s  #17  0 > 1  delivered  RC SEND Only qpn ...": time since `start`.
std::string describe(const PacketRecord& record, Instant start);

}  // namespace verbena::sim
