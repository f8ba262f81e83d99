// SPDX-License-Identifier: Apache-2.0
// WRITEs and READs in memory that the peer granted: the same rules, and what only this way can go wrong.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <tuple>

#include "base/fault_guard.h"
#include "soft/local/test_pair.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

using namespace testing;

constexpr std::size_t kRegion = 4 << 20;

Given direct(bool pulls = false) {
  Given given;
  given.direct = true;
  given.pulls = pulls;
  given.memory_bytes = kRegion;
  return given;
}

// Named twice, asked for once, and granted: from here on the region is open.
void open_region(Pair& pair, Op opcode = Op::RdmaWrite) {
  for (const std::uint64_t id : {90u, 91u}) {
    pair.a.fetch_or_write(opcode, id, kRegion - 8, 8, pair.b, kRegion - 8);
    pair.run();
  }
  ASSERT_EQ(pair.regions_of_b.asked, std::vector<RKey>{pair.b.region.rkey});
  ASSERT_TRUE(pair.regions_of_b.answer(pair.a, pair.b));
  ASSERT_EQ(pair.a.sent().size(), 2u);
}

TEST(LocalDirect,
     o1_o4_requests_of_every_length_are_done_when_they_are_posted_and_nothing_is_written_to_the_ring) {
  Pair pair(direct());
  open_region(pair);
  const std::uint64_t before = pair.b.counters.served_writes;
  for (const std::size_t length : {1ul, 7ul, 8ul, 4096ul, (1ul << 20) - 1, (1ul << 20) + 1, 3ul << 20}) {
    const Bytes bytes = pattern(length, static_cast<unsigned>(length));
    pair.a.put(0, bytes);
    pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, length, pair.b, 5);
    while (pair.a.transport->ready(pair.now))
      EXPECT_FALSE(pair.a.transport->emit(pair.now)) << "it published";
    EXPECT_TRUE(pair.b.holds(5, bytes)) << length;
    pair.a.fetch_or_write(Op::RdmaRead, 2, 1 << 19, length, pair.b, 5);
    while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
    EXPECT_TRUE(pair.a.holds(1 << 19, bytes)) << length;
    const auto done = pair.a.sent();
    ASSERT_EQ(ids(done), (Ids{1, 2})) << length;
    EXPECT_EQ(done[1].byte_count, length);
    pair.a.transport->check_invariants();
  }
  EXPECT_EQ(pair.b.counters.served_writes, before);
}

TEST(LocalDirect, what_is_too_long_for_the_cache_arrives_whole_too) {
  constexpr std::size_t kLength = (16u << 20) + 12'345;
  Given given = direct();
  given.memory_bytes = kLength + kRegion;
  Pair pair(given);
  for (const std::uint64_t id : {90u, 91u}) {
    pair.a.fetch_or_write(Op::RdmaWrite, id, kRegion - 8, 8, pair.b, kRegion - 8);
    pair.run();
  }
  ASSERT_TRUE(pair.regions_of_b.answer(pair.a, pair.b));
  ASSERT_EQ(pair.a.sent().size(), 2u);
  const Bytes bytes = pattern(kLength, 1);
  pair.a.put(3, bytes);
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 3, kLength, pair.b, 5);
  while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
  EXPECT_TRUE(pair.b.holds(5, bytes));
  pair.a.fetch_or_write(Op::RdmaRead, 2, 4096, kLength, pair.b, 5);
  while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
  EXPECT_TRUE(pair.a.holds(4096, bytes));
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
  EXPECT_GE(pair.a.counters.direct_bytes, 2 * kLength);
}

TEST(LocalDirect, the_next_request_by_the_ring_has_the_number_that_the_peer_expects) {
  Pair pair(direct());
  open_region(pair);
  for (std::uint64_t id = 1; id < 200; ++id) {
    if (id % 3 == 0) {
      pair.b.receive(id, 64, 8);
      pair.a.send(id, 0, 8);
      pair.run();
    } else {
      pair.a.fetch_or_write(id % 3 == 1 ? Op::RdmaWrite : Op::RdmaRead, id, 0, 8, pair.b, 0);
      pair.run();
    }
    ASSERT_EQ(ids(pair.a.sent()), Ids{id});
  }
  EXPECT_EQ(pair.b.received().size(), 66u);
}

TEST(LocalDirect, o1_a_direct_copy_waits_until_what_was_sent_before_is_executed) {
  Pair pair(direct());
  open_region(pair);
  const Bytes old = pattern(8, 3), fresh = pattern(8192, 4);
  pair.b.put(0, old);
  pair.a.put(0, fresh);
  pair.b.receive(1, 100'000, 8);
  pair.a.send(1, 0, 8);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8192, pair.b, 0);
  pair.a.transport->emit(pair.now);
  EXPECT_FALSE(pair.a.transport->ready(pair.now)) << "it waits for the peer";
  EXPECT_TRUE(pair.b.holds(0, old)) << "overtook the message before it";
  pair.run();
  EXPECT_TRUE(pair.b.holds(0, fresh));
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
}

