// SPDX-License-Identifier: Apache-2.0
// Whether whom the kernel names by a number is the user this process runs as.
#pragma once

#include <sys/types.h>

namespace verbena {

// A user namespace, as a container has one, knows few users. All others have one number there, "nobody's",
// and nobody with that number is known to be anybody.
bool is_this_user(uid_t uid);
// Whether the number is one user's.
bool is_one_user(uid_t uid);

}  // namespace verbena
