// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace verbena {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "verbena: broken invariant %s at %s:%d. This is a bug in Verbena, please report it.\n",
               expression, file, line);
  std::abort();
}

void misused(const char* words) {
  std::fprintf(stderr, "verbena: the program %s.\n", words);
  std::abort();
}

}  // namespace verbena
