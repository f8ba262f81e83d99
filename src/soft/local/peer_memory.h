// SPDX-License-Identifier: Apache-2.0
// The memory of the process at the other end of a connection, to copy from: one copy where two rings take two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/core/pieces.h"
#include "soft/local/message.h"

namespace verbena::local {

inline constexpr std::size_t kMaxFetches = 16;  // pieces of the peer's that one call copies from

enum class Pulled : std::uint8_t {
  Whole,
  Fault,     // a part was copied at most: one side's memory is not there, or may not be read
  PeerGone,  // what was copied means nothing
};

// The driver's. The device's owner alone calls it.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Fills `to` in its order from what the peer named, at most kMaxFetches pieces. Both name the same number of bytes.
  // Nothing but `to` is written, whatever `from` says.
  virtual Pulled pull(std::span<const Piece> from, std::span<const core::Piece> to) = 0;
  // Whether the peer said that it can copy from us. Reads shared memory.
  virtual bool is_granted() const = 0;
  // What the peer copies from us counts no more, from now on and for good: its pull() is PeerGone, also one that has
  // begun.
  virtual void refuse() = 0;
};

}  // namespace verbena::local
