// SPDX-License-Identifier: Apache-2.0
// What a test cannot go on without.
#pragma once

#include <stdexcept>
#include <utility>

#include "verbena/base/result.h"

namespace verbena::tools {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  return std::move(*result);
}

}  // namespace verbena::tools
