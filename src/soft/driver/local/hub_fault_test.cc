// SPDX-License-Identifier: Apache-2.0
// Memory of a peer that faults at the first touch, as where the system has none left for its pages.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/fault_guard.h"
#include "soft/driver/local/test_side.h"

namespace {
bool shared_memory_is_lost = false;
}

// The linker puts it in the place of mmap() (--wrap), for the whole program.
extern "C" void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);
extern "C" void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  void* const memory = __real_mmap(at, bytes, protection, flags, file, offset);
  if (shared_memory_is_lost && memory != MAP_FAILED && (flags & MAP_SHARED) != 0)
    ::mprotect(memory, bytes, PROT_NONE);
  return memory;
}

namespace verbena::soft::local {
namespace {

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

}  // namespace
}  // namespace verbena::soft::local
