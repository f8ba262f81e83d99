// SPDX-License-Identifier: Apache-2.0
#include "base/this_user.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena {
namespace {

TEST(ThisUser, is_who_runs_the_process_and_nobody_else) {
  EXPECT_TRUE(is_this_user(::geteuid()));
  EXPECT_FALSE(is_this_user(::geteuid() + 1));
}

TEST(ThisUser, nobody_is_where_all_users_have_one_number) {
  constexpr int kCannot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(kCannot);
    ::_exit(is_this_user(::geteuid()) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "this system lets nobody make namespaces";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace verbena
