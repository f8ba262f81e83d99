// SPDX-License-Identifier: Apache-2.0
// The size of a file of memory.
#pragma once

#include <cstdint>

namespace verbena {

// ftruncate(); false: errno says why. Beyond the limit of this process (RLIMIT_FSIZE) that is EFBIG, and not the signal
// that would end the program.
bool set_file_size(int file, std::uint64_t bytes);

}  // namespace verbena
