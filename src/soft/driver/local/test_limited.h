// SPDX-License-Identifier: Apache-2.0
// A process with few descriptors left.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "soft/driver/descriptor.h"

namespace verbena::soft::local {

// So many descriptors open that the next one is where a limit's last quarter begins, or is in it, or beyond the limit.
class Limited {
 public:
  Limited() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    for (int i = 0; i < 40; ++i) some_.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  ~Limited() { lift(); }
  // `left` more are in front of the last quarter.
  void leave_before_the_last_quarter(rlim_t left) { limit_to((last() + 1 + left) * 4 / 3); }
  void leave_the_last_quarter() { limit_to(last() + 4); }
  void leave_none() { limit_to(last() + 1); }
  void leave_none_that_is_given_up() { limit_to(3); }
  void lift() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlim_t last() const { return static_cast<rlim_t>(some_.back().get()); }
  void limit_to(rlim_t most) {
    const rlimit limit{most, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  rlimit before_{};
  std::vector<Descriptor> some_;
};

}  // namespace verbena::soft::local
