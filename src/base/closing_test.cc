// SPDX-License-Identifier: Apache-2.0
#include "base/closing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/sanitizer.h"
#include "base/test_lingering.h"

#ifdef VERBENA_THREAD_SANITIZER
// A child starts a thread although its parent had several.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace verbena::closing {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

bool comes_true(const std::function<bool()>& question) {
  for (int i = 0; i < 60'000 && !question(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return question();
}

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

TEST(Closing, closes_soon) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  elsewhere(ends[0]);
  EXPECT_TRUE(comes_true([&] { return !is_open(ends[0]); }));
  ::close(ends[1]);
}

// The last of them waits behind the first.
TEST(Closing, says_when_it_is_behind_and_when_no_more) {
  EXPECT_FALSE(is_behind());
  std::vector<Lingering> all(kMost);
  for (const Lingering& one : all) elsewhere(one.fd());
  EXPECT_TRUE(is_behind());
  const int told = caught_up();
  ASSERT_GE(told, 0);
  EXPECT_FALSE(is_readable(told));
  EXPECT_TRUE(is_open(all.back().fd()));
  const int last = all.back().fd();
  all.clear();
  EXPECT_TRUE(comes_true([&] { return is_readable(told); }));
  EXPECT_TRUE(comes_true([&] { return !is_open(last); }));
  EXPECT_FALSE(is_behind());
  ::close(told);
  const int at_once = caught_up();
  EXPECT_TRUE(is_readable(at_once));
  ::close(at_once);
}

TEST(Closing, goes_on_in_a_child_that_is_forked_meanwhile) {
  std::vector<Lingering> all(2);
  for (const Lingering& one : all) elsewhere(one.fd());
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) ::_exit(2);
    elsewhere(ends[0]);
    ::_exit(comes_true([&] { return !is_open(ends[0]); }) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const int last = all.back().fd();
  all.clear();
  EXPECT_TRUE(comes_true([&] { return !is_open(last); }));
}

}  // namespace
}  // namespace verbena::closing
