// SPDX-License-Identifier: Apache-2.0
// Where bytes stand: pages, pools, cached registrations, and regions that go while they are used.
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <limits>
#include <thread>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;

std::uintptr_t address_of(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

TEST(Pages, large_regions_say_in_which_pages_they_stand_and_are_zero) {
  Device device = must(Device::open());
  MemoryRegion small = must(device.allocate_memory(4096));
  EXPECT_EQ(small.pages(), PageKind::Normal);
  for (const std::size_t bytes : {std::size_t{2} << 20, (std::size_t{5} << 20) + 17}) {
    MemoryRegion large = must(device.allocate_memory(bytes));
    EXPECT_EQ(large.size(), bytes);
    EXPECT_EQ(address_of(large.data()) % (std::size_t{2} << 20), 0u);
    EXPECT_NE(large.pages(), PageKind::Unknown);
    EXPECT_TRUE(std::all_of(large.bytes().begin(), large.bytes().end(), [](std::byte b) { return b == std::byte{}; }));
    MemoryRegion moved = std::move(large);
    EXPECT_NE(moved.pages(), PageKind::Unknown);
    EXPECT_EQ(large.pages(), PageKind::Unknown);
  }
  std::vector<std::byte> own(64);
  EXPECT_EQ(must(device.register_memory(own)).pages(), PageKind::Unknown);
  expect_error(device.allocate_memory(std::size_t{1} << 62), ErrorCode::ResourceExhausted, "no room");
}

// Of files, which the kernel would tell by a signal.
TEST(Pages, a_limit_of_the_process_leaves_memory_that_is_not_shared) {
  Device device = must(Device::open());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  auto region = device.allocate_memory(4096);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(must(std::move(region)).size(), 4096u);
}

class Pool : public ::testing::Test {
 protected:
  Device device = must(Device::open());
  BufferPoolOptions two_classes{{{1000, 4, 2}, {64, 8, 1}}, Access::LocalWrite};
};

TEST_F(Pool, buffers_come_from_the_smallest_class_that_fits_and_go_back_by_themselves) {
  BufferPool pool = must(BufferPool::create(device.protection_domain(), two_classes));
  {
    Buffer small = must(pool.acquire(64)), large = must(pool.acquire(65));
    EXPECT_EQ(small.capacity(), 64u);
    EXPECT_EQ(large.capacity(), 1024u);
    EXPECT_EQ(large.size(), 65u);
    EXPECT_EQ(address_of(large.data()) % 64, 0u);
    EXPECT_EQ(pool.in_use(), 2u);
    Buffer moved = std::move(large);
    EXPECT_TRUE(large.empty());
    EXPECT_EQ(pool.in_use(), 2u);
    moved.release();
    EXPECT_EQ(pool.in_use(), 1u);
  }
  const auto all = pool.statistics();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].bytes, 64u);
  EXPECT_EQ(all[0].high_water, 1u);
  EXPECT_EQ(all[1].made, 4u);
  EXPECT_EQ(all[1].limit, 8u);
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(Pool, running_dry_is_an_error_with_a_name_and_passes) {
  BufferPool pool = must(BufferPool::create(device.protection_domain(), two_classes));
  std::vector<Buffer> out;
  for (int i = 0; i < 8; ++i) out.push_back(must(pool.acquire(1000)));
  expect_error(pool.acquire(1000), ErrorCode::ResourceExhausted, "1024 bytes", "all 8 are out");
  must(pool.acquire(64));  // the other class is well
  EXPECT_EQ(pool.statistics()[1].dry, 1u);
  EXPECT_EQ(pool.statistics()[1].high_water, 8u);
  out.pop_back();
  must(pool.acquire(1000));
  expect_error(pool.acquire(1025), ErrorCode::InvalidArgument, "1 to 1024");
  expect_error(pool.acquire(0), ErrorCode::InvalidArgument);
  expect_error(BufferPool::create(device.protection_domain(), {{}, Access::None}), ErrorCode::InvalidArgument);
  expect_error(BufferPool::create(device.protection_domain(), {{{64, 0, 1}}, Access::None}),
               ErrorCode::InvalidArgument);
}

