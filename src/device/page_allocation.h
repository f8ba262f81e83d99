// SPDX-License-Identifier: Apache-2.0
// Zeroed memory from the system, in the largest pages it has.
#pragma once

#include <cstddef>

#include "verbena/device/memory_region.h"

namespace verbena::page_allocation {

struct Pages {
  std::byte* data = nullptr;  // null: there was no room
  std::size_t mapped = 0;     // bytes, what free() takes
  PageKind kind = PageKind::Normal;
};

Pages allocate(std::size_t bytes);
void free(std::byte* data, std::size_t mapped);

}  // namespace verbena::page_allocation
