// SPDX-License-Identifier: Apache-2.0
// Registered memory that is unmapped behind the device's back ends the connection that meets it, and nothing else.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;

constexpr std::size_t kMapBytes = 256 << 10;

// Memory of the program's own, which it takes away while it is registered.
struct Mapping {
  Mapping() {
    void* memory = ::mmap(nullptr, kMapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    bytes = {static_cast<std::byte*>(memory), kMapBytes};
  }
  ~Mapping() { ::munmap(bytes.data(), kMapBytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  // From `offset` on. A page nobody may touch stands in its place, so that no other thread's memory comes there.
  void unmap(std::size_t offset) {
    void* const at = bytes.data() + offset;
    if (::mmap(at, kMapBytes - offset, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) std::abort();
  }

  std::span<std::byte> bytes;
};

class Unmapped : public ::testing::Test {
 protected:
  // Another connection of the same devices lives on.
  ~Unmapped() override {
    test::fill(own, 5);
    must(other.write(own.local(), lent.remote()).wait());
    must(other.read(own.local(), lent.remote()).wait());
    EXPECT_TRUE(test::same(own, lent));
    EXPECT_EQ(other.phase(), ConnectionPhase::Established);
  }
  static std::uint64_t faults(const Device& device) {
    for (const NamedCounter& counter : device.counters())
      if (counter.name == "memory_faults") return counter.value;
    return 0;
  }
  Connection& far() { return pair.accepted.front(); }
  void expect_far_end_says_so() {
    EXPECT_TRUE(pair.engine.run_until([&] { return far().closed(); }, Duration::seconds(10)));
    expect_error(far().status(), ErrorCode::ConnectionLost, "not mapped", "QP_FATAL");
    EXPECT_EQ(faults(pair.server), 1u);
  }

  test::Pair pair;
  Connection near = pair.connect();
  Connection other = pair.connect();
  MemoryRegion own = must(pair.client.allocate_memory(kMapBytes));
  MemoryRegion lent = must(pair.server.allocate_memory(kMapBytes));
  Mapping there, here;
  MemoryRegion far_region = must(pair.server.register_memory(there.bytes));
  MemoryRegion near_region = must(pair.client.register_memory(here.bytes));
};

TEST_F(Unmapped, a_write_of_the_peer_is_refused) {
  ::munmap(there.bytes.data(), kMapBytes);
  expect_error(near.write(own.local(), far_region.remote()).wait(), ErrorCode::RemoteOperationError, "WRITE");
  expect_far_end_says_so();
}

TEST_F(Unmapped, a_write_that_meets_the_hole_in_its_middle_is_refused) {
  there.unmap(kMapBytes / 2);
  test::fill(own, 9);
  expect_error(near.write(own.local(), far_region.remote()).wait(), ErrorCode::RemoteOperationError);
  expect_far_end_says_so();
  EXPECT_EQ(there.bytes[0], own.bytes()[0]);
}

TEST_F(Unmapped, a_read_of_the_peer_is_refused) {
  there.unmap(kMapBytes / 2);
  expect_error(near.read(own.local(), far_region.remote()).wait(), ErrorCode::RemoteOperationError, "READ");
  expect_far_end_says_so();
}

TEST_F(Unmapped, an_atomic_of_the_peer_is_refused) {
  there.unmap(0);
  const RemoteMemory cell = must(far_region.remote(0, 8));
  expect_error(near.fetch_and_add(cell, 1).wait(), ErrorCode::RemoteOperationError);
  expect_far_end_says_so();
}

TEST_F(Unmapped, a_message_into_it_fails_its_receive) {
  there.unmap(0);
  Operation receive = far().receive(far_region.local());
  expect_error(near.send(own.local()).wait(), ErrorCode::RemoteOperationError);
  expect_error(receive.wait(), ErrorCode::LocalProtectionError);
  EXPECT_EQ(faults(pair.server), 1u);
}

// As long a message as is gathered by the kernel, and as short a one as is copied.
TEST_F(Unmapped, a_message_from_it_fails_here) {
  here.unmap(0);
  Operation receive = far().receive(lent.local());
  expect_error(near.send(near_region.local()).wait(), ErrorCode::LocalProtectionError, "SEND");
  EXPECT_EQ(faults(pair.client), 1u);
}

TEST_F(Unmapped, a_short_write_from_it_fails_here) {
  here.unmap(kMapBytes / 2);
  expect_error(near.write(near_region.local(kMapBytes / 2, 64), lent.remote()).wait(), ErrorCode::LocalProtectionError);
  EXPECT_EQ(faults(pair.client), 1u);
}

TEST_F(Unmapped, what_a_read_brings_for_it_fails_here) {
  here.unmap(0);
  expect_error(near.read(near_region.local(), lent.remote()).wait(), ErrorCode::LocalProtectionError, "READ");
  EXPECT_EQ(faults(pair.client), 1u);
}

TEST_F(Unmapped, memory_made_read_only_is_refused_like_none) {
  ::mprotect(there.bytes.data(), kMapBytes, PROT_READ);
  must(near.read(own.local(), far_region.remote()).wait());
  expect_error(near.write(own.local(), far_region.remote()).wait(), ErrorCode::RemoteOperationError);
  expect_far_end_says_so();
}

TEST_F(Unmapped, memory_that_is_mapped_there_anew_is_what_peers_reach) {
  there.unmap(0);
  void* again = ::mmap(there.bytes.data(), kMapBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_EQ(again, there.bytes.data());
  test::fill(own, 7);
  must(near.write(own.local(), far_region.remote()).wait());
  EXPECT_TRUE(test::same(own, far_region));
}

// At any moment: while bytes are looked at, between that and the system call that sends them, or after.
TEST_F(Unmapped, memory_that_goes_at_any_moment_is_survived_by_the_process) {
  for (int round = 0; round < 30; ++round) {
    Connection one = pair.connect();
    must(one.write(near_region.local(), far_region.remote()).wait());
    std::atomic<int> rounds_until_it_goes{round % 10 + 1};
    std::atomic<bool> gone{false};
    std::thread taker([&] {
      while (rounds_until_it_goes.load() > 0) std::this_thread::yield();
      ::mprotect((round % 2 == 0 ? here : there).bytes.data(), kMapBytes, PROT_NONE);
      gone = true;
    });
    Result<OperationOutcome> outcome = OperationOutcome{};
    for (bool last = false; outcome && !last;) {
      last = gone;
      outcome = one.write(near_region.local(), far_region.remote()).wait();
      --rounds_until_it_goes;
    }
    taker.join();
    const ErrorCode expected = round % 2 == 0 ? ErrorCode::LocalProtectionError : ErrorCode::RemoteOperationError;
    expect_error(outcome, expected);
    for (const Mapping* one_of : {&here, &there}) ::mprotect(one_of->bytes.data(), kMapBytes, PROT_READ | PROT_WRITE);
  }
}

TEST_F(Unmapped, the_device_says_that_it_guards_itself) {
  EXPECT_THAT(pair.client.explain(), ::testing::Contains(::testing::HasSubstr("ends its connection, not the process")));
}

}  // namespace
}  // namespace verbena