TEST_F(Pool, absurd_sizes_are_refused_before_anything_is_allocated_for_them) {
  ProtectionDomain& domain = device.protection_domain();
  expect_error(BufferPool::create(domain, {{{64, 1u << 16, 1u << 15}}, Access::None}), ErrorCode::InvalidArgument,
               "2147483648 buffers", "at most 16777216");
  expect_error(BufferPool::create(domain, {{{64, 1, ~0u}}, Access::None}), ErrorCode::InvalidArgument,
               "4294967295 buffers");
  expect_error(BufferPool::create(domain, {{{std::size_t{1} << 40, 1, 1}}, Access::None}),
               ErrorCode::InvalidArgument, "1099511627776 bytes");
  must(BufferPool::create(domain, {{{64, 1u << 16, 1u << 8}}, Access::None}));
}

TEST_F(Pool, buffers_outlive_their_pool_and_are_zero_at_first) {
  std::vector<Buffer> out;
  {
    BufferPool pool = must(BufferPool::create(device.protection_domain(), two_classes));
    for (int i = 0; i < 8; ++i) out.push_back(must(pool.acquire(1000)));
  }
  for (Buffer& buffer : out) {
    for (const std::byte b : buffer.bytes()) ASSERT_EQ(b, std::byte{});
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{1});
  }
}

