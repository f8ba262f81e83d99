// SPDX-License-Identifier: Apache-2.0
// For short programs: the value, or the error on stderr and the end.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "verbena/base/result.h"

inline void print_error(const verbena::Error& error) { std::fprintf(stderr, "%s\n", error.to_string().c_str()); }

template <class T>
T or_exit(verbena::Result<T> result) {
  if (!result) {
    print_error(result.error());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}
