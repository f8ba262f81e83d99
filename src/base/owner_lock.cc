// SPDX-License-Identifier: Apache-2.0
#include "base/owner_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

void OwnerLock::wait_and_lock() {
  std::uint32_t word = word_.fetch_add(kWaiter) + kWaiter;
  for (;;) {
    if ((word & kHeld) == 0) {
      if (word_.compare_exchange_weak(word, word - kWaiter + kHeld)) return;
      continue;
    }
    ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, word, nullptr, nullptr, 0);  // not when it changed meanwhile
    word = word_.load();
  }
}

// It looks for itself whether another was faster, who then wakes the next.
void OwnerLock::wake_one() { ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

}  // namespace verbena