TEST_F(Pool, threads_take_and_give_back_without_meeting_in_a_buffer) {
  BufferPool pool = must(BufferPool::create(device.protection_domain(), {{{64, 4, 8}}, Access::LocalWrite}));
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 4; ++t)
    threads.emplace_back([&pool, t] {
      std::vector<Buffer> mine;
      for (unsigned i = 0; i < 20000; ++i) {
        if (auto buffer = pool.acquire(64)) {
          std::fill(buffer->bytes().begin(), buffer->bytes().end(), static_cast<std::byte>(t));
          mine.push_back(std::move(*buffer));
        }
        if (mine.size() < 1 + i % 7) continue;
        for (const std::byte b : mine.back().bytes()) ASSERT_EQ(b, static_cast<std::byte>(t));
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(i % mine.size()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.in_use(), 0u);
  EXPECT_LE(pool.statistics()[0].high_water, 32u);
  std::vector<Buffer> all;
  for (int i = 0; i < 32; ++i) all.push_back(must(pool.acquire(64)));  // none was lost
}

TEST_F(Pool, its_buffers_are_sent_and_may_go_back_from_another_thread) {
  test::Pair pair;
  Connection near = pair.connect();
  BufferPool pool = must(BufferPool::create(pair.client.protection_domain()));
  BufferPool inboxes = must(BufferPool::create(pair.server.protection_domain()));
  Buffer outgoing = must(pool.acquire(3000)), inbox = must(inboxes.acquire(4096));
  std::fill(outgoing.bytes().begin(), outgoing.bytes().end(), std::byte{42});
  Operation receive = pair.far_end().receive(inbox.local());
  must(near.send(outgoing.local()).wait());
  EXPECT_EQ(must(receive.wait()).bytes, 3000u);
  EXPECT_EQ(inbox.bytes()[2999], std::byte{42});
  std::thread([buffer = std::move(outgoing)]() mutable { buffer.release(); }).join();
  EXPECT_EQ(pool.in_use(), 0u);
}

class Cache : public ::testing::Test {
 protected:
  std::span<std::byte> range(std::size_t offset, std::size_t bytes) { return std::span(memory).subspan(offset, bytes); }

  test::Pair pair;
  std::vector<std::byte> memory = std::vector<std::byte>(64 << 10);
};

TEST_F(Cache, a_range_inside_a_registered_one_is_found_again) {
  RegistrationCache cache(pair.client.protection_domain());
  LKey key;
  {
    Registration whole = must(cache.acquire(range(0, 4096)));
    key = whole.local().lkey;
    Registration part = must(cache.acquire(range(100, 200)));
    EXPECT_EQ(part.local().lkey, key);
    EXPECT_EQ(part.local().length, 200u);
    EXPECT_EQ(cache.statistics().in_use, 1u);
  }
  EXPECT_EQ(cache.statistics().in_use, 0u);
  EXPECT_EQ(must(cache.acquire(range(4000, 96))).local().lkey, key);
  EXPECT_NE(must(cache.acquire(range(4000, 97))).local().lkey, key);
  const auto all = cache.statistics();
  EXPECT_EQ(all.hits, 2u);
  EXPECT_EQ(all.misses, 2u);
  EXPECT_EQ(all.regions, 2u);
  EXPECT_EQ(all.bytes, 4096u + 97u);
}

TEST_F(Cache, the_longest_unused_goes_first_and_what_is_in_use_stays) {
  RegistrationCacheOptions options;
  options.max_regions = 3;
  RegistrationCache cache(pair.client.protection_domain(), options);
  Registration held = must(cache.acquire(range(0, 16)));
  must(cache.acquire(range(1000, 16)));
  must(cache.acquire(range(2000, 16)));
  must(cache.acquire(range(1000, 16)));  // newer than 2000 now
  must(cache.acquire(range(3000, 16)));
  EXPECT_EQ(cache.statistics().evictions, 1u);
  must(cache.acquire(range(1000, 16)));
  EXPECT_EQ(cache.statistics().hits, 2u);
  must(cache.acquire(range(2000, 16)));
  EXPECT_EQ(cache.statistics().misses, 5u);
  Registration second = must(cache.acquire(range(4000, 16))), third = must(cache.acquire(range(5000, 16)));
  expect_error(cache.acquire(range(6000, 16)), ErrorCode::ResourceExhausted, "3 regions", "in use");
}

TEST_F(Cache, bytes_are_limited_too_and_nonsense_is_refused) {
  RegistrationCacheOptions options;
  options.max_bytes = 100;
  RegistrationCache cache(pair.client.protection_domain(), options);
  must(cache.acquire(range(0, 60)));
  must(cache.acquire(range(100, 60)));
  EXPECT_EQ(cache.statistics().bytes, 60u);
  expect_error(cache.acquire(range(0, 101)), ErrorCode::ResourceExhausted, "100");
  expect_error(cache.acquire({}), ErrorCode::InvalidArgument);
}

TEST_F(Cache, what_is_forgotten_is_registered_anew_and_its_key_goes_with_the_last_user) {
  RegistrationCacheOptions options;
  options.access = Access::All;
  RegistrationCache cache(pair.server.protection_domain(), options);
  Connection near = pair.connect();
  MemoryRegion own = must(pair.client.allocate_memory(64));
  Registration lent = must(cache.acquire(range(0, 64)));
  must(cache.acquire(range(512, 64)));
  cache.forget(range(32, 400));
  EXPECT_EQ(cache.statistics().regions, 1u);
  must(near.write(own.local(), lent.remote()).wait());
  Registration fresh = must(cache.acquire(range(0, 64)));
  EXPECT_NE(fresh.remote().rkey, lent.remote().rkey);
  const RemoteMemory stale = lent.remote();
  lent.release();
  expect_error(near.write(own.local(), stale).wait(), ErrorCode::RemoteAccessError);
}

TEST_F(Cache, memory_remapped_behind_its_back_is_found_where_it_stands) {
  constexpr std::size_t kBytes = 64 << 10;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  auto* const at = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kFlags, -1, 0));
  const std::span<std::byte> mapped{at, kBytes};
  RegistrationCache cache(pair.client.protection_domain());
  Connection near = pair.connect();
  MemoryRegion lent = must(pair.server.allocate_memory(kBytes));
  must(near.write(must(cache.acquire(mapped)).local(), lent.remote()).wait());
  // Other pages, at the same place.
  ASSERT_EQ(::mmap(at, kBytes, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED, -1, 0), at);
  std::fill(mapped.begin(), mapped.end(), std::byte{9});
  must(near.write(must(cache.acquire(mapped)).local(), lent.remote()).wait());
  EXPECT_EQ(cache.statistics().hits, 1u);
  EXPECT_EQ(lent.bytes()[kBytes - 1], std::byte{9});
  // A page nobody may touch stands in its place, so that no other thread's memory comes there.
  ASSERT_EQ(::mmap(at, kBytes, PROT_NONE, kFlags | MAP_FIXED, -1, 0), at);
  Registration gone = must(cache.acquire(mapped));  // nobody told the cache
  expect_error(near.write(gone.local(), lent.remote()).wait(), ErrorCode::LocalProtectionError);
  cache.forget(mapped);
  ::munmap(at, kBytes);
  expect_error(cache.acquire(mapped), ErrorCode::InvalidArgument, "not all of them are mapped");
  must(pair.connect().write(must(cache.acquire(memory)).local(), lent.remote()).wait());
}

