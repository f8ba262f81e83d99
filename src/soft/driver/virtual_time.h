// SPDX-License-Identifier: Apache-2.0
// Time that is not the machine's: a simulated world's.
#pragma once

#include "verbena/base/time.h"

namespace verbena::soft {

class VirtualTime {
 public:
  virtual ~VirtualTime() = default;
  virtual Instant now() const = 0;
  // Whoever calls has nothing to do before then: the world goes on. May return early.
  virtual void wait(Instant until) = 0;
};

}  // namespace verbena::soft
