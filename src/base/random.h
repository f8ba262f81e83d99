// SPDX-License-Identifier: Apache-2.0
// Where random bytes come from: handed in, never fetched. Production: cryptographic. Simulator: the seed.
#pragma once

#include <cstdint>

namespace verbena {

class RandomSource {
  __extension__ using Wide = unsigned __int128;

 public:
  virtual ~RandomSource() = default;
  virtual std::uint64_t next_u64() = 0;

  std::uint32_t next_u32() { return static_cast<std::uint32_t>(next_u64() >> 32); }
  // Uniform in [0, bound), bound > 0, without modulo bias (Lemire, 2019).
  std::uint64_t below(std::uint64_t bound) {
    for (;;) {
      const Wide wide = static_cast<Wide>(next_u64()) * bound;
      const auto low = static_cast<std::uint64_t>(wide);
      if (low >= bound || low >= (0 - bound) % bound) return static_cast<std::uint64_t>(wide >> 64);
    }
  }
};

// SplitMix64 (Steele, Lea, Flood 2014): small, fast, reproducible. Not for keys that an attacker must not
// guess.
class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next_u64() override {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // True with probability p.
  bool chance(double p) { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53 < p; }

 private:
  std::uint64_t state_;
};

}  // namespace verbena
