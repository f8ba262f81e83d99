// SPDX-License-Identifier: Apache-2.0
// Memory that may not be there. The user's memory can be unmapped at any time; a device that meets such a page must go
// on, as a NIC does. What runs under the guard and faults (SIGSEGV, SIGBUS) ends there, and the caller is told.
//
// The price is one saved context per call: some nanoseconds, no system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/sanitizer.h"

#if defined(__x86_64__) && !defined(VERBENA_THREAD_SANITIZER) && !defined(VERBENA_ADDRESS_SANITIZER)
#define VERBENA_GUARDED_PLACES 1
#endif

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

// Single words are for where it costs no more than the access: a table names the instructions, by which their faults
// are known.
#ifdef VERBENA_GUARDED_PLACES
inline constexpr bool kCopiesWords = true;

// 8 bytes; if they are aligned by one access, an acquire or a release. False: as run(). See shared_word.h.
[[nodiscard]] inline bool load_word(const std::byte* from, std::uint64_t& value) {
  std::uint64_t loaded;
  asm volatile inline goto(
      "1: movq (%1), %0\n"
      "2:\n"
      ".pushsection verbena_guarded, \"aR?\"\n"
      ".balign 4\n"
      ".long 1b - .\n"
      ".long 2b - .\n"
      ".long %l[gone] - .\n"
      ".popsection\n"
      : "=r"(loaded)
      : "r"(from)
      : "memory"
      : gone);
  asm("");  // g++ 12 mistakes the value where paths meet, and drops it where it is unused but for `volatile`
  value = loaded;
  return true;
gone:
  return false;
}
[[nodiscard]] inline bool store_word(std::byte* to, std::uint64_t value) {
  asm inline goto(
      "1: movq %1, (%0)\n"
      "2:\n"
      ".pushsection verbena_guarded, \"aR?\"\n"
      ".balign 4\n"
      ".long 1b - .\n"
      ".long 2b - .\n"
      ".long %l[gone] - .\n"
      ".popsection\n"
      :
      : "r"(to), "r"(value)
      : "memory"
      : gone);
  return true;
gone:
  return false;
}
#else
inline constexpr bool kCopiesWords = false;
#endif

// Copies 8 bytes; where kCopiesWords, by one access each if they are aligned, and as a release. False: as run().
[[nodiscard]] inline bool copy_word(std::byte* to, const std::byte* from) {
#ifdef VERBENA_GUARDED_PLACES
  std::uint64_t word = 0;
  return load_word(from, word) && store_word(to, word);
#else
  return run([=] { std::memcpy(to, from, 8); });
#endif
}

}  // namespace verbena::fault_guard