TEST_F(Cache, registrations_outlive_their_cache) {
  std::optional<RegistrationCache> cache(std::in_place, pair.client.protection_domain());
  Connection near = pair.connect();
  MemoryRegion lent = must(pair.server.allocate_memory(64));
  Registration mine = must(cache->acquire(range(0, 64)));
  cache.reset();
  must(near.write(mine.local(), lent.remote()).wait());
}

TEST_F(Cache, threads_share_it) {
  RegistrationCacheOptions options;
  options.max_regions = 8;
  RegistrationCache cache(pair.client.protection_domain(), options);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2000; ++i) {
        auto got = cache.acquire(range((i * 7 + t) % 20 * 1024, 512));
        EXPECT_TRUE(got) << got.error().to_string();
        if (i % 100 == 0) cache.forget(range(0, 5 * 1024));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const auto all = cache.statistics();
  EXPECT_EQ(all.in_use, 0u);
  EXPECT_LE(all.regions, 8u);
}

// ---- Regions that go while they are used.

TEST(Deregistered, while_a_peer_reads_and_writes_it_ends_its_connection_alone) {
  test::Pair pair;
  for (const bool reads : {false, true}) {
    Connection near = pair.connect(), other = pair.connect();
    constexpr std::size_t kBytes = 1 << 20;
    MemoryRegion own = must(pair.client.allocate_memory(kBytes));
    std::optional<MemoryRegion> lent(must(pair.server.allocate_memory(kBytes)));
    const RemoteMemory remote = lent->remote();
    std::vector<std::unique_ptr<Operation>> all;
    for (int i = 0; i < 8; ++i) {
      all.push_back(std::make_unique<Operation>());
      // Whatever takes how long: some are always under way.
      all.back()->on_done([](Operation& self) {
        if (self.result()) self.submit();
      });
      reads ? near.read(*all.back(), own.local(), remote) : near.write(*all.back(), own.local(), remote);
    }
    for (int i = 0; i < 3; ++i) pair.engine.run_once();
    lent.reset();  // after this nobody touches the memory: it is unmapped, and a fault would be counted
    bool refused = false;
    for (auto& operation : all) {
      EXPECT_TRUE(pair.engine.run_until([&] { return operation->done(); }, Duration::seconds(30)));
      const auto outcome = operation->result();
      if (outcome) continue;
      // Where a machine is so slow that a READ was asked for twice, the refusal may meet the copy: its number
      // is an old one to us, and only the peer's farewell tells.
      const ErrorCode code = outcome.error().code();
      refused = refused || code == ErrorCode::RemoteAccessError || code == ErrorCode::Disconnected;
    }
    EXPECT_TRUE(refused);
    MemoryRegion fresh = must(pair.server.allocate_memory(64));
    must(other.write(own.local(0, 64), fresh.remote()).wait());
    for (const NamedCounter& counter : pair.server.counters())
      EXPECT_TRUE(counter.name != "memory_faults" || counter.value == 0);
  }
}

