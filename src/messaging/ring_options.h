// SPDX-License-Identifier: Apache-2.0
// From the options of a protocol to the ring it needs.
#pragma once

#include <bit>
#include <string>

#include "messaging/double_mapping.h"
#include "messaging/offer.h"
#include "messaging/ring/geometry.h"
#include "verbena/device/protection_domain.h"
#include "verbena/messaging/options.h"

namespace verbena::messaging {

// The others have no choice: a shared ring stands as SharedGeometry has it.
inline Commit commit_of(const Kind& kind) {
  if (kind.protocol == Protocol::BufferedRead) return Commit::Offset;
  return kind.protocol == Protocol::SharedWrite ? Commit::Immediate : kind.commit;
}

inline ring::Geometry geometry_of(const Settled& settled, std::uint64_t capacity) {
  ring::Geometry geometry{.capacity = capacity};
  switch (commit_of(settled.kind)) {
    case Commit::Immediate:
      geometry.commit = ring::Commit::Immediate;
      geometry.max_messages = settled.depth;
      break;
    case Commit::Offset:
      geometry.commit = ring::Commit::Offset;
      break;
    case Commit::Reversed:
      geometry.commit = ring::Commit::Reversed;
      break;
  }
  geometry.doubled = settled.kind.ring == RingMemory::DoubleMapped;
  return geometry;
}

// What Options::ring_bytes comes to: the next power of two, of whole pages. Errors: InvalidArgument.
inline Result<std::uint64_t> ring_capacity(const Options& options) {
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::InvalidArgument, "messages by " + to_string(options.kind) + ": " + why);
  };
  constexpr std::uint64_t kMost = std::uint64_t{1} << 33;  // controls count its units by 28 bits
  if (options.ring_bytes == 0 || options.ring_bytes > kMost)
    return refuse("a ring of " + std::to_string(options.ring_bytes) + " bytes, which is not 1 to 8 GiB");
  const std::uint64_t capacity = std::max<std::uint64_t>(4096, std::bit_ceil(options.ring_bytes));
  const ring::Geometry geometry = geometry_of({options.kind, 0, options.depth}, capacity);
  if (options.max_message_bytes > geometry.max_payload_bytes())
    return refuse("a ring of " + std::to_string(capacity) + " bytes holds messages of at most " +
                  std::to_string(geometry.max_payload_bytes()) + " bytes, and max_message_bytes is " +
                  std::to_string(options.max_message_bytes));
  return capacity;
}

// A ring and lines behind it, registered; as RingMemory says. Zero at first.
struct RegisteredRing {
  DoubleMapping mapping;
  MemoryRegion region;

  static Result<RegisteredRing> create(ProtectionDomain& domain, std::uint64_t capacity, RingMemory kind,
                                       std::uint64_t lines, Access access) {
    RegisteredRing made;
    const auto bytes = static_cast<std::size_t>(capacity);
    if (kind == RingMemory::Plain) {
      auto region = domain.allocate_memory(bytes + static_cast<std::size_t>(lines), access);
      if (!region) return region.error();
      made.region = std::move(*region);
      return made;
    }
    auto mapping = DoubleMapping::create(bytes, static_cast<std::size_t>(lines));
    if (!mapping) return mapping.error();
    made.mapping = std::move(*mapping);
    auto region = domain.register_memory(made.mapping.bytes(), access);
    if (!region) return region.error();
    made.region = std::move(*region);
    return made;
  }
};

}  // namespace verbena::messaging
