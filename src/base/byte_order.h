// SPDX-License-Identifier: Apache-2.0
// Big-endian loads and stores on bytes, of any alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena {

static_assert(std::endian::native == std::endian::little,
              "the byte order helpers assume a little-endian host");

inline std::uint8_t load_u8(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }
inline std::uint16_t load_be16(const std::byte* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap16(v);
}
inline std::uint32_t load_be24(const std::byte* p) {
  return static_cast<std::uint32_t>(load_u8(p)) << 16 | static_cast<std::uint32_t>(load_u8(p + 1)) << 8 |
         load_u8(p + 2);
}
inline std::uint32_t load_be32(const std::byte* p) {
  std::uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap32(v);
}
inline std::uint64_t load_be64(const std::byte* p) {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap64(v);
}
inline void store_u8(std::byte* p, std::uint8_t v) { *p = std::byte{v}; }
inline void store_be16(std::byte* p, std::uint16_t v) {
  v = __builtin_bswap16(v);
  std::memcpy(p, &v, sizeof v);
}
inline void store_be24(std::byte* p, std::uint32_t v) {
  store_u8(p, static_cast<std::uint8_t>(v >> 16));
  store_u8(p + 1, static_cast<std::uint8_t>(v >> 8));
  store_u8(p + 2, static_cast<std::uint8_t>(v));
}
inline void store_be32(std::byte* p, std::uint32_t v) {
  v = __builtin_bswap32(v);
  std::memcpy(p, &v, sizeof v);
}
inline void store_be64(std::byte* p, std::uint64_t v) {
  v = __builtin_bswap64(v);
  std::memcpy(p, &v, sizeof v);
}

}  // namespace verbena
