// SPDX-License-Identifier: Apache-2.0
// Which failures to connect may pass.
#pragma once

#include "verbena/base/error.h"

namespace verbena {

// Whether connecting once more may succeed.
bool is_curable(const Error& error);

}  // namespace verbena
