// SPDX-License-Identifier: Apache-2.0
// What templates and braces refuse, with a word of why.
#include <array>

#include "verbena/verbena.h"

using namespace verbena;

#ifndef VERBENA_RIGHT_USE

void use(Operation& operation, const std::array<char, 64>& much) {
  operation.on_done([much](Operation&) { (void)much; });  // refused: capture less, by pointer
  operation.on_done([] {});                               // refused: is_invocable
  using Reference = Task<int&>;
  (void)sizeof(Reference);             // refused: return a pointer
  (void)ListenOptions{.port = 70000};  // refused: narrow
  (void)Duration{0.5};                 // refused: narrow
}

#else

void use(Operation& operation, const std::array<char, 64>& much) {
  operation.on_done([&much](Operation&) { (void)much; });
  using Pointer = Task<int*>;
  (void)sizeof(Pointer);
  (void)ListenOptions{.port = 7000};
  (void)Duration::milliseconds(500);
}

#endif
