// SPDX-License-Identifier: Apache-2.0
// The part of a space of random ids that one of several owners draws from.
#pragma once

#include <cstdint>

namespace verbena {

// The ids whose first `bits` bits are `value`. Without bits, all of them.
struct IdSlot {
  unsigned bits = 0;
  std::uint32_t value = 0;

  // `id`, of `width` bits, moved into the slot; what is random below the slot's bits stays so.
  constexpr std::uint32_t place(std::uint32_t id, unsigned width) const {
    if (bits == 0) return id;
    const unsigned below = width - bits;
    return (id & ((1u << below) - 1)) | value << below;
  }
  // Of an id that another slot of the same width holds.
  constexpr std::uint32_t value_of(std::uint32_t id, unsigned width) const {
    return bits == 0 ? 0 : id >> (width - bits);
  }
  constexpr bool holds(std::uint32_t id, unsigned width) const { return place(id, width) == id; }
};

}  // namespace verbena
