// SPDX-License-Identifier: Apache-2.0
// A GID: 16 bytes that on RoCE v2 are an IP address. IPv4 a.b.c.d is ::ffff:a.b.c.d.
#pragma once

#include <array>
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
    for (int i = 0; i < 10; ++i)
      if (bytes[static_cast<std::size_t>(i)] != 0) return false;
    return bytes[10] == 0xff && bytes[11] == 0xff;
  }
  constexpr bool is_zero() const { return *this == Gid{}; }
  // "192.0.2.1" for mapped IPv4, RFC 5952 text otherwise.
  std::string to_string() const;

  constexpr auto operator<=>(const Gid&) const = default;
};

}  // namespace verbena
