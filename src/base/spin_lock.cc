// SPDX-License-Identifier: Apache-2.0
#include "base/spin_lock.h"

#include <thread>

namespace verbena {

void SpinLock::wait() {
  for (int spins = 0; flag_.load(std::memory_order_relaxed); ++spins) {
    if (spins < 64)
      __builtin_ia32_pause();
    else
      std::this_thread::yield();
  }
}

}  // namespace verbena
