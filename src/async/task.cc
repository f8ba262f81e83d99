// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/task.h"

#include "base/assert.h"

namespace verbena::detail {

void abort_on_bad_task_use(const char* what) { misused(what); }

}  // namespace verbena::detail
