// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "base/holdings.h"

namespace verbena {

// A thread on which no handler of the program runs for a signal sent to the process; only for what the thread itself
// does wrong. In a forked child it is not: there is nothing to be joined.
class QuietThread {
 public:
  QuietThread() = default;
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;
  ~QuietThread() {
    if (is_inherited()) holdings::abandon(std::make_shared<std::thread>(std::move(thread_)));
  }

  template <class F>
  void start(F f) {
    sigset_t all, before;
    ::sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) ::sigdelset(&all, own);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    generation_ = holdings::generation();
    thread_ = std::thread(std::move(f));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bool is_inherited() const { return thread_.joinable() && generation_ != holdings::generation(); }
  bool joinable() const { return thread_.joinable() && !is_inherited(); }
  void join() { thread_.join(); }

 private:
  std::uint64_t generation_ = 0;
  std::thread thread_;
};

}  // namespace verbena
