// SPDX-License-Identifier: Apache-2.0
// Orders all that stands before it in a thread with all that follows, for words that threads or processes share.
//
// Where one side of a handshake comes rarely, it can fence for both: its heavy fence orders every thread that it
// reaches at some point, too. The side that comes often keeps the compiler from reordering, and no more.
//
// In this process membarrier(2) sees to that. For other processes it has a command as well, but passes by some of the
// processors that run them (fence.cc): so a heavy fence also waits until what they stored has left them, as x86's
// processors see to within microseconds. Others make no such promise, and have none between processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"

namespace verbena {

inline void full_fence() {
#ifdef VERBENA_THREAD_SANITIZER
  // The thread sanitizer knows no fence; on x86 any locked instruction is one.
  std::atomic<std::uint64_t> own{0};
  own.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Whose threads a heavy fence reaches: of all processes, those that asked for it.
enum class Reach : std::uint8_t { ThisProcess, AllProcesses };

// Whether this process can fence so, and such fences reach it: it asks for that when first called, which may take some
// milliseconds. False for good where the kernel has no such call, or forbids it. Any thread.
bool has_heavy_fences(Reach reach);
// Where has_heavy_fences(). One system call; of all processes, a fifth of a millisecond. Any thread.
void heavy_fence(Reach reach);

}  // namespace verbena
