// SPDX-License-Identifier: Apache-2.0
// Zeroed memory from the system, in the largest pages it has.
#pragma once

#include <cstddef>
#include <span>

#include "verbena/device/memory_region.h"

namespace verbena::page_allocation {

struct Pages {
  std::byte* data = nullptr;  // null: there was no room
  std::size_t mapped = 0;     // bytes, what free() takes
  PageKind kind = PageKind::Normal;
  int file = -1;  // a sealed memfd that holds exactly this; -1: none
};

Pages allocate(std::size_t bytes);
// In a file of its own, for others to map, which a forked child does not have; as above when the process has
// half of the descriptors it may have, or no such file can be made.
Pages allocate_to_share(std::size_t bytes);
void free(const Pages& pages);

// Whether there is memory at all of these addresses at this moment. Costs a walk over mappings, not pages.
bool is_mapped(std::span<const std::byte> memory);

}  // namespace verbena::page_allocation