TEST(LocalDirect, small_requests_behind_others_take_the_ring_for_a_while_and_then_wait_once) {
  Given given = direct();
  given.requests = 512;
  given.capacity = 1 << 16;
  Pair pair(given);
  open_region(pair);
  pair.b.receive(1, 100'000, 8);
  pair.a.send(1, 0, 8);
  for (std::uint64_t id = 2; id < 202; ++id) pair.a.fetch_or_write(Op::RdmaWrite, id, 0, 8, pair.b, 0);
  const std::uint64_t before = pair.b.counters.served_writes;
  pair.run();
  EXPECT_EQ(pair.a.sent().size(), 201u);
  EXPECT_EQ(pair.b.counters.served_writes - before, 64u) << "the rest went directly";
}

TEST(LocalDirect, r066_f16_what_was_taken_back_is_refused_by_its_owner) {
  for (const bool in_the_middle : {false, true}) {
    Pair pair(direct());
    open_region(pair);
    pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 3 << 20, pair.b, 0);
    if (in_the_middle) pair.a.transport->emit(pair.now);
    ASSERT_TRUE(pair.b.transport->revoke(pair.b.region.rkey));
    ASSERT_TRUE(pair.b.memory.deregister(pair.b.region.lkey));
    const Bytes before(pair.b.data(), pair.b.data() + kRegion);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteAccessError});
    EXPECT_TRUE(pair.b.holds(0, before)) << "written after it was deregistered";
    EXPECT_EQ(pair.regions_of_b.dropped, std::vector<RKey>{pair.b.region.rkey});
  }
}

TEST(LocalDirect, a_copy_during_which_the_region_is_taken_back_counts_only_when_the_owner_waited_for_it) {
  for (const bool waited : {true, false}) {
    Pair pair(direct());
    open_region(pair);
    Claimer claimer = pair.claimer_of_a();
    const RKey rkey = pair.b.region.rkey;
    ASSERT_TRUE(claimer.claim(0, rkey));
    EXPECT_TRUE(claimer.release(0, rkey));
    ASSERT_TRUE(claimer.claim(0, rkey));
    const auto slot = pair.b.transport->revoke(rkey);
    ASSERT_EQ(slot, 0u);
    EXPECT_TRUE(pair.b.transport->is_claimed(*slot));
    if (!waited) pair.b.transport->cut(*slot);
    EXPECT_EQ(claimer.release(0, rkey), waited);
    EXPECT_FALSE(pair.b.transport->is_claimed(*slot));
    EXPECT_FALSE(claimer.claim(0, rkey));
    EXPECT_FALSE(claimer.stands(0, rkey));
  }
}

TEST(LocalDirect, q051_what_was_granted_is_taken_back_before_the_program_gets_its_memory_back) {
  Pair pair(direct());
  open_region(pair);
  pair.b.receive(1, 0, 8);
  EXPECT_EQ(pair.regions_of_a.taken_back, 0);
  ASSERT_TRUE(pair.b.go(QueuePairState::Error));
  EXPECT_EQ(pair.regions_of_a.taken_back, 1) << "those that b grants";
  EXPECT_EQ(statuses(pair.b.received()), Statuses{Status::Flushed});
}

