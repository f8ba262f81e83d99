// SPDX-License-Identifier: Apache-2.0
// Orders all that stands before it in a thread with all that follows, for words that several processes share.
//
// Where one side of a handshake comes rarely, it can fence for both: its heavy fence makes every processor that runs a
// thread of a process that asked for it fence as well, at some point of that thread (membarrier(2), expedited). The
// side that comes often keeps the compiler from reordering, and no more.
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

// Whether this process can fence heavily, and heavy fences reach it: it asks for that when first called, which may take
// some milliseconds. False for good where the kernel has no such call, or forbids it. Any thread.
bool has_heavy_fences();
// Where has_heavy_fences(). One system call. Any thread.
void heavy_fence();

}  // namespace verbena
