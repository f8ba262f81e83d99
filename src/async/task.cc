// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/task.h"

#include <cstdio>
#include <cstdlib>

namespace verbena::detail {

void abort_on_bad_task_use(const char* what) {
  std::fprintf(stderr, "verbena: %s\n", what);
  std::abort();
}

}  // namespace verbena::detail
