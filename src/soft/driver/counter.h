// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace verbena::soft {

struct NamedCounter {
  std::string name;
  std::uint64_t value = 0;
};

}  // namespace verbena::soft