TEST(LocalDirect, o4_messages_of_pieces_of_every_size_arrive_whole) {
  Pair pair(direct());
  open_region(pair);
  const Bytes bytes = pattern(64);
  pair.a.put(0, bytes);
  for (std::size_t first = 1; first < 40; ++first)
    for (std::size_t second = 1; second < 12; ++second)
      for (std::size_t third = 1; third < 12; ++third) {
        const std::size_t length = first + second + third;
        const ScatterGather from[] = {pair.a.sge(0, first), pair.a.sge(first, second),
                                      pair.a.sge(first + second, third)};
        SendRequest request;
        request.opcode = Op::RdmaWrite;
        request.local = from;
        request.remote_address = pair.b.va(72 - length);
        request.rkey = pair.b.region.rkey;
        pair.b.put(0, Bytes(80));
        pair.a.post(request);
        EXPECT_FALSE(pair.a.transport->emit(pair.now));
        const Bytes sent(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
        ASSERT_TRUE(pair.b.holds(72 - length, sent))
            << first << " " << second << " " << third;
        ASSERT_TRUE(pair.b.holds(0, Bytes(72 - length)) && pair.b.holds(72, Bytes(8)));
      }
}

TEST(LocalDirect, a_claim_in_memory_that_was_taken_away_is_none) {
  fault_guard::install();
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(page);
  const GrantMemory memory(bytes, bytes + kGrantTableBytes);
  Granter granter(memory);
  Claimer claimer(memory);
  const auto slot = granter.try_grant(RKey{7});
  ASSERT_TRUE(slot);
  EXPECT_TRUE(claimer.claim(*slot, RKey{7}));
  EXPECT_TRUE(granter.is_claimed(*slot));
  EXPECT_TRUE(claimer.release(*slot, RKey{7}));
  EXPECT_TRUE(claimer.claim(*slot, RKey{7}));
  ::munmap(page, 4096);
  EXPECT_FALSE(claimer.release(*slot, RKey{7}));
  EXPECT_FALSE(claimer.claim(*slot, RKey{7}));
}

// A WRITE that is not posted, of the first bytes of a's memory, to `remote` in b's.
bool write_now(Pair& pair, std::size_t length, std::uint64_t remote) {
  return pair.a.transport->do_now(ShortWrite{{pair.a.data(), length}, pair.b.va(remote), pair.b.region.rkey});
}
// A READ that is not posted, of b's memory from `remote` on, to the beginning of a's.
bool read_now(Pair& pair, std::size_t length, std::uint64_t remote) {
  return pair.a.transport->do_now(ShortRead{{pair.a.data(), length}, pair.b.va(remote), pair.b.region.rkey});
}

TEST(LocalDirect, a_write_goes_without_a_request_once_the_memory_is_granted) {
  Pair pair(direct());
  EXPECT_FALSE(write_now(pair, 8, 0)) << "not granted";
  open_region(pair);
  for (const std::uint32_t length : {1u, 8u, 24u, 4096u, 1u << 20}) {
    const Bytes bytes = pattern(length, length);
    pair.a.put(0, bytes);
    EXPECT_TRUE(write_now(pair, length, 5));
    EXPECT_TRUE(pair.b.holds(5, bytes)) << length;
  }
  EXPECT_FALSE(write_now(pair, (1 << 20) + 1, 0)) << "too long";
  EXPECT_FALSE(write_now(pair, 0, 0));
  EXPECT_FALSE(write_now(pair, 8, kRegion - 7)) << "more than there is";
  EXPECT_TRUE(pair.a.sent().empty());
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{1}) << "numbers go on";
}

TEST(LocalDirect, a_read_goes_without_a_request_once_the_memory_is_granted) {
  Pair pair(direct());
  EXPECT_FALSE(read_now(pair, 8, 0)) << "not granted";
  open_region(pair);
  for (const std::uint32_t length : {1u, 8u, 24u, 4096u, 1u << 20}) {
    const Bytes bytes = pattern(length, length);
    pair.b.put(3, bytes);
    EXPECT_TRUE(read_now(pair, length, 3));
    EXPECT_TRUE(pair.a.holds(0, bytes)) << length;
  }
  EXPECT_FALSE(read_now(pair, (1 << 20) + 1, 0)) << "too long";
  EXPECT_FALSE(read_now(pair, 0, 0));
  EXPECT_FALSE(read_now(pair, 8, kRegion - 7)) << "more than there is";
  EXPECT_TRUE(pair.a.sent().empty());
  EXPECT_EQ(pair.a.counters.rdma_reads, 5u);
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{1}) << "numbers go on";
}

