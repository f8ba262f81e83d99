// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace verbena {

// A thread on which no handler of the program runs for a signal sent to the process; only for what the thread itself
// does wrong.
template <class F>
std::thread start_quiet_thread(F f) {
  sigset_t all, before;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(f));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace verbena
