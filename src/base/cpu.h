// SPDX-License-Identifier: Apache-2.0
// What the processor has beyond what the program was compiled for.
#pragma once

namespace verbena::cpu {

// False while static objects are made; whoever asks then takes the slower way.
#if defined(__x86_64__)
inline const bool kHasAvx = __builtin_cpu_supports("avx") != 0;
#else
inline constexpr bool kHasAvx = false;
#endif

}  // namespace verbena::cpu