TEST(LocalDirect, a_read_without_a_request_goes_only_where_one_with_it_would) {
  {
    Given given = direct();
    given.memory_access = Access::LocalWrite | Access::RemoteWrite;
    Pair pair(direct(), given);
    open_region(pair);
    EXPECT_FALSE(read_now(pair, 8, 0)) << "may be written only";
  }
  {
    Given given = direct();
    given.max_rd_atomic = 0;
    Pair pair(given, direct());
    open_region(pair);
    EXPECT_TRUE(write_now(pair, 8, 0));
    EXPECT_FALSE(read_now(pair, 8, 0)) << "q030: no READ at all";
  }
  Pair pair(direct());
  open_region(pair);
  pair.b.receive(1, 100'000, 8);
  pair.a.send(1, 0, 8);
  EXPECT_FALSE(read_now(pair, 8, 0)) << "o1: posted, not begun";
  pair.run();
  EXPECT_TRUE(read_now(pair, 8, 0));
  ASSERT_TRUE(pair.b.transport->revoke(pair.b.region.rkey));
  EXPECT_FALSE(read_now(pair, 8, 0)) << "taken back";
  ASSERT_TRUE(pair.a.go(QueuePairState::Error));
  EXPECT_FALSE(read_now(pair, 8, 0));
}

TEST(LocalDirect, o1_a_write_without_a_request_overtakes_nothing) {
  Pair pair(direct());
  open_region(pair);
  pair.b.receive(1, 100'000, 8);
  pair.a.send(1, 0, 8);
  EXPECT_FALSE(write_now(pair, 8, 0)) << "posted, not begun";
  pair.a.transport->emit(pair.now);
  EXPECT_FALSE(write_now(pair, 8, 0)) << "not acknowledged";
  pair.run();
  EXPECT_TRUE(write_now(pair, 8, 0));
}

TEST(LocalDirect, a_write_without_a_request_goes_only_where_one_with_it_would) {
  {
    Given given = direct();
    given.memory_access = Access::LocalWrite | Access::RemoteRead;
    Pair pair(direct(), given);
    open_region(pair, Op::RdmaRead);
    EXPECT_FALSE(write_now(pair, 8, 0)) << "may be read only";
  }
  Pair pair(direct());
  open_region(pair);
  pair.a.put(0, pattern(8));
  ASSERT_TRUE(pair.b.transport->revoke(pair.b.region.rkey));
  EXPECT_FALSE(write_now(pair, 8, 0)) << "taken back";
  EXPECT_TRUE(pair.b.holds(0, Bytes(8)));
  EXPECT_EQ(pair.regions_of_b.dropped, std::vector<RKey>{pair.b.region.rkey});
  ASSERT_TRUE(pair.a.go(QueuePairState::Error));
  EXPECT_FALSE(write_now(pair, 8, 0));
  pair.a.transport->detach();
  EXPECT_FALSE(write_now(pair, 8, 0));
}

TEST(LocalDirect, r083_r084_r085_atomics_change_the_word_where_it_stands) {
  Pair pair(direct());
  open_region(pair);
  const std::uint64_t before = pair.b.counters.served_atomics;
  pair.b.word(64) = 5;
  for (const auto& [opcode, answer, after] : {std::tuple{Op::CompareAndSwap, 5u, 9u}, {Op::CompareAndSwap, 9u, 9u},
                                             {Op::FetchAndAdd, 9u, 18u}}) {
    pair.a.fetch_or_write(opcode, 1, 0, 8, pair.b, 64);
    EXPECT_FALSE(pair.a.transport->emit(pair.now)) << "it published";
    const auto done = pair.a.sent();
    ASSERT_EQ(ids(done), Ids{1});
    EXPECT_EQ(done[0].byte_count, 8u);
    EXPECT_EQ(pair.a.word(0), answer);
    EXPECT_EQ(pair.b.word(64), after);
  }
  EXPECT_EQ(pair.b.counters.served_atomics, before);
}

TEST(LocalDirect, r083_atomics_of_both_ways_are_done_once_each) {
  Pair pair(direct());
  open_region(pair);
  pair.b.word(64) = 0;
  const std::uint64_t by_ring = pair.b.counters.served_atomics, directly = pair.a.counters.direct_requests;
  for (std::uint64_t id = 1; id <= 300; ++id) {
    if (id % 3 == 0) {  // what follows it takes the ring
      pair.b.receive(id, 100'000, 8);
      pair.a.send(id, 0, 8);
    }
    pair.a.fetch_or_write(Op::FetchAndAdd, id, 0, 8, pair.b, 64);
    if (id % 2 == 0) pair.run();
    pair.a.sent();
  }
  EXPECT_EQ(pair.b.word(64), 300 * 9u);
  EXPECT_GT(pair.b.counters.served_atomics, by_ring);
  EXPECT_GT(pair.a.counters.direct_requests, directly);
}

TEST(LocalDirect, r060_r065_atomics_that_are_not_granted_or_not_aligned_go_to_the_owner_who_refuses) {
  for (const auto& [granted, remote, status] :
       {std::tuple{Access::LocalWrite | Access::RemoteWrite, 64u, Status::RemoteAccessError},
        {Access::All, 65u, Status::RemoteInvalidRequest}}) {
    Given given = direct();
    given.memory_access = granted;
    Pair pair(direct(), given);
    open_region(pair);
    pair.a.fetch_or_write(Op::FetchAndAdd, 1, 0, 8, pair.b, remote);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{status});
  }
}

TEST(LocalDirect, q050_an_atomic_whose_answer_has_no_place_changes_nothing) {
  Pair pair(direct());
  open_region(pair);
  pair.b.word(64) = 5;
  pair.a.fetch_or_write(Op::FetchAndAdd, 1, kRegion - 4, 8, pair.b, 64);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
  EXPECT_EQ(pair.b.word(64), 5u);
}

TEST(LocalDirect, what_waited_for_memory_that_went_does_not_make_all_others_wait) {
  Pair pair(direct());
  open_region(pair);
  pair.b.receive(1, 100'000, 8);
  pair.a.send(1, 0, 8);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8192, pair.b, 0);
  pair.a.transport->emit(pair.now);
  EXPECT_FALSE(pair.a.transport->ready(pair.now)) << "it waits for the peer";
  ASSERT_TRUE(pair.b.transport->revoke(pair.b.region.rkey));
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
  for (std::uint64_t id = 3; id < 7; ++id) {
    pair.b.receive(id, 100'000, 8);
    pair.a.send(id, 0, 8);
  }
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  EXPECT_FALSE(pair.a.transport->ready(pair.now)) << "all of them are written";
}

TEST(LocalDirect, r082_who_serves_no_reads_lends_nothing_for_reading) {
  Given given = direct();
  given.max_dest_rd_atomic = 0;
  Pair pair(direct(), given);
  open_region(pair);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteInvalidRequest});
}

TEST(LocalDirect, r060_r063_what_is_not_granted_goes_to_the_owner_who_refuses) {
  struct Case {
    Access granted;
    Op opcode;
    std::uint64_t remote;
    std::size_t length;
    Status status;
  };
  for (const Case& c :
       {Case{Access::LocalWrite | Access::RemoteRead, Op::RdmaWrite, 0, 64, Status::RemoteAccessError},
        Case{Access::LocalWrite | Access::RemoteWrite, Op::RdmaRead, 0, 64, Status::RemoteAccessError},
        Case{Access::All, Op::RdmaWrite, kRegion - 63, 64, Status::RemoteAccessError},
        Case{Access::All, Op::RdmaRead, kRegion, 1, Status::RemoteAccessError}}) {
    Given given = direct();
    given.memory_access = c.granted;
    Pair pair(direct(), given);
    open_region(pair, includes(c.granted, Access::RemoteWrite) ? Op::RdmaWrite : Op::RdmaRead);
    pair.a.fetch_or_write(c.opcode, 1, 0, c.length, pair.b, c.remote);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{c.status});
  }
}

