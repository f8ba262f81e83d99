// SPDX-License-Identifier: Apache-2.0
// Orders all that stands before it in a thread with all that follows, for words that several processes share.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"

namespace verbena::local {

inline void full_fence() {
#ifdef VERBENA_THREAD_SANITIZER
  // The thread sanitizer knows no fence; on x86 any locked instruction is one.
  std::atomic<std::uint64_t> own{0};
  own.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace verbena::local
