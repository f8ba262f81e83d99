// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "verbena/base/inner.h"

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

void detail::abort_on_moved_from(const char* name) {
  const bool vowel = std::string_view("aeiouAEIOU").find(name[0]) != std::string_view::npos;
  misused((std::string(vowel ? "uses an " : "uses a ") + name + " that was moved from").c_str());
}

}  // namespace verbena
