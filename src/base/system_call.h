// SPDX-License-Identifier: Apache-2.0
// System calls of the way that messages take, made so that the returns after them are predicted.
//
// A processor predicts where a function returns to by the calls it remembers. After a system call those are the
// kernel's, or a hypervisor's under it: what returns first is sent to an address that is none of the process's. That
// costs it hundreds of cycles, and the next system call more. So what it remembers is overwritten before. Intel's keep
// most of the process's, and would lose by it. ADR 0008 has the figures.
#pragma once

#include <cerrno>
#include <type_traits>

namespace verbena {

// By way of the C library where the kernel is not to be called past it.
bool calls_kernel_itself();
// Whether that function is the C library's: a sanitizer, or a library that was loaded before, may have put its own in
// its place.
bool is_of_c_library(const void* function);

// Whether this processor is one that is helped by that.
extern "C" [[gnu::visibility("hidden")]] bool verbena_fills_returns;
// The kernel's answer: what the call yields, or an error number below zero.
extern "C" [[gnu::visibility("hidden")]] long verbena_call_kernel(long number, long, long, long, long, long, long);

// `function` is the C library's way to make that call, `number` the kernel's name for it. What it yields, or -1 and
// errno. Unlike `function`, no cancellation point.
template <class Value, class... Parameters>
Value system_call(long number, Value (*function)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  static_assert(sizeof...(Parameters) <= 6);
  if (!calls_kernel_itself()) return function(arguments...);
  const long words[6] = {
      [](auto argument) {
        if constexpr (std::is_pointer_v<decltype(argument)>) return reinterpret_cast<long>(argument);
        else return static_cast<long>(argument);
      }(arguments)...};
  const long answer = verbena_call_kernel(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  if (answer >= 0) return static_cast<Value>(answer);
  errno = static_cast<int>(-answer);
  return -1;
}

}  // namespace verbena
