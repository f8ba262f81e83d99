// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/sleep.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>

#include "soft/driver/descriptor.h"
#include "soft/driver/test_forbidden_call.h"

namespace verbena::soft::sleeping {
namespace {

struct Set {
  Set() { EXPECT_TRUE(try_watch(set.get(), counter.get(), kWake)); }
  int wait(std::optional<Duration> most) const { return wait_on(set.get(), events(), most); }
  static std::span<epoll_event> events() {
    static std::array<epoll_event, 8> all;
    return all;
  }

  Descriptor counter{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  Descriptor set{::epoll_create1(EPOLL_CLOEXEC)};
};

bool waits_as_it_should() {
  const Set some;
  if (some.wait(Duration::microseconds(100)) != 0) return false;
  signal(some.counter.get());
  if (some.wait(Duration::seconds(100)) != 1 || Set::events()[0].data.u32 != kWake) return false;
  if (some.wait(std::nullopt) != 1) return false;
  drain(some.counter.get());
  return some.wait(Duration{1}) == 0;
}

TEST(Sleep, ends_with_what_is_readable_or_with_its_time) { EXPECT_TRUE(waits_as_it_should()); }

TEST(Sleep, does_without_the_newest_call) {
  for (const int error : {ENOSYS, EPERM}) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(!forbid(SYS_epoll_pwait2, error) ? 77 : waits_as_it_should() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << kNothingForbidden;
    EXPECT_EQ(WEXITSTATUS(status), 0) << error;
  }
}

}  // namespace
}  // namespace verbena::soft::sleeping
