// SPDX-License-Identifier: Apache-2.0
// Memory that may not be there. The user's memory can be unmapped at any time; a device that meets such a page must go
// on, as a NIC does. What runs under the guard and faults (SIGSEGV, SIGBUS) ends there, and the caller is told.
//
// The price is one saved context per call: some nanoseconds, no system call.
#pragma once

#include <type_traits>

namespace verbena::fault_guard {

// Installs the signal handlers, once per process. Faults outside run() go to the handlers that were there before, or
// end the process as they would have. Until then, and after a program put handlers of its own on top that do not pass
// faults on, run() guards nothing. Any thread.
void install();
// Whether a fault now would reach us.
bool is_installed();

namespace detail {
bool run(void (*f)(void*), void* argument);
}

// Calls f(). False when it touched memory that is not there, or not there for this access: then it was left in the
// middle. f has no destructors to run and changes nothing but memory. It may call run() itself: a fault ends the
// innermost.
template <class F>
[[nodiscard]] bool run(F&& f) {
  using Plain = std::remove_reference_t<F>;
  static_assert(std::is_trivially_destructible_v<Plain>);
  return detail::run([](void* plain) { (*static_cast<Plain*>(plain))(); },
                     const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace verbena::fault_guard
