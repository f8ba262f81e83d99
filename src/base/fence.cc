// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace verbena {

namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

// No guard that one thread holds: a child forked meanwhile would wait for it for ever. Asking twice does no harm.
bool has_heavy_fences() {
  enum : int { kUnknown, kNo, kYes };
  static constinit std::atomic<int> known{kUnknown};
  int has = known.load(std::memory_order_relaxed);
  if (has == kUnknown) {
    const bool can =
        membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    has = can ? kYes : kNo;
    known.store(has, std::memory_order_relaxed);
  }
  return has == kYes;
}

void heavy_fence() {
  full_fence();
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) || membarrier(MEMBARRIER_CMD_GLOBAL)) return;
  // Forbidden since, by a filter the program installed. No processor keeps a store to itself as long as this.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  full_fence();
}

}  // namespace verbena
