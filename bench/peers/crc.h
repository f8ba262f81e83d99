// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace peer {

#if defined(__x86_64__)
[[gnu::target("avx")]] inline void clear_upper_vector_halves() { _mm256_zeroupper(); }
inline const bool kHasAvx = __builtin_cpu_supports("avx") != 0;
#endif

// CRC-32 of IEEE 802.3. ISA-L may return with the upper vector halves in use, which slows down all legacy SSE
// code after it (memcpy of a plain build) until they are cleared.
inline std::uint32_t crc32(std::uint32_t seed, const std::byte* bytes, std::size_t size) {
  const std::uint32_t crc = crc32_gzip_refl(seed, reinterpret_cast<const unsigned char*>(bytes), size);
#if defined(__x86_64__)
  if (kHasAvx) clear_upper_vector_halves();
#endif
  return crc;
}

}  // namespace peer