TEST(Deregistered, while_a_send_of_ours_reads_it_fails_that_send) {
  test::Pair pair;
  Connection near = pair.connect(), other = pair.connect();
  constexpr std::size_t kBytes = 1 << 20;
  MemoryRegion lent = must(pair.server.allocate_memory(kBytes));
  std::optional<MemoryRegion> own(must(pair.client.allocate_memory(kBytes)));
  std::array<Operation, 2> writes;  // again and again, so that one is always under way
  for (Operation& write : writes) {
    write.on_done([](Operation& self) {
      if (self.result()) self.submit();
    });
    near.write(write, own->local(), lent.remote());
  }
  own.reset();
  EXPECT_TRUE(pair.engine.run_until([&] { return near.closed(); }, Duration::seconds(30)));
  expect_error(near.status(), ErrorCode::LocalProtectionError, "WRITE");
  MemoryRegion fresh = must(pair.client.allocate_memory(64));
  must(other.write(fresh.local(), lent.remote()).wait());
}

TEST(RegistrationCache, what_can_never_have_room_takes_nobodys) {
  Device device = must(Device::open());
  RegistrationCache cache(device.protection_domain(), {.max_bytes = 1 << 16});
  std::vector<std::byte> memory(1 << 17);
  for (std::size_t i = 0; i < 8; ++i) static_cast<void>(must(cache.acquire(std::span(memory).subspan(i * 4096, 4096))));
  ASSERT_EQ(cache.statistics().regions, 8u);
  expect_error(cache.acquire(memory), ErrorCode::ResourceExhausted);
  EXPECT_EQ(cache.statistics().regions, 8u) << cache.statistics().evictions << " evicted for nothing";
}

TEST(RegistrationCache, a_range_that_wraps_is_refused) {
  Device device = must(Device::open());
  MemoryRegion pages = must(device.allocate_memory(8192));
  const std::span<std::byte> wraps(pages.data() + 64, std::numeric_limits<std::size_t>::max() - 16);
  expect_error(device.register_memory(wraps), ErrorCode::InvalidArgument);
  const std::span<std::byte> aligned(pages.data(), std::numeric_limits<std::size_t>::max());
  expect_error(device.register_memory(aligned), ErrorCode::InvalidArgument);
  RegistrationCache cache(device.protection_domain());
  expect_error(cache.acquire(aligned), ErrorCode::InvalidArgument);
  const Registration kept = must(cache.acquire(pages.bytes()));
  expect_error(cache.acquire(wraps), ErrorCode::InvalidArgument);
  expect_error(cache.acquire(aligned), ErrorCode::InvalidArgument);
}

TEST_F(Cache, what_is_forgotten_may_reach_beyond_the_end_of_the_address_space) {
  RegistrationCache cache(pair.client.protection_domain());
  must(cache.acquire(range(512, 64)));
  cache.forget(std::span(range(0, 64).data(), SIZE_MAX));
  EXPECT_EQ(cache.statistics().regions, 0u);
}

TEST(RegistrationCache, forgetting_an_empty_range_touches_nothing) {
  Device device = must(Device::open());
  RegistrationCache cache(device.protection_domain());
  std::vector<std::byte> memory(8192);
  static_cast<void>(must(cache.acquire(memory)));
  cache.forget(std::span(memory).subspan(100, 0));
  EXPECT_EQ(cache.statistics().regions, 1u);
}

}  // namespace
}  // namespace verbena