TEST(LocalDirect, what_was_refused_is_asked_for_again_ever_less_often_and_then_taken) {
  Pair pair(direct());
  auto& asked = pair.regions_of_b.asked;
  const auto write = [&pair] {
    pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
  };
  std::vector<int> writes_before;
  for (int total = 0; asked.size() < 6 && total < 2000; ++total) {
    const std::size_t before = asked.size();
    write();
    if (asked.size() == before) continue;
    writes_before.push_back(total);
    PeerRegion refused;
    refused.rkey = pair.b.region.rkey;
    if (asked.size() == 6) break;
    EXPECT_FALSE(pair.a.transport->handle_region(refused, false));
  }
  ASSERT_EQ(writes_before.size(), 6u);
  for (std::size_t i = 2; i < writes_before.size(); ++i)
    EXPECT_GE(writes_before[i] - writes_before[i - 1], 2 * (writes_before[i - 1] - writes_before[i - 2]) - 1) << i;
  ASSERT_TRUE(pair.regions_of_b.answer(pair.a, pair.b));
  const std::uint64_t before = pair.b.counters.served_writes;
  write();
  EXPECT_EQ(pair.b.counters.served_writes, before) << "not by the ring any more";
}

TEST(LocalDirect, what_the_owner_does_not_grant_goes_through_the_ring) {
  Given given = direct();
  given.qp_access = Access::RemoteWrite;
  Pair pair(direct(), given);
  EXPECT_FALSE(pair.b.transport->grant(core::MemoryRegion{}, true)) << "no rights at all";
  for (std::uint64_t id = 1; id < 9; ++id) {
    pair.a.fetch_or_write(Op::RdmaWrite, id, 0, 100, pair.b, 0);
    pair.run();
    if (id == 4) {
      PeerRegion refused;
      refused.rkey = pair.b.region.rkey;
      EXPECT_FALSE(pair.a.transport->handle_region(refused, false));
    }
    EXPECT_EQ(ids(pair.a.sent()), Ids{id});
  }
  EXPECT_EQ(pair.regions_of_b.asked.size(), 1u);
}

TEST(LocalDirect, many_keys_are_asked_for_in_turn_and_no_more_than_the_owner_has_room_for_is_granted) {
  Pair pair(direct());
  std::vector<core::MemoryRegion> regions;
  for (std::uint64_t i = 0; i < 100; ++i)
    regions.push_back(
        *pair.b.memory.register_region({}, pair.b.data() + 4096 * i, 4096, 1 << 20, Access::All));
  std::size_t granted = 0;
  for (const core::MemoryRegion& region : regions)
    if (pair.b.transport->grant(region, true)) ++granted;
  EXPECT_EQ(granted, kMostGrants);
  EXPECT_TRUE(pair.b.transport->revoke(regions[7].rkey));
  EXPECT_FALSE(pair.b.transport->revoke(regions[7].rkey));
  EXPECT_EQ(pair.b.transport->grant(regions[99], true)->slot, 7u);
  for (int round = 0; round < 3; ++round)
    for (const core::MemoryRegion& region : regions) {
      const ScatterGather local = pair.a.sge(0, 8);
      SendRequest request;
      request.opcode = Op::RdmaWrite;
      request.local = {&local, 1};
      request.remote_address = region.iova;
      request.rkey = region.rkey;
      for (int twice = 0; twice < 2; ++twice) {
        pair.a.post(request);
        pair.run();
      }
    }
  EXPECT_LE(pair.regions_of_b.asked.size(), 2 * kMostGrants) << "answers that do not come are waited for";
}

