// SPDX-License-Identifier: Apache-2.0
// Message content that anybody can compute again: byte `offset` of the pattern with a given serial number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace verbena::sim {

class Pattern {
 public:
  constexpr explicit Pattern(std::uint64_t serial) : base_(mix(serial)) {}

  constexpr std::byte at(std::uint64_t offset) const {
    return static_cast<std::byte>(word(offset >> 3) >> ((offset & 7) * 8));
  }
  // Writes bytes [offset, offset + out.size()).
  void fill(std::span<std::byte> out, std::uint64_t offset = 0) const {
    std::size_t i = 0;
    for (; i < out.size() && ((offset + i) & 7) != 0; ++i) out[i] = at(offset + i);
    for (std::uint64_t w = (offset + i) >> 3; i + 8 <= out.size(); i += 8, ++w) {
      const std::uint64_t value = word(w);
      std::memcpy(&out[i], &value, 8);
    }
    for (; i < out.size(); ++i) out[i] = at(offset + i);
  }
  bool equals(std::span<const std::byte> bytes, std::uint64_t offset = 0) const {
    std::size_t i = 0;
    for (; i < bytes.size() && ((offset + i) & 7) != 0; ++i)
      if (bytes[i] != at(offset + i)) return false;
    std::uint64_t differs = 0;
    for (std::uint64_t w = (offset + i) >> 3; i + 8 <= bytes.size(); i += 8, ++w) {
      std::uint64_t value;
      std::memcpy(&value, &bytes[i], 8);
      differs |= value ^ word(w);
    }
    if (differs != 0) return false;
    for (; i < bytes.size(); ++i)
      if (bytes[i] != at(offset + i)) return false;
    return true;
  }

 private:
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  constexpr std::uint64_t word(std::uint64_t index) const { return base_ + index * 0xd1342543de82ef95u; }

  std::uint64_t base_;
};

}  // namespace verbena::sim
