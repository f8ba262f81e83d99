// SPDX-License-Identifier: Apache-2.0
// The environment variables this library looks at, so that a program need not be changed to look into it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace verbena {

// A program that runs with more rights than its user (set-user-ID) sees none of them.
struct EnvironmentVariable {
  std::string name{};
  std::string meaning{};
  std::string default_text{};          // what holds when it is not set or empty
  std::optional<std::string> value{};  // as set and not empty
};

// All of them, as they are set for this process. Device::open() reads them again each time.
std::vector<EnvironmentVariable> environment();

}  // namespace verbena
