// SPDX-License-Identifier: Apache-2.0
// Broken invariants abort, in release too, and so does use that no error can be returned for. Never assert on what a
// peer sent.
#pragma once

namespace verbena {
[[noreturn, gnu::cold]] void assertion_failed(const char* expression, const char* file, int line);
[[noreturn, gnu::cold]] void misused(const char* words);
}  // namespace verbena

#define VERBENA_ASSERT(expression)                            \
  (__builtin_expect(!!(expression), 1) ? static_cast<void>(0) \
                                       : ::verbena::assertion_failed(#expression, __FILE__, __LINE__))
// What the program must not do; `words` tell it what it did.
#define VERBENA_REQUIRE(expression, words) \
  (__builtin_expect(!!(expression), 1) ? static_cast<void>(0) : ::verbena::misused(words))
