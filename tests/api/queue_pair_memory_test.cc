// SPDX-License-Identifier: Apache-2.0
// What a queue pair that has nothing to do costs: all that the device takes from the heap for it.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "test_pair.h"

namespace {
std::atomic<std::size_t> heap_bytes{0};  // in use, with what the allocator adds to each piece
constexpr std::size_t kOverhead = sizeof(std::size_t);
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  heap_bytes += ::malloc_usable_size(memory) + kOverhead;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) heap_bytes -= ::malloc_usable_size(memory) + kOverhead;
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace verbena {
namespace {

using test::must;

constexpr std::size_t kQueuePairs = 1000;
constexpr std::size_t kLimitBytes = 4096;

class QueuePairMemory : public ::testing::Test {
 protected:
  QueuePairMemory() {
    options.capabilities.max_send_requests = options.capabilities.max_receive_requests = 16;
    options.capabilities.max_send_segments = options.capabilities.max_receive_segments = 1;
    pairs.reserve(kQueuePairs);
    before = heap_bytes;
  }
  static Device open() {
    OpenOptions quiet;
    quiet.service_thread = false;
    quiet.path = PathChoice::Roce;  // the rings of a path within the host come on top
    return must(Device::open(quiet));
  }
  // Each with its neighbour.
  void make() {
    for (std::size_t i = 0; i < kQueuePairs; ++i)
      pairs.push_back(must(device.create_queue_pair(queue, options)));
    for (std::size_t i = 0; i < kQueuePairs; ++i) must(pairs[i].connect(pairs[i ^ 1].address()));
  }
  std::size_t bytes_each() const { return (heap_bytes - before) / kQueuePairs; }
  void send_and_receive(std::size_t from) {
    ASSERT_TRUE(pairs[from ^ 1].post_receive(ReceiveRequest{}));
    ASSERT_TRUE(pairs[from].post_send(SendRequest{}));
    for (int left = 2; left > 0;)
      if (const auto done = queue.poll_one()) {
        ASSERT_EQ(done->status, CompletionStatus::Success);
        --left;
      }
  }

  Device device = open();
  CompletionQueue queue = must(device.create_completion_queue(64));
  QueuePairOptions options;
  std::vector<QueuePair> pairs;
  std::size_t before = 0;
};

TEST_F(QueuePairMemory, idle_one_of_16_and_16_requests_takes_4_kib_at_most) {
  make();
  EXPECT_LE(bytes_each(), kLimitBytes);
  EXPECT_GT(bytes_each(), 16 * (sizeof(ScatterGather) * 2)) << "the queues at least";
  RecordProperty("bytes", static_cast<int>(bytes_each()));
}

TEST_F(QueuePairMemory, one_that_sent_and_received_takes_no_more) {
  make();
  for (std::size_t i = 0; i < kQueuePairs; ++i) send_and_receive(i);
  EXPECT_LE(bytes_each(), kLimitBytes);
}

TEST_F(QueuePairMemory, one_on_a_shared_receive_queue_takes_less) {
  make();
  const std::size_t with_own = bytes_each();
  pairs.clear();
  SharedReceiveQueue shared = must(device.create_shared_receive_queue());
  options.shared_receive_queue = &shared;
  before = heap_bytes;
  make();
  EXPECT_LE(bytes_each() + 16 * sizeof(ScatterGather), with_own);
  pairs.clear();
}

}  // namespace
}  // namespace verbena