TEST(LocalDirect, a_read_of_memory_that_is_not_mapped_is_copied_by_a_call) {
  Pair pair(direct(true));
  pair.regions_of_b.mapped = false;
  pair.run();
  open_region(pair, Op::RdmaRead);
  const std::uint64_t before = pair.of_b.bytes;
  const Bytes bytes = pattern(200'000);
  pair.b.put(0, bytes);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, bytes.size(), pair.b, 0);
  EXPECT_FALSE(pair.a.transport->emit(pair.now));
  EXPECT_TRUE(pair.a.holds(0, bytes));
  EXPECT_EQ(pair.of_b.bytes - before, bytes.size());
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 64, pair.b, 0);
  pair.run();
  EXPECT_EQ(pair.b.counters.served_writes, 1u) << "a WRITE is executed by its owner";
  pair.of_b.gone = true;
  pair.a.fetch_or_write(Op::RdmaRead, 3, 0, 64, pair.b, 0);
  pair.a.transport->emit(pair.now);
  pair.a.transport->handle_records(pair.now);
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success}) << "the one before it";
  pair.b.send(4, 0, 8);  // what it said before it ended
  pair.b.transport->emit(pair.now);
  pair.a.receive(4, 200'000, 8);
  pair.a.transport->handle_hang_up(pair.now);
  EXPECT_EQ(ids(pair.a.received()), Ids{4});
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RetryExceeded});
}

// One whose memory is read by a call, and open.
struct Unmapped : Pair {
  explicit Unmapped(const Given& given = direct(true)) : Pair(given) {
    regions_of_b.mapped = false;
    run();
    open_region(*this, Op::RdmaRead);
    b.put(0, pattern(kRegion));
  }
  // To the same place as from, which tells them apart.
  void read(std::uint64_t id, std::uint64_t at, std::size_t length) {
    a.fetch_or_write(Op::RdmaRead, id, at, length, b, at);
  }
  bool arrived(std::uint64_t at, std::size_t length) { return a.holds(at, {b.data() + at, b.data() + at + length}); }
  // Of one turn.
  std::uint64_t calls() {
    const std::uint64_t before = of_b.calls;
    EXPECT_FALSE(a.transport->emit(now)) << "nothing by the ring";
    return of_b.calls - before;
  }
};

TEST(LocalDirect, reads_that_follow_each_other_are_copied_by_one_call) {
  Unmapped pair;
  pair.read(1, 0, 1000);
  const ScatterGather parts[] = {pair.a.sge(2000, 3), pair.a.sge(2003, 0), pair.a.sge(2003, 997)};
  SendRequest request;
  request.id = 2;
  request.opcode = Op::RdmaRead;
  request.local = parts;
  request.remote_address = pair.b.va(2000);
  request.rkey = pair.b.region.rkey;
  pair.a.post(request);
  pair.a.fetch_or_write(Op::RdmaRead, 3, 5000, 1, pair.b, 5000, SendFlags::Signaled | SendFlags::Fence);
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3}));
  EXPECT_TRUE(pair.arrived(0, 1000) && pair.arrived(2000, 1000) && pair.arrived(5000, 1));
  pair.read(4, 6000, 0);  // of nothing: its owner answers
  pair.read(5, 7000, 64);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{4, 5}));
  EXPECT_TRUE(pair.arrived(7000, 64));
}

TEST(LocalDirect, one_call_copies_no_more_than_a_turn_and_so_many_reads) {
  Unmapped pair;
  for (std::uint64_t i = 0; i < kMaxFetches + 1; ++i) pair.read(i, i * 100, 100);
  EXPECT_EQ(pair.calls(), 2u);
  EXPECT_EQ(pair.a.sent().size(), kMaxFetches + 1);
  EXPECT_TRUE(pair.arrived(0, (kMaxFetches + 1) * 100));
  constexpr std::size_t kBytes = 600'000;  // of which two are more than a turn
  pair.read(21, 0, kBytes);
  pair.read(22, kBytes, kBytes);
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), Ids{21});
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), Ids{22});
  constexpr std::size_t kLong = 1'500'000;
  pair.read(23, 0, kLong);
  pair.read(24, 2'000'000, 100);
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_TRUE(pair.a.sent().empty()) << "a part";
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), (Ids{23, 24}));
  EXPECT_TRUE(pair.arrived(0, kLong) && pair.arrived(2'000'000, 100));
}

