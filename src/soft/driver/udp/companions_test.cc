// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/companions.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::soft::udp {
namespace {

// Does nothing until it is ended.
class Child {
 public:
  Child() : pid_(::fork()) {
    while (pid_ == 0) ::pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST(Companions, an_end_is_told_once_though_a_child_of_ours_has_its_descriptor) {
  const Descriptor events(::epoll_create1(EPOLL_CLOEXEC));
  Companions companions(events.get());
  Child watched;
  companions.watch(watched.pid());
  const Child heir;  // of all our descriptors
  watched.end();
  epoll_event event;
  ASSERT_EQ(::epoll_wait(events.get(), &event, 1, 10'000), 1);
  EXPECT_TRUE(companions.take_end(event.data.fd));
  EXPECT_EQ(::epoll_wait(events.get(), &event, 1, 0), 0);
}

}  // namespace
}  // namespace verbena::soft::udp
