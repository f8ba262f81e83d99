// SPDX-License-Identifier: Apache-2.0
// What the system has none left of: pages for the memory of a peer, which faults at the first touch, and watches for a
// user's sockets; and what a peer says at that very moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "base/fault_guard.h"
#include "soft/driver/local/test_side.h"

namespace {
bool shared_memory_is_lost = false;
bool watches_are_used_up = false;
std::function<void()> before_a_shutdown;
}  // namespace

// The linker puts these in the places of mmap(), epoll_ctl() and shutdown() (--wrap), for the whole program.
extern "C" void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);
extern "C" void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  void* const memory = __real_mmap(at, bytes, protection, flags, file, offset);
  if (shared_memory_is_lost && memory != MAP_FAILED && (flags & MAP_SHARED) != 0)
    ::mprotect(memory, bytes, PROT_NONE);
  return memory;
}
extern "C" int __real_epoll_ctl(int set, int operation, int file, epoll_event* event);
extern "C" int __wrap_epoll_ctl(int set, int operation, int file, epoll_event* event) {
  if (!watches_are_used_up || operation != EPOLL_CTL_ADD) return __real_epoll_ctl(set, operation, file, event);
  errno = ENOSPC;
  return -1;
}
extern "C" int __real_shutdown(int socket, int how);
extern "C" int __wrap_shutdown(int socket, int how) {
  if (before_a_shutdown) std::exchange(before_a_shutdown, nullptr)();
  return __real_shutdown(socket, how);
}

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using verbena::local::Answer;
using verbena::local::Endpoint;
using verbena::local::Hello;
using verbena::local::layout_of;

TEST(HubFault, memory_that_is_lost_at_the_first_touch_ends_its_queue_pair_and_nothing_more) {
  fault_guard::install();
  Side keeper(1), other(2);
  const Endpoint lost{address(9), Qpn{4242}};
  auto peer = reach({keeper.endpoint().gid, 0});
  ASSERT_TRUE(peer && *peer);
  const auto segment = Segment::create(layout_of(Hub::kRingCapacity).bytes);
  ASSERT_TRUE(segment);
  ASSERT_TRUE((**peer).send(Hello{Hub::kRingCapacity, lost, keeper.endpoint()}, segment->descriptor()));
  shared_memory_is_lost = true;
  static_cast<void>(keeper.to_rtr(lost));
  shared_memory_is_lost = false;
  EXPECT_EQ(keeper.qp.queues->state(), QueuePairState::Error);
  EXPECT_TRUE((**peer).has_hung_up());
  keeper.turn();
  keeper.use_another();
  keeper.connect(other.endpoint());
  other.connect(keeper.endpoint());
  keeper.turn(), other.turn();
  EXPECT_TRUE(keeper.on_rings() && other.on_rings());
}

TEST(HubFault, whose_end_nobody_would_hear_of_goes_by_packets) {
  for (const bool asks : {true, false}) {
    Side keeper(1), other(2);
    if (!asks) other.connect(keeper.endpoint());
    watches_are_used_up = true;
    keeper.connect(other.endpoint());
    watches_are_used_up = false;
    EXPECT_TRUE(keeper.on_packets()) << keeper.explained();
    EXPECT_THAT(keeper.explained(), HasSubstr("fs.epoll.max_user_watches"));
    if (asks) other.connect(keeper.endpoint());
    keeper.turn(), other.turn();
    EXPECT_TRUE(other.on_packets()) << other.explained();
    keeper.use_another(), other.use_another();
    keeper.connect(other.endpoint());
    other.connect(keeper.endpoint());
    keeper.turn(), other.turn();
    EXPECT_TRUE(keeper.on_rings() && other.on_rings());
  }
}

TEST(HubFault, a_region_whose_loan_nobody_would_hear_of_is_written_through_the_ring) {
  Side keeper(1), other(2);
  keeper.connect(other.endpoint());
  other.connect(keeper.endpoint());
  for (int i = 0; i < 4; ++i) keeper.turn(), other.turn();
  watches_are_used_up = true;
  keeper.write(1, other, 64);
  for (int i = 0; i < 8; ++i) keeper.turn(), other.turn();
  watches_are_used_up = false;
  EXPECT_EQ(keeper.completions().size(), 1u);
}

TEST(HubFault, where_nobody_would_hear_of_asks_there_is_no_hub) {
  watches_are_used_up = true;
  const auto opened = Hub::open({.address = address(1)});
  watches_are_used_up = false;
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().to_string(), HasSubstr("fs.epoll.max_user_watches"));
  EXPECT_TRUE(Hub::open({.address = address(1)}));
}

TEST(HubFault, who_speaks_while_it_is_hung_up_on_for_its_silence_is_answered) {
  Side keeper(1);
  const auto segment = Segment::create(layout_of(Hub::kRingCapacity).bytes);
  auto peer = reach({keeper.endpoint().gid, 0});
  ASSERT_TRUE(segment && peer && *peer);
  bool spoke = false;
  before_a_shutdown = [&] {
    const Endpoint self{address(3), Qpn{50}};
    spoke = (**peer).send(Hello{Hub::kRingCapacity, self, keeper.endpoint()}, segment->descriptor()).has_value();
  };
  watches_are_used_up = true;
  keeper.turn();
  watches_are_used_up = false;
  EXPECT_TRUE(spoke);
  const auto answer = (**peer).try_receive_answer();
  ASSERT_TRUE(answer && *answer) << "it would wait for an answer";
  EXPECT_EQ(**answer, Answer::Roce);
}

}  // namespace
}  // namespace verbena::soft::local