TEST(LocalDirect, q055_what_drains_starts_no_read_with_the_one_that_has_begun) {
  Unmapped pair;
  constexpr std::size_t kLong = 1'500'000;
  pair.read(1, 0, kLong);
  pair.read(2, 2'000'000, 100);
  EXPECT_EQ(pair.calls(), 1u);
  ASSERT_TRUE(pair.a.go(QueuePairState::Sqd));
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
  EXPECT_FALSE(pair.arrived(2'000'000, 100));
  ASSERT_TRUE(pair.a.go(QueuePairState::Rts));
  EXPECT_EQ(pair.calls(), 1u);
  EXPECT_EQ(ids(pair.a.sent()), Ids{2});
}

TEST(LocalDirect, a_read_that_goes_wrong_takes_none_with_it) {
  {
    Unmapped pair;
    pair.read(1, 0, 100);
    pair.a.fetch_or_write(Op::RdmaRead, 2, 0, 100, pair.b, kRegion - 99);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::RemoteAccessError}));
    EXPECT_TRUE(pair.arrived(0, 100));
  }
  {
    Unmapped pair;
    pair.read(1, 0, 100);
    ScatterGather wrong = pair.a.sge(200, 64);
    wrong.lkey = LKey{1};
    SendRequest request;
    request.id = 2;
    request.opcode = Op::RdmaRead;
    request.local = {&wrong, 1};
    request.remote_address = pair.b.va(200);
    request.rkey = pair.b.region.rkey;
    pair.a.post(request);
    pair.read(3, 300, 100);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::LocalProtectionError, Status::Flushed}));
    EXPECT_TRUE(pair.arrived(0, 100));
    EXPECT_FALSE(pair.arrived(300, 100));
  }
}

TEST(LocalDirect, of_a_call_that_fails_every_read_comes_by_the_ring_and_of_a_dead_peer_none) {
  Unmapped pair;
  pair.of_b.unmapped = pair.a.data() + 200;  // as a page of ours that went: what it means is its owner's to say
  pair.read(1, 0, 100);
  pair.read(2, 200, 100);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::Success}));
  EXPECT_TRUE(pair.arrived(0, 100) && pair.arrived(200, 100));

  Unmapped dies;
  dies.of_b.gone = true;
  dies.read(1, 0, 100);
  dies.read(2, 200, 100);
  dies.a.transport->emit(dies.now);
  EXPECT_TRUE(dies.a.sent().empty());
  dies.a.transport->handle_hang_up(dies.now);
  EXPECT_EQ(statuses(dies.a.sent()), (Statuses{Status::RetryExceeded, Status::Flushed}));
}

TEST(LocalDirect, a_read_of_memory_that_is_not_mapped_needs_no_request_and_a_write_does) {
  Unmapped pair;
  for (const std::uint32_t length : {1u, 8u, 4096u, 1u << 20}) {
    EXPECT_TRUE(read_now(pair, length, 3));
    EXPECT_TRUE(pair.a.holds(0, {pair.b.data() + 3, pair.b.data() + 3 + length})) << length;
  }
  EXPECT_FALSE(write_now(pair, 8, 0));
  pair.of_b.unmapped = pair.a.data();
  EXPECT_FALSE(read_now(pair, 8, 0)) << "it is to be posted, and fails then";
  EXPECT_EQ(pair.a.counters.rdma_reads, 6u) << "two of them to begin with";

  Unmapped dies;
  dies.of_b.gone = true;
  EXPECT_FALSE(read_now(dies, 8, 0));
}

TEST(LocalDirect, q050_memory_of_our_own_that_is_wrong_ends_the_request_and_nothing_is_copied) {
  for (const Op opcode : {Op::RdmaWrite, Op::RdmaRead}) {
    Pair pair(direct());
    open_region(pair, opcode);
    const Bytes before(pair.b.data(), pair.b.data() + 64);
    ScatterGather wrong = pair.a.sge(0, 64);
    wrong.lkey = LKey{1};
    SendRequest request;
    request.id = 5;
    request.opcode = opcode;
    request.local = {&wrong, 1};
    request.remote_address = pair.b.va(0);
    request.rkey = pair.b.region.rkey;
    pair.a.post(request);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
    EXPECT_TRUE(pair.b.holds(0, before));
  }
}

