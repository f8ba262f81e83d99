// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace verbena {

namespace {

#ifdef __x86_64__
constexpr bool kStoresLeaveSoon = true;
#else
constexpr bool kStoresLeaveSoon = false;
#endif

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool enlist(Reach reach) {
  if (reach == Reach::ThisProcess)
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return kStoresLeaveSoon && membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace

// No guard that one thread holds: a child forked meanwhile would wait for it for ever. Asking twice does no harm.
bool has_heavy_fences(Reach reach) {
  enum : int { kUnknown, kNo, kYes };
  static constinit std::array<std::atomic<int>, 2> known{kUnknown, kUnknown};
  std::atomic<int>& found = known[static_cast<std::size_t>(reach)];
  int has = found.load(std::memory_order_relaxed);
  if (has == kUnknown) {
    has = enlist(reach) ? kYes : kNo;
    found.store(has, std::memory_order_relaxed);
  }
  return has == kYes;
}

// Of other processes the kernel notes beside each processor whether who runs there asked for fences, and does so when
// it switches to another address space. When a thread ends it takes the note away, and to go on with another thread of
// that process is no switch: such a processor is passed by until somebody else ran there (Linux 6.18). But a store that
// is done and has not left its processor is one of some seventy, each at most a microsecond away from its place.
void heavy_fence(Reach reach) {
  using std::chrono::microseconds;
  full_fence();
  const bool own = reach == Reach::ThisProcess;
  const bool told = membarrier(own ? MEMBARRIER_CMD_PRIVATE_EXPEDITED : MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  if (own && told) return;
  if (!told && membarrier(MEMBARRIER_CMD_GLOBAL)) return;
  // Untold: forbidden since, by a filter of the program.
  std::this_thread::sleep_for(microseconds(told ? 200 : 10'000));
  full_fence();
}

}  // namespace verbena
