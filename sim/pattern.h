// SPDX-License-Identifier: Apache-2.0
// Message content that anybody can compute again: byte `offset` of the pattern with a given serial number.
#pragma once

#include <algorithm>
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
    const std::size_t head = bytes_before_word(offset, out.size());
    put(out.first(head), rest_of_word(offset));
    out = out.subspan(head);
    std::uint64_t index = (offset + head) >> 3;
    for (Words words = words_from(index); out.size() >= sizeof(Words); out = out.subspan(sizeof(Words))) {
      std::memcpy(out.data(), &words, sizeof(Words));
      words += kWords * kStep;
      index += kWords;
    }
    for (; out.size() >= 8; out = out.subspan(8)) {
      const std::uint64_t value = word(index++);
      std::memcpy(out.data(), &value, 8);
    }
    put(out, word(index));
  }
  bool equals(std::span<const std::byte> bytes, std::uint64_t offset = 0) const {
    const std::size_t head = bytes_before_word(offset, bytes.size());
    std::uint64_t differ = differences(bytes.first(head), rest_of_word(offset));
    bytes = bytes.subspan(head);
    std::uint64_t index = (offset + head) >> 3;
    Words words_differ{};
    for (Words words = words_from(index); bytes.size() >= sizeof(Words); bytes = bytes.subspan(sizeof(Words))) {
      Words there;
      std::memcpy(&there, bytes.data(), sizeof(Words));
      words_differ |= there ^ words;
      words += kWords * kStep;
      index += kWords;
    }
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint64_t value;
      std::memcpy(&value, bytes.data(), 8);
      differ |= value ^ word(index++);
    }
    return (differ | words_differ[0] | words_differ[1] | differences(bytes, word(index))) == 0;
  }

 private:
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static constexpr std::uint64_t kStep = 0xd1342543de82ef95u;
  constexpr std::uint64_t word(std::uint64_t index) const { return base_ + index * kStep; }

  // As many as one register holds on every machine.
  using Words = std::uint64_t __attribute__((vector_size(16)));
  static constexpr std::uint64_t kWords = sizeof(Words) / 8;
  Words words_from(std::uint64_t index) const { return Words{word(index), word(index + 1)}; }

  // Fewer than eight bytes: those up to the next whole word, and what it takes to write or judge them.
  static std::size_t bytes_before_word(std::uint64_t offset, std::size_t size) {
    return std::min<std::size_t>(-offset & 7, size);
  }
  std::uint64_t rest_of_word(std::uint64_t offset) const { return word(offset >> 3) >> ((offset & 7) * 8); }
  static void put(std::span<std::byte> out, std::uint64_t value) {
    for (std::byte& byte : out) byte = static_cast<std::byte>(value), value >>= 8;
  }
  static std::uint64_t differences(std::span<const std::byte> bytes, std::uint64_t value) {
    std::uint64_t differ = 0;
    for (const std::byte byte : bytes) {
      differ |= (value ^ static_cast<std::uint64_t>(byte)) & 0xff;
      value >>= 8;
    }
    return differ;
  }

  std::uint64_t base_;
};

}  // namespace verbena::sim