TEST(LocalDirect, pieces_and_inline_bytes) {
  Given given = direct();
  given.max_inline = 64;
  Pair pair(given);
  open_region(pair);
  const Bytes bytes = pattern(1000);
  pair.a.put(0, bytes);
  const ScatterGather from[] = {pair.a.sge(0, 3), pair.a.sge(3, 0), pair.a.sge(3, 600), pair.a.sge(603, 397)};
  SendRequest request;
  request.opcode = Op::RdmaWrite;
  request.local = from;
  request.remote_address = pair.b.va(50);
  request.rkey = pair.b.region.rkey;
  pair.a.post(request);
  const Bytes own = pattern(16, 9);
  const ScatterGather inline_bytes{reinterpret_cast<std::uintptr_t>(own.data()), 16, LKey{}};
  request.local = {&inline_bytes, 1};
  request.flags = SendFlags::Inline;
  request.remote_address = pair.b.va(2000);
  pair.a.post(request);
  EXPECT_FALSE(pair.a.transport->emit(pair.now));
  EXPECT_TRUE(pair.b.holds(50, bytes) && pair.b.holds(2000, own));
}

TEST(LocalDirect, what_is_not_posted_waits_for_a_drain_and_reaches_no_peer_that_ended) {
  for (const bool reads : {false, true}) {
    const auto go = [reads](Pair& pair) { return reads ? read_now(pair, 8, 0) : write_now(pair, 8, 0); };
    {
      Pair pair(direct());
      open_region(pair);
      ASSERT_TRUE(pair.a.go(QueuePairState::Sqd));
      EXPECT_FALSE(go(pair)) << "q055";
      ASSERT_TRUE(pair.a.go(QueuePairState::Rts));
      EXPECT_TRUE(go(pair));
    }
    Pair pair(direct());
    open_region(pair);
    pair.end(pair.b);
    EXPECT_FALSE(go(pair));
  }
}

// What was copied before counts for nothing: the peer's ring knows of no part.
TEST(LocalDirect, a_region_that_goes_in_the_middle_of_a_copy_has_all_of_it_come_by_the_ring) {
  constexpr std::size_t kBytes = 2 << 20;
  Pair pair(direct());
  open_region(pair);
  const Bytes bytes = pattern(kBytes, 3);
  pair.a.put(0, bytes);
  const std::uint64_t before = pair.b.counters.served_write_bytes;
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, kBytes, pair.b, 0);
  pair.a.transport->emit(pair.now);
  ASSERT_FALSE(pair.b.holds(0, bytes)) << "a turn copies a part";
  ASSERT_TRUE(pair.b.transport->revoke(pair.b.region.rkey));
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
  EXPECT_TRUE(pair.b.holds(0, bytes));
  EXPECT_EQ(pair.b.counters.served_write_bytes - before, kBytes);
}

TEST(LocalDirect, r060_r061_a_peer_is_granted_what_its_requests_would_be_and_no_more) {
  {
    Given given = direct();
    given.qp_access = Access::RemoteWrite;
    Pair pair(direct(), given);
    const auto grant = pair.b.transport->grant(pair.b.region, true);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->access, Access::RemoteWrite) << "what the queue pair may";
  }
  Pair pair(direct());
  core::MemoryTable& memory = pair.b.memory;
  std::byte* const base = pair.b.data();
  const auto other = memory.register_region(core::PdId{7}, base, 64, 0, Access::All);
  EXPECT_FALSE(pair.b.transport->grant(*other, true)) << "of another protection domain";
  const auto kept = memory.register_region({}, base, 64, 0, Access::All | Access::NoDirect);
  EXPECT_FALSE(pair.b.transport->grant(*kept, true)) << "which its owner keeps";
  EXPECT_TRUE(pair.b.transport->grant(pair.b.region, true));
  pair.end(pair.a);
  const auto late = memory.register_region({}, base, 64, 0, Access::All);
  EXPECT_FALSE(pair.b.transport->grant(*late, true)) << "its peer has ended";
}

TEST(LocalDirect, memory_that_is_not_mapped_is_granted_to_who_can_copy_it_and_for_reading) {
  {
    Pair pair(direct(true));
    pair.run();
    const auto grant = pair.b.transport->grant(pair.b.region, false);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->access, Access::RemoteRead);
    EXPECT_EQ(grant->file, -1);
  }
  Pair pair(direct());
  pair.run();
  EXPECT_FALSE(pair.b.transport->grant(pair.b.region, false));
}

TEST(LocalDirect, a_region_that_was_not_asked_for_is_not_taken) {
  Pair pair(direct());
  open_region(pair);
  PeerRegion region;
  region.rkey = RKey{pair.b.region.rkey.value() ^ 1};
  region.base = pair.b.data();
  region.length = 8;
  EXPECT_FALSE(pair.a.transport->handle_region(region, true));
  region.rkey = pair.b.region.rkey;
  EXPECT_FALSE(pair.a.transport->handle_region(region, true)) << "nor twice";
}

}  // namespace
}  // namespace verbena::local
