// SPDX-License-Identifier: Apache-2.0
// What the two ends of a protocol say besides messages: empty SENDs whose immediate is a word and a number.
//
// A control takes a receive at the other end, and none is ever sent without one there: an end says how many
// it keeps for that (control_receives()), and a protocol's words are bounded by its credits (send_receive.h,
// for one).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/byte_order.h"

namespace verbena::messaging {

// Numbers are counters, cut to 28 bits: see counter_near().
struct Control {
  enum class Word : std::uint8_t {
    GivenBack = 1,  // receiver: so many messages, or bytes, since the beginning
    Finish = 2,     // sender: so many messages is all
    Finished = 3,   // receiver: all of them are here, whatever becomes of the connection
    Waits = 4,      // sender of a shared ring: it has waited for room for long; the number says nothing
  };
  static constexpr std::uint32_t kNumberMask = (1u << 28) - 1;

  Word word = Word::GivenBack;
  std::uint32_t number = 0;

  std::array<std::byte, 4> to_immediate() const {
    std::array<std::byte, 4> bytes{};
    store_be32(bytes.data(), static_cast<std::uint32_t>(word) << 28 | (number & kNumberMask));
    return bytes;
  }
  // Nothing for a word that is none.
  static std::optional<Control> from_immediate(const std::array<std::byte, 4>& bytes) {
    const std::uint32_t value = load_be32(bytes.data());
    const std::uint32_t word = value >> 28;
    if (word < 1 || word > 4) return std::nullopt;
    return Control{static_cast<Word>(word), value & kNumberMask};
  }
};

// Of each end, for Finish and Finished; others are the protocol's.
inline constexpr std::uint32_t kControlSends = 1;
inline constexpr std::uint32_t kControlReceives = 1;

// The first counter from `at_least` on whose lower 28 bits are those.
constexpr std::uint64_t counter_near(std::uint64_t at_least, std::uint32_t low) {
  return at_least + ((low - static_cast<std::uint32_t>(at_least)) & Control::kNumberMask);
}

}  // namespace verbena::messaging
