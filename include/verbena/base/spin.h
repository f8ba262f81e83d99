// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

// For between two looks at memory that another processor is to write, as a peer of this host does with a WRITE. Who
// looks without a pause takes the line from the writer while it fills it: 8 bytes there and back took 0.20 us so on a
// Zen 4, and 0.15 with it. Any thread.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

}  // namespace verbena
