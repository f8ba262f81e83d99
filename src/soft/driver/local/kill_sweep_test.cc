// SPDX-License-Identifier: Apache-2.0
// A process that dies at any instruction of what it does with a ring. It is made to go one instruction at a time; what
// stands in shared memory after each is what its death there would leave.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "soft/driver/local/segment.h"
#include "soft/driver/test_stepped_process.h"
#include "soft/local/ring.h"
#include "soft/local/wake.h"

namespace verbena::soft::local {
namespace {

using verbena::local::kWriterBytes;
using verbena::local::Record;
using verbena::local::RingConsumer;
using verbena::local::RingMemory;
using verbena::local::RingProducer;
using verbena::local::RingState;
using verbena::local::Sleeper;
using verbena::local::WakeMemory;
using verbena::local::Waker;

constexpr std::uint32_t kSweptCapacity = 1024;
constexpr std::uint64_t kBatch = 3;
constexpr int kKillPoints = 10'000;
constexpr std::uint64_t kRecords = 60;  // at least: the ring goes round some times

// What both sides know of record `number`: its length, and its payload, which is the number again and again.
std::uint32_t length_of(std::uint64_t number) { return static_cast<std::uint32_t>(number % 7) * 24; }

// Reserves, fills and, at the end of a batch, publishes one record. False when there is no room.
bool produce(RingProducer& ring, std::uint64_t number) {
  const auto at = ring.try_reserve(1, length_of(number));
  if (!at) return false;
  for (std::uint32_t i = 0; i < length_of(number); i += 8)
    std::memcpy(ring.memory().data() + *at + i, &number, sizeof number);
  if (number % kBatch == kBatch - 1) ring.publish();
  return true;
}

bool is_record(RingConsumer& ring, const Record& record, std::uint64_t number) {
  if (record.payload_bytes != length_of(number)) return false;
  for (std::uint32_t i = 0; i < record.payload_bytes; i += 8)
    if (std::memcmp(ring.memory().data() + record.offset + i, &number, sizeof number) != 0) return false;
  return true;
}

// Takes all there is. False when something is not what comes next.
bool consume(RingConsumer& ring, std::uint64_t& number) {
  while (const auto record = ring.peek()) {
    if (!is_record(ring, *record, number)) return false;
    ring.pop();
    ++number;
  }
  ring.release();
  return true;
}

class KillSweep : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Segment::create(64 * 1024);
    ASSERT_TRUE(made) << made.error().to_string();
    segment_ = std::move(*made);
    // The child shall have it, as another process would by mapping it.
    ASSERT_EQ(::madvise(segment_.memory().data(), segment_.memory().size(), MADV_DOFORK), 0);
  }
  RingMemory ring() const { return {segment_.memory().data() + kWriterBytes, kSweptCapacity}; }
  WakeMemory wake() const { return WakeMemory(segment_.memory().data()); }
  void clear() { std::memset(segment_.memory().data(), 0, segment_.memory().size()); }

 private:
  Segment segment_;
};

int produce_for_ever(RingMemory memory, WakeMemory wake) {
  RingProducer ring(memory);
  Waker waker(wake);
  std::uint64_t signals = 0;
  for (std::uint64_t number = 0; ring.state() == RingState::Open;) {
    if (!produce(ring, number)) continue;
    if (++number % kBatch == 0 && waker.must_wake()) ++signals;
  }
  return static_cast<int>(signals % 2);
}

int consume_for_ever(RingMemory memory, WakeMemory wake) {
  RingConsumer ring(memory);
  Sleeper sleeper(wake);
  for (std::uint64_t number = 0; consume(ring, number);) {
    sleeper.announce();
    sleeper.withdraw();
  }
  return 1;
}

TEST_F(KillSweep, F16_a_producer_that_dies_at_any_instruction_leaves_whole_batches) {
  SteppedProcess child([this] { return produce_for_ever(ring(), wake()); });
  if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
  RingConsumer survivor(ring());
  Sleeper sleeper(wake());
  sleeper.announce();
  std::uint64_t number = 0;
  for (int point = 0; point < kKillPoints || number < kRecords; ++point) {
    ASSERT_TRUE(child.step()) << point;
    ASSERT_TRUE(consume(survivor, number)) << "record " << number << " at instruction " << point;
    ASSERT_EQ(survivor.state(), RingState::Open) << point;
    ASSERT_EQ(number % kBatch, 0u) << "half a batch at instruction " << point;
  }
}

TEST_F(KillSweep, F16_a_consumer_that_dies_at_any_instruction_costs_the_producer_nothing_but_room) {
  SteppedProcess child([this] { return consume_for_ever(ring(), wake()); });
  if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
  RingProducer survivor(ring());
  std::uint64_t number = 0;
  for (int point = 0; point < kKillPoints || number < kRecords; ++point) {
    ASSERT_TRUE(child.step()) << "the consumer met something wrong at instruction " << point;
    while (produce(survivor, number)) ++number;
    ASSERT_EQ(survivor.state(), RingState::Open) << point;
  }
}

TEST_F(KillSweep, F16_a_killed_producer_leaves_what_it_had_published) {
  for (int kill_at = 0; kill_at < 2000; kill_at += 67) {
    clear();
    SteppedProcess child([this] { return produce_for_ever(ring(), wake()); });
    if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
    for (int point = 0; point < kill_at; ++point) ASSERT_TRUE(child.step());
    RingConsumer before(ring());
    std::uint64_t seen = 0;
    while (const auto record = before.peek()) {
      ASSERT_TRUE(is_record(before, *record, seen));
      before.pop();
      ++seen;
    }
    child.kill_and_wait();
    RingConsumer survivor(ring());
    std::uint64_t number = 0;
    ASSERT_TRUE(consume(survivor, number));
    EXPECT_EQ(number, seen);
    EXPECT_EQ(number % kBatch, 0u);
  }
}

}  // namespace
}  // namespace verbena::soft::local
