// SPDX-License-Identifier: Apache-2.0
#include "base/fault_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#ifdef VERBENA_GUARDED_PLACES
// What the table has. Distances, each from the place where it stands.
struct GuardedPlace {
  std::int32_t begin, end, way_out;
};
// The linker's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
extern const GuardedPlace __start_verbena_guarded[] __attribute__((visibility("hidden"), weak));
extern const GuardedPlace __stop_verbena_guarded[] __attribute__((visibility("hidden"), weak));
}
// NOLINTEND(readability-identifier-naming)
#endif

namespace verbena::fault_guard {

namespace {

// Where run() comes back to. What the compiler brings saves three words, sigsetjmp() all registers; sanitizers follow
// only that one.
#ifdef VERBENA_GUARDED_PLACES
struct Landing {
  Landing* outer;
  void* words[5];
};
#define VERBENA_LAND(here) __builtin_setjmp((here).words)
[[noreturn]] void jump_to(Landing& there) { __builtin_longjmp(there.words, 1); }
#else
struct Landing {
  Landing* outer;
  sigjmp_buf words;
};
#define VERBENA_LAND(here) sigsetjmp((here).words, 0)
[[noreturn]] void jump_to(Landing& there) { ::siglongjmp(there.words, 1); }
#endif

// Where this thread lands. Read by a signal handler: of the kind that needs no allocation when first touched.
__attribute__((tls_model("initial-exec"))) thread_local constinit Landing* landing = nullptr;

struct sigaction previous_segv;
struct sigaction previous_bus;

const struct sigaction& previous(int number) { return number == SIGBUS ? previous_bus : previous_segv; }

// The fault is not ours. Without a handler before us the instruction runs again and the default takes its course.
void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = previous(number);
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;  // a fault cannot be ignored, what is sent can
  struct sigaction as_usual {};
  as_usual.sa_handler = SIG_DFL;
  ::sigaction(number, &as_usual, nullptr);
  if (info->si_code <= 0) ::raise(number);  // sent by somebody: it would not come again
}

#ifdef VERBENA_GUARDED_PLACES
std::uintptr_t place_at(const std::int32_t& distance) {
  return reinterpret_cast<std::uintptr_t>(&distance) + static_cast<std::uintptr_t>(std::intptr_t{distance});
}

// A thread that stopped in one of the places goes on at its way out. False: it stopped elsewhere.
bool leave_place(void* context) {
  greg_t& at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  const auto now = static_cast<std::uintptr_t>(at);
  for (const GuardedPlace* place = __start_verbena_guarded; place != __stop_verbena_guarded; ++place) {
    if (now < place_at(place->begin) || now >= place_at(place->end)) continue;
    at = static_cast<greg_t>(place_at(place->way_out));
    return true;
  }
  return false;
}
#else
bool leave_place(void*) { return false; }
#endif

// A signal that somebody sent is no fault.
void handle(int number, siginfo_t* info, void* context) {
  if (info->si_code > 0 && leave_place(context)) return;
  Landing* const there = landing;
  if (there == nullptr || info->si_code <= 0) return pass_on(number, info, context);
  landing = there->outer;
  // The jump does not bring back which signals were blocked before the fault; saving that beforehand would cost a
  // system call each time.
  ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
  jump_to(*there);
}

void install_one(int number, struct sigaction& before) {
  struct sigaction ours {};
  ours.sa_sigaction = handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;  // on the stack for signals where a thread has one
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(number, nullptr, &before);
  ::sigaction(number, &ours, nullptr);
}

bool is_ours(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle;
}

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    install_one(SIGSEGV, previous_segv);
    install_one(SIGBUS, previous_bus);
  });
}

bool is_installed() { return is_ours(SIGSEGV) && is_ours(SIGBUS); }

// The signal fences keep the landing where it is, before and after what it is for.
bool detail::run(void (*f)(void*), void* argument) {
  Landing here;
  here.outer = landing;
  if (VERBENA_LAND(here) != 0) return false;  // who jumped here has put the outer one back
  landing = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  f(argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  landing = here.outer;
  return true;
}

}  // namespace verbena::fault_guard
