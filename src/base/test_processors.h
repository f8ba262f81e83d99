// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <cstddef>
#include <thread>

namespace verbena::testing {

// Where a thread of a process has ended, its other threads go on in a processor whose notes of the process are gone.
inline void end_a_thread_on_each_processor() {
  cpu_set_t may;
  if (::sched_getaffinity(0, sizeof may, &may) != 0) return;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &may)) continue;
    std::thread([cpu] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ::sched_setaffinity(0, sizeof one, &one);
    }).join();
  }
}

}  // namespace verbena::testing
