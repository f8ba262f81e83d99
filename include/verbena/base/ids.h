// SPDX-License-Identifier: Apache-2.0
// Sequence numbers, queue pair numbers and keys are types, not integers.
#pragma once

#include <compare>
#include <cstdint>

namespace verbena {

// Packet sequence number: 24 bits, modular. Order is relative to a window: see distance().
class Psn {
 public:
  static constexpr std::uint32_t kMask = 0xffffff;

  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr Psn operator+(std::uint32_t n) const { return Psn{value_ + n}; }
  constexpr Psn operator-(std::uint32_t n) const { return Psn{value_ - n}; }
  constexpr Psn& operator++() { return *this = *this + 1; }
  constexpr bool operator==(const Psn&) const = default;

  // a - b as a signed 24-bit number: negative when a is before b, in [-2^23, 2^23).
  static constexpr std::int32_t distance(Psn a, Psn b) {
    return static_cast<std::int32_t>((a.value_ - b.value_) << 8) >> 8;
  }
  constexpr bool is_before(Psn other) const { return distance(*this, other) < 0; }
  constexpr bool is_after(Psn other) const { return distance(*this, other) > 0; }

 private:
  std::uint32_t value_ = 0;
};

// Queue pair number: 24 bits. 0 and 1 are the management queue pairs, 0xFFFFFF is multicast.
class Qpn {
 public:
  static constexpr std::uint32_t kMask = 0xffffff;

  constexpr Qpn() = default;
  constexpr explicit Qpn(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr auto operator<=>(const Qpn&) const = default;

 private:
  std::uint32_t value_ = 0;
};

inline constexpr Qpn kGsiQpn{1};
inline constexpr Qpn kMulticastQpn{0xffffff};

// Names registered memory in local work requests. 0 names none.
class LKey {
 public:
  constexpr LKey() = default;
  constexpr explicit LKey(std::uint32_t value) : value_(value) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr auto operator<=>(const LKey&) const = default;

 private:
  std::uint32_t value_ = 0;
};

// Names registered memory to the peer. 0 names none.
class RKey {
 public:
  constexpr RKey() = default;
  constexpr explicit RKey(std::uint32_t value) : value_(value) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr auto operator<=>(const RKey&) const = default;

 private:
  std::uint32_t value_ = 0;
};

}  // namespace verbena
