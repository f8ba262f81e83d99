// SPDX-License-Identifier: Apache-2.0
// What a thread meets that goes to another network, where this system lets it.
#pragma once

#include <fcntl.h>
#include <sched.h>

#include <cstdlib>

#include "soft/driver/descriptor.h"

namespace verbena::soft {

inline constexpr const char* kNoOtherNetwork = "no network can be made here";

// This thread is in a network of its own until the end of it.
class OtherNetwork {
 public:
  OtherNetwork()
      : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)),
        entered_(before_ && ::unshare(CLONE_NEWNET) == 0) {}
  ~OtherNetwork() {
    if (entered_ && ::setns(before_.get(), CLONE_NEWNET) != 0) std::abort();
  }
  OtherNetwork(const OtherNetwork&) = delete;
  OtherNetwork& operator=(const OtherNetwork&) = delete;

  bool is_entered() const { return entered_; }

 private:
  const Descriptor before_;
  const bool entered_;
};

}  // namespace verbena::soft
