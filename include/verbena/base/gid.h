// SPDX-License-Identifier: Apache-2.0
// A GID: 16 bytes that on RoCE v2 are an IP address. IPv4 a.b.c.d is ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/base/result.h"

namespace verbena {

struct Gid {
  std::array<std::uint8_t, 16> bytes{};  // network order

  static constexpr Gid from_ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
  }
  // "192.0.2.1", "2001:db8::1" or "::ffff:192.0.2.1"; no names, no scope ids.
  static Result<Gid> parse(std::string_view text);

  constexpr bool is_ipv4() const {
    const auto quarters = std::bit_cast<std::array<std::uint32_t, 4>>(bytes);
    constexpr auto kMapped = std::bit_cast<std::uint32_t>(std::array<std::uint8_t, 4>{0, 0, 0xff, 0xff});
    return (quarters[0] | quarters[1]) == 0 && quarters[2] == kMapped;
  }
  // 127.0.0.0/8 or ::1: what goes there stays on this host.
  constexpr bool is_loopback() const {
    Gid one;
    one.bytes[15] = 1;
    return is_ipv4() ? bytes[12] == 127 : *this == one;
  }
  constexpr bool is_zero() const { return *this == Gid{}; }
  // "192.0.2.1" for mapped IPv4, RFC 5952 text otherwise.
  std::string to_string() const;

  constexpr auto operator<=>(const Gid&) const = default;
  constexpr bool operator==(const Gid& other) const {  // two words: this is asked of every packet
    const auto mine = std::bit_cast<std::array<std::uint64_t, 2>>(bytes);
    const auto its = std::bit_cast<std::array<std::uint64_t, 2>>(other.bytes);
    return mine[0] == its[0] && mine[1] == its[1];
  }
};

}  // namespace verbena
