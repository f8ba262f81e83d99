// SPDX-License-Identifier: Apache-2.0
// Broken invariants abort, in release too. Never assert on what a peer sent.
#pragma once

namespace verbena {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}  // namespace verbena

#define VERBENA_ASSERT(expression)                            \
  (__builtin_expect(!!(expression), 1) ? static_cast<void>(0) \
                                       : ::verbena::assertion_failed(#expression, __FILE__, __LINE__))
