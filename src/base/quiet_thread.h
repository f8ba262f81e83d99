// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/holdings.h"
#include "verbena/base/result.h"

namespace verbena {

// A thread on which no handler of the program runs for a signal sent to the process; only for what the thread itself
// does wrong. std::system_error: none can be made.
template <class F>
std::thread start_quiet_thread(F f) {
  struct Masked {
    sigset_t before;
    ~Masked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } masked;
  sigset_t all;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &masked.before);
  return std::thread(std::move(f));
}

// One that is joined. In a forked child it is not: there is nothing to be joined.
class QuietThread {
 public:
  QuietThread() = default;
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;
  ~QuietThread() {
    if (is_inherited()) holdings::abandon(std::make_shared<std::thread>(std::move(thread_)));
  }

  // Errors: ResourceExhausted.
  template <class F>
  Result<void> start(F f, const char* whose) {
    generation_ = holdings::generation();
    try {
      thread_ = start_quiet_thread(std::move(f));
    } catch (const std::system_error& error) {
      return Error(ErrorCode::ResourceExhausted, std::string("make the thread of ") + whose, error.code().value(),
                   ErrorDomain::Errno);
    }
    return {};
  }
  bool is_inherited() const { return thread_.joinable() && generation_ != holdings::generation(); }
  bool joinable() const { return thread_.joinable() && !is_inherited(); }
  void join() { thread_.join(); }

 private:
  std::uint64_t generation_ = 0;
  std::thread thread_;
};

}  // namespace verbena
