// SPDX-License-Identifier: Apache-2.0
// What a queue pair does with the requests of its peer, whichever way they come.
#include <algorithm>

#include "both_ways.h"

namespace verbena::conformance {
namespace {

using S = QueuePairState;
using Op = SendOpcode;
using Status = CompletionStatus;

class Serving : public BothWays {};
INSTANTIATE_TEST_SUITE_P(, Serving, kWays, name_of);

// The request `id` was refused, what was posted behind it flushed, and both ends are in ERR.
void expect_refused(Talk& talk, Status status, AsyncEventType event) {
  talk.run();
  const Outcomes sent = talk.sent();
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0], (Outcome{1, status}));
  for (std::size_t i = 1; i < sent.size(); ++i) EXPECT_EQ(sent[i].status, Status::Flushed);
  EXPECT_EQ(talk.side(0).state(), S::Error);
  EXPECT_EQ(talk.side(1).state(), S::Error);
  EXPECT_EQ(talk.events(1), Events{event});
}

TEST_P(Serving, r011_requests_are_served_from_RTR_on_and_no_longer_in_ERR) {
  for (const S state : {S::Rtr, S::Rts, S::Sqd, S::Error}) {
    Given second = given();
    if (state == S::Rtr) second.state = S::Rtr;
    Talk talk(given(), second);
    ASSERT_TRUE(state <= S::Rts || talk.step(1, state));
    talk.near.put_word(0, 77);
    talk.write(1, 0, 8, 0);
    talk.run();
    const bool served = state != S::Error;
    EXPECT_EQ(talk.sent(), (Outcomes{{1, served ? Status::Success : Status::RetryExceeded}}))
        << to_string(state);
    EXPECT_EQ(talk.far.word(0), served ? 77u : 0u);
  }
}

TEST_P(Serving, r043_reads_and_atomics_stand_between_messages_of_any_length) {
  Talk talk(given());
  talk.near.put(0, pattern(9000));
  talk.far.put(20'000, pattern(3000, 5));
  talk.receive(20, 30'000, 3000);
  talk.write(1, 0, 3000, 0);
  talk.read(2, 10'000, 3000, 20'000);
  talk.send(3, 3000, 3000);
  talk.add(4, 15'000, 24'000, 3);
  talk.write(5, 6000, 3000, 6000);
  talk.swap(6, 15'008, 24'000, 3, 7);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}, {4}, {5}, {6}}));
  EXPECT_EQ(talk.received(), Outcomes{{20}});
  EXPECT_TRUE(talk.far.holds(0, cut(pattern(9000), 0, 3000)));
  EXPECT_TRUE(talk.far.holds(6000, cut(pattern(9000), 6000, 3000)));
  EXPECT_TRUE(talk.far.holds(30'000, cut(pattern(9000), 3000, 3000)));
  EXPECT_TRUE(talk.near.holds(10'000, pattern(3000, 5)));
  EXPECT_EQ(talk.near.word(15'000), 0u);
  EXPECT_EQ(talk.near.word(15'008), 3u);
  EXPECT_EQ(talk.far.word(24'000), 7u);
}

TEST_P(Serving, r058_a_message_longer_than_its_receive_fails_at_both_ends) {
  for (const std::uint32_t length : {101u, 1000u, 9000u}) {
    Talk talk(given());
    talk.near.fill(std::byte{7});
    talk.receive(20, 0, 100);
    talk.receive(21, 0, 100);
    talk.send(1, 0, length);
    talk.send(2, 0, 10);
    expect_refused(talk, Status::RemoteInvalidRequest, AsyncEventType::QpRequestError);
    EXPECT_EQ(talk.received(), (Outcomes{{20, Status::LocalLengthError}, {21, Status::Flushed}}));
    EXPECT_EQ(talk.far.bytes(100, 1)[0], std::byte{0}) << length;
  }
}

struct Need {
  Op opcode;
  Access right;
};
constexpr Need kNeeds[] = {{Op::RdmaWrite, Access::RemoteWrite},
                           {Op::RdmaWriteWithImmediate, Access::RemoteWrite},
                           {Op::RdmaRead, Access::RemoteRead},
                           {Op::FetchAndAdd, Access::RemoteAtomic},
                           {Op::CompareAndSwap, Access::RemoteAtomic}};

Access all_but(Access right) {
  return static_cast<Access>(static_cast<std::uint32_t>(Access::All) & ~static_cast<std::uint32_t>(right));
}

TEST_P(Serving, r060_r134_each_right_is_needed_of_the_region_and_of_the_queue_pair) {
  for (const Need& need : kNeeds)
    for (const bool of_region : {true, false}) {
      Given second = given();
      if (!of_region) second.access = all_but(need.right);
      Talk talk(given(), second);
      Memory region(talk.side(1).nic, talk.side(1).pd, 64, of_region ? all_but(need.right) : Access::All, {});
      talk.near.fill(std::byte{7});
      talk.post_receive(1, 20);
      talk.ask(1, need.opcode, 8, region.va(), region.rkey());
      talk.send(2, 0, 0);
      if (of_region)
        expect_refused(talk, Status::RemoteAccessError, AsyncEventType::QpAccessError);
      else
        expect_refused(talk, Status::RemoteInvalidRequest, AsyncEventType::QpRequestError);
      EXPECT_EQ(talk.received(), (Outcomes{{20, Status::Flushed}}));
      EXPECT_TRUE(region.all(std::byte{0}) && talk.near.all(std::byte{7}));
    }
}

// Once some of it has come, and before all has.
TEST_P(Serving, r060_a_right_that_is_taken_away_ends_what_is_under_way) {
  constexpr std::uint32_t kBytes = 60'000;
  for (const bool reads : {false, true}) {
    Talk talk(given());
    Memory& to = reads ? talk.near : talk.far;
    (reads ? talk.far : talk.near).fill(std::byte{7});
    bool partly = false;
    talk.watch = [&] {
      if (partly || to.bytes()[0] == std::byte{0} || to.bytes()[kBytes - 1] != std::byte{0}) return;
      partly = true;
      QueuePairAttributes values;
      values.access = all_but(reads ? Access::RemoteRead : Access::RemoteWrite);
      ASSERT_TRUE(talk.side(1).nic.modify_qp(talk.now(), talk.side(1).made.qpn, values, AttributeMask::Access));
    };
    talk.ask(1, reads ? Op::RdmaRead : Op::RdmaWrite, kBytes, talk.far.va(), talk.far.rkey());
    talk.run();
    if (partly) {
      EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RemoteInvalidRequest}})) << (reads ? "READ" : "WRITE");
      EXPECT_EQ(to.bytes()[kBytes - 1], std::byte{0});
    }
    EXPECT_TRUE(partly || pulls()) << "came at once";
  }
}

TEST_P(Serving, r066_a_bad_key_is_told_before_a_receive_is_wanted) {
  for (const std::uint32_t bytes : {8u, 200u, 300u, 20'000u}) {
    Talk talk(given());
    talk.ask(1, Op::RdmaWriteWithImmediate, bytes, talk.far.va(), RKey{0xbad});
    expect_refused(talk, Status::RemoteAccessError, AsyncEventType::QpAccessError);
  }
}

TEST_P(Serving, f30_what_is_stored_after_deregistration_reaches_no_peer) {
  constexpr std::uint32_t kBytes = 40'000;
  Talk talk(given());
  soft::Nic& nic = talk.side(0).nic;
  Memory source(nic, talk.side(0).pd, kBytes, Access::All, {});
  source.fill(std::byte{7});
  talk.receive(20, 0, kBytes);
  talk.stop(1);
  const auto send = [&](std::uint64_t id) { talk.post(0, id, Op::Send, {source.sge(0, kBytes)}); };
  send(1);
  talk.pass(Duration::microseconds(1));
  nic.take_back_named(talk.now(), source.lkey());
  ASSERT_TRUE(nic.deregister_memory(source.lkey()));
  source.fill(std::byte{9});
  talk.resume(1);
  talk.run();
  const Outcomes sent = talk.sent(), received = talk.received();  // what was copied before may be sent
  if (pulls()) {
    EXPECT_EQ(sent, (Outcomes{{1, Status::LocalProtectionError}}));
  }
  const bool came = !received.empty() && received[0].status == Status::Success;
  EXPECT_EQ(came, sent == Outcomes{{1}});
  EXPECT_TRUE(!came || talk.far.bytes()[kBytes - 1] == std::byte{7});
}

TEST_P(Serving, f30_memory_that_no_peer_copies_from_may_go_when_its_bytes_have_left) {
  constexpr std::uint32_t kBytes = 17'000;
  Talk talk(given());
  soft::Nic& nic = talk.side(0).nic;
  Memory other(nic, talk.side(0).pd, kBytes, Access::All, {});
  Memory source(nic, talk.side(0).pd, kBytes, Access::All | Access::NoDirect, {});
  talk.receive(20, 0, kBytes);
  talk.receive(21, 20'000, kBytes);
  talk.stop(1);
  talk.post(0, 1, Op::Send, {source.sge(0, kBytes)});
  talk.post(0, 2, Op::Send, {other.sge(0, kBytes)});
  talk.pass(Duration::microseconds(1));
  nic.take_back_named(talk.now(), source.lkey());
  EXPECT_EQ(talk.side(0).state(), S::Rts);
  nic.take_back_named(talk.now(), other.lkey());
  talk.resume(1);
  talk.run();
  const bool named = pulls() && talk.side(0).state() == S::Error;
  EXPECT_EQ(talk.sent(), named ? (Outcomes{{1, Status::LocalProtectionError}, {2, Status::Flushed}})
                               : (Outcomes{{1}, {2}}));
}

TEST_P(Serving, f30_what_the_peer_has_said_it_has_is_done_though_nobody_looked) {
  constexpr std::uint32_t kBytes = 40'000;
  Talk talk(given());
  soft::Nic& nic = talk.side(0).nic;
  Memory source(nic, talk.side(0).pd, kBytes, Access::All, {});
  talk.receive(20, 0, kBytes);
  talk.post(0, 1, Op::Send, {source.sge(0, kBytes)});
  talk.watch = [&] {
    if (!talk.side(1).receives.empty()) talk.stop(0);
  };
  talk.run(Duration::microseconds(1));
  nic.take_back_named(talk.now(), source.lkey());
  ASSERT_TRUE(nic.deregister_memory(source.lkey()));
  talk.watch = {};
  talk.resume(0);
  talk.run();
  if (pulls()) {
    EXPECT_EQ(talk.sent(), Outcomes{{1}});
    EXPECT_EQ(talk.received(), Outcomes{{20}});
  }
}

TEST_P(Serving, r061_r066_keys_of_another_domain_and_of_regions_that_went_open_nothing) {
  for (const Need& need : kNeeds)
    for (const bool went : {true, false}) {
      Talk talk(given());
      soft::Nic& nic = talk.side(1).nic;
      Memory region(nic, went ? talk.side(1).pd : nic.create_pd().value(), 64, Access::All, {});
      ASSERT_TRUE(!went || nic.deregister_memory(region.lkey()));
      talk.near.fill(std::byte{7});
      talk.post_receive(1, 20);
      talk.ask(1, need.opcode, 8, region.va(), region.rkey());
      expect_refused(talk, Status::RemoteAccessError, AsyncEventType::QpAccessError);
      EXPECT_TRUE(region.all(std::byte{0}) && talk.near.all(std::byte{7}));
    }
}

TEST_P(Serving, r062_r063_no_byte_outside_the_region_front_rear_or_round_the_end) {
  constexpr std::uint64_t kTop = 0 - std::uint64_t{4096};
  struct Case {
    std::uint64_t iova, offset;
    std::uint32_t length;
    bool fits;
  };
  constexpr Case kCases[] = {{0x10000, 4088, 8, true},
                             {0x10000, 4096, 8, false},
                             {0x10000, 4088, 16, false},
                             {0x10000, 0 - std::uint64_t{8}, 16, false},
                             {0x10000, 0 - std::uint64_t{8}, 8, false},
                             {kTop, 4088, 8, true},
                             {kTop, 4088, 16, false},
                             {kTop, 4096, 8, false}};
  for (const Need& need : kNeeds)
    for (const Case& c : kCases) {
      const bool atomic = need.right == Access::RemoteAtomic;
      if (atomic && c.length != 8) continue;
      Talk talk(given());
      Memory region(talk.side(1).nic, talk.side(1).pd, 4096, Access::All, c.iova);
      talk.near.fill(std::byte{7});
      talk.post_receive(1, 20);
      talk.ask(1, need.opcode, c.length, region.va(c.offset), region.rkey());
      if (!c.fits) {
        expect_refused(talk, Status::RemoteAccessError, AsyncEventType::QpAccessError);
        EXPECT_TRUE(region.all(std::byte{0}) && talk.near.all(std::byte{7}));
        continue;
      }
      talk.run();
      EXPECT_EQ(talk.sent(), Outcomes{{1}});
    }
}

TEST_P(Serving, r064_r086_of_no_bytes_neither_key_nor_address_is_looked_at) {
  Talk talk(given());
  talk.post_receive(1, 20);
  talk.ask(1, Op::RdmaWrite, 0, 12345, RKey{0xbad});
  talk.ask(2, Op::RdmaRead, 0, 12345, RKey{0xbad});
  talk.ask(3, Op::RdmaWriteWithImmediate, 0, 12345, RKey{0xbad});
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}}));
  EXPECT_EQ(talk.received(), Outcomes{{20}});
}

TEST_P(Serving, r065_an_atomic_that_is_not_aligned_is_an_invalid_request) {
  for (const Op op : {Op::FetchAndAdd, Op::CompareAndSwap}) {
    Talk talk(given());
    talk.ask(1, op, 8, talk.far.va(4), talk.far.rkey());
    expect_refused(talk, Status::RemoteInvalidRequest, AsyncEventType::QpRequestError);
    EXPECT_TRUE(talk.far.all(std::byte{0}));
  }
}

TEST_P(Serving, r067_r068_of_a_write_that_ends_outside_no_byte_is_placed) {
  Talk talk(given());
  Memory region(talk.side(1).nic, talk.side(1).pd, 9000, Access::All, {});
  talk.near.fill(std::byte{7});
  talk.ask(1, Op::RdmaWrite, 9001, region.va(), region.rkey());
  expect_refused(talk, Status::RemoteAccessError, AsyncEventType::QpAccessError);
  EXPECT_TRUE(region.all(std::byte{0}));
}

TEST_P(Serving, r067_a_region_that_goes_in_the_middle_of_a_write_takes_no_further_byte) {
  Talk talk(given());
  Memory region(talk.side(1).nic, talk.side(1).pd, 60'000, Access::All, {});
  talk.near.fill(std::byte{7});
  std::size_t placed = 0;
  const auto count = [&region] {
    return static_cast<std::size_t>(std::count(region.data(), region.data() + region.size(), std::byte{7}));
  };
  talk.watch = [&] {
    if (placed != 0 || region.bytes()[0] == std::byte{0}) return;
    placed = count();
    ASSERT_TRUE(talk.side(1).nic.deregister_memory(region.lkey()));
  };
  talk.ask(1, Op::RdmaWrite, 60'000, region.va(), region.rkey());
  talk.run();
  if (pulls()) return;  // one record names it all
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RemoteAccessError}}));
  EXPECT_GT(placed, 0u);
  EXPECT_LT(placed, region.size());
  EXPECT_EQ(count(), placed);
}

TEST_P(Serving, r031_a_region_that_goes_in_the_middle_of_a_read_ends_it) {
  Given in_one_train = given();  // all of the answer has left when the region goes
  in_one_train.path_mtu = 1024;
  Talk talk(in_one_train);
  Memory region(talk.side(1).nic, talk.side(1).pd, 60'000, Access::All, {});
  region.fill(std::byte{7});
  bool went = false;
  talk.watch = [&] {
    if (went || talk.near.bytes()[0] == std::byte{0}) return;
    went = true;
    ASSERT_NE(talk.near.bytes(59'999, 1)[0], std::byte{7});
    ASSERT_TRUE(talk.side(1).nic.deregister_memory(region.lkey()));
    region.fill(std::byte{8});
  };
  talk.ask(1, Op::RdmaRead, 60'000, region.va(), region.rkey());
  const Instant begun = talk.now();
  int answers = 0;  // by packets most are lost, so that the rest is asked for again
  talk.hook = [&](int from, Bytes&) {
    return from == 1 && talk.now() == begun && ++answers > 10 ? Fate::Drop : Fate::Deliver;
  };
  talk.run();
  ASSERT_TRUE(went);
  EXPECT_EQ(talk.sent(), (Outcomes{{1, Status::RemoteAccessError}}));
  EXPECT_EQ(std::count(talk.near.data(), talk.near.data() + 60'000, std::byte{8}), 0);
}

// ---- Receives

TEST_P(Serving, r070_r071_q025_what_finds_no_receive_waits_and_all_behind_it_with_it) {
  Given slow = given();
  slow.min_rnr_timer = 20;  // 10.24 ms
  slow.retry_count = 0;
  slow.timeout = 8;  // about a millisecond: the peer is alive
  Talk talk(slow);
  talk.near.put(0, pattern(3000));
  talk.send(1, 0, 1000);
  talk.write(2, 1000, 1000, 1000);
  talk.send(3, 2000, 1000);
  talk.pass(Duration::milliseconds(5));
  talk.receive(20, 0, 1000);
  talk.receive(21, 2000, 1000);
  talk.pass(Duration::milliseconds(5));
  EXPECT_EQ(talk.sent(), Outcomes{});
  EXPECT_TRUE(talk.far.all(std::byte{0})) << "nothing behind the refused one is executed";
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}}));
  EXPECT_EQ(talk.received(), (Outcomes{{20}, {21}}));
  EXPECT_TRUE(talk.far.holds(0, pattern(3000)));
}

TEST_P(Serving, r072_a_write_with_immediate_needs_its_receive_at_the_end_and_no_room_in_it) {
  Talk talk(given());
  talk.near.put(0, pattern(3000));
  talk.write_immediate(1, 0, 3000, 0);
  talk.pass(Duration::microseconds(300));
  EXPECT_EQ(talk.received(), Outcomes{});
  EXPECT_TRUE(pulls() || talk.far.holds(0, cut(pattern(3000), 0, 256)));
  talk.post_receive(1, 20);
  talk.run();
  EXPECT_EQ(talk.sent(), Outcomes{{1}});
  EXPECT_TRUE(talk.far.holds(0, pattern(3000)));
  ASSERT_EQ(talk.side(1).receives.size(), 1u);
  EXPECT_EQ(talk.side(1).receives[0].opcode, CompletionOpcode::ReceiveRdmaWithImmediate);
  EXPECT_EQ(talk.side(1).receives[0].byte_count, 3000u);
}

TEST_P(Serving, r073_r074_receives_end_in_their_order_and_say_what_came) {
  Talk talk(given());
  for (std::uint64_t id = 20; id < 24; ++id) talk.receive(id, 0, 5000);
  SendRequest request;
  const ScatterGather piece = talk.near.sge(0, 77);
  request.opcode = Op::SendWithImmediate;
  request.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  request.local = {&piece, 1};
  talk.send(1, 0, 0);
  talk.post(0, request);
  talk.write_immediate(2, 0, 3000, 5000);
  talk.send(3, 0, 5000);
  talk.run();
  const std::vector<Completion>& all = talk.side(1).receives;
  ASSERT_EQ(all.size(), 4u);
  constexpr std::uint32_t kBytes[] = {0, 77, 3000, 5000};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].id, 20 + i);
    EXPECT_EQ(all[i].status, Status::Success);
    EXPECT_EQ(all[i].byte_count, kBytes[i]);
    EXPECT_EQ(all[i].with_immediate, i == 1 || i == 2);
    EXPECT_EQ(all[i].opcode, i == 2 ? CompletionOpcode::ReceiveRdmaWithImmediate : CompletionOpcode::Receive);
    EXPECT_EQ(all[i].qpn, talk.side(1).made.qpn);
  }
  EXPECT_EQ(all[1].immediate[3], std::byte{4});
  EXPECT_EQ(all[2].immediate[3], std::byte{6});
}

TEST_P(Serving, q006_r078_q018_pieces_here_and_there_with_empty_ones_between) {
  Talk talk(given());
  const Bytes bytes = pattern(2000);
  talk.near.put(0, bytes);
  talk.post_receive(
      1, 20,
      {talk.far.sge(9000, 1), talk.far.sge(0, 0), talk.far.sge(9001, 1699), talk.far.sge(12'000, 900)});
  talk.post(0, 1, Op::Send,
            {talk.near.sge(0, 300), talk.near.sge(5, 0), talk.near.sge(300, 1), talk.near.sge(301, 1699)});
  talk.post(0, 2, Op::RdmaRead, {talk.near.sge(20'000, 7), talk.near.sge(0, 0), talk.near.sge(21'000, 1500)},
            talk.far.va(9000), talk.far.rkey());
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}}));
  EXPECT_TRUE(talk.far.holds(9000, cut(bytes, 0, 1700)));
  EXPECT_TRUE(talk.far.holds(12'000, cut(bytes, 1700, 300)));
  EXPECT_EQ(talk.far.bytes(12'300, 1)[0], std::byte{0});
  EXPECT_TRUE(talk.near.holds(20'000, cut(bytes, 0, 7)));
  EXPECT_TRUE(talk.near.holds(21'000, cut(bytes, 7, 1500)));
  EXPECT_EQ(talk.near.bytes(20'007, 1)[0], std::byte{0});
  EXPECT_EQ(talk.near.bytes(22'500, 1)[0], std::byte{0});
}

TEST_P(Serving, r079_a_receive_into_bad_memory_fails_at_both_ends) {
  for (const bool went : {true, false}) {
    Talk talk(given());
    Memory region(talk.side(1).nic, talk.side(1).pd, 64, Access::All, {});
    talk.near.fill(std::byte{7});
    talk.post_receive(1, 20, {{region.va(), 64, went ? region.lkey() : LKey{0xbad}}});
    ASSERT_TRUE(!went || talk.side(1).nic.deregister_memory(region.lkey()));
    talk.send(1, 0, 8);
    expect_refused(talk, Status::RemoteOperationError, AsyncEventType::QpRequestError);
    EXPECT_EQ(talk.received(), (Outcomes{{20, Status::LocalProtectionError}}));
    EXPECT_TRUE(region.all(std::byte{0}));
  }
}

// ---- READ and atomics

TEST_P(Serving, r082_who_serves_no_reads_any_more_is_not_read) {
  Talk talk(given());
  const auto read_one = [&](std::uint64_t id) {
    talk.read(id, 0, 100, 0);
    talk.run();
  };
  for (std::uint64_t id = 1; id <= 4; ++id) read_one(id);
  ASSERT_TRUE(talk.step(1, S::Sqd));
  QueuePairAttributes values;
  values.max_dest_rd_atomic = 0;
  ASSERT_TRUE(talk.side(1).nic.modify_qp(talk.now(), talk.side(1).made.qpn, values, AttributeMask::MaxDestRdAtomic));
  read_one(5);
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3}, {4}, {5, Status::RemoteInvalidRequest}}));
}

TEST_P(Serving, r082_more_reads_than_it_has_resources_for_are_an_invalid_request) {
  Given second = given();
  second.max_dest_rd_atomic = 0;
  for (const Op op : {Op::RdmaRead, Op::FetchAndAdd, Op::CompareAndSwap}) {
    Talk talk(given(), second);
    talk.ask(1, op, 8, talk.far.va(), talk.far.rkey());
    expect_refused(talk, Status::RemoteInvalidRequest, AsyncEventType::QpRequestError);
  }
  second.max_dest_rd_atomic = 2;
  Talk talk(given(), second);
  for (std::uint64_t id = 1; id <= 4; ++id) talk.read(id, 0, 8, 0);
  talk.run();
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}, {3, Status::RemoteInvalidRequest}, {4, Status::Flushed}}));
}

TEST_P(Serving, r083_r084_r085_q019_atomics_happen_once_and_bring_what_was_there_in_host_order) {
  Talk talk(given());
  soft::Nic::QpInit init[2];
  core::QueuePair* others[2];
  for (const int i : {0, 1}) {
    init[i].pd = talk.side(i).pd;
    init[i].send_cq = init[i].receive_cq = talk.side(i).send_cq;
    init[i].capabilities = {64, 64, 1, 1, 0};
    others[i] = talk.side(i).nic.create_qp(init[i]).value().queues;
  }
  talk.join(others[0]->qpn(), others[1]->qpn());
  constexpr std::uint64_t kAdds = 40, kStep = 0x0102030405060708;
  for (std::uint64_t i = 0; i < kAdds; ++i) {
    talk.add(i, static_cast<std::uint32_t>(i * 16), 8, kStep);
    const ScatterGather piece = talk.near.sge(i * 16 + 8, 8);
    SendRequest request;
    request.opcode = Op::FetchAndAdd;
    request.local = {&piece, 1};
    request.remote_address = talk.far.va(8);
    request.rkey = talk.far.rkey();
    request.swap_or_add = kStep;
    ASSERT_TRUE(others[0]->post_send({&request, 1}));
    talk.side(0).nic.ring_doorbell(*others[0]);
  }
  talk.run();
  EXPECT_EQ(talk.sent().size(), 2 * kAdds);
  EXPECT_EQ(talk.far.word(8), 2 * kAdds * kStep);
  std::vector<bool> seen(2 * kAdds, false);
  for (std::uint64_t i = 0; i < 2 * kAdds; ++i) {
    const std::uint64_t before = talk.near.word(i * 8) / kStep;
    ASSERT_EQ(talk.near.word(i * 8), before * kStep);
    ASSERT_LT(before, 2 * kAdds);
    EXPECT_FALSE(seen[before]) << "two saw the same";
    seen[before] = true;
  }
  talk.swap(1, 0, 8, 1, 2);  // it is not 1
  talk.swap(2, 8, 8, 2 * kAdds * kStep, 5);
  talk.run();
  EXPECT_EQ(talk.near.word(0), 2 * kAdds * kStep);
  EXPECT_EQ(talk.near.word(8), 2 * kAdds * kStep);
  EXPECT_EQ(talk.far.word(8), 5u);
}

TEST_P(Serving, r092_when_a_request_completes_its_data_and_receive_are_there) {
  Talk talk(given());
  talk.near.put(0, pattern(9000));
  for (std::uint64_t id = 0; id < 8; ++id) {
    talk.receive(id, static_cast<std::uint32_t>(id * 1000), 1000);
    talk.send(id, static_cast<std::uint32_t>(id * 1000), 1000);
  }
  std::size_t seen = 0;
  talk.watch = [&] {
    for (; seen < talk.side(0).sends.size(); ++seen) {
      EXPECT_LT(seen, talk.side(1).receives.size());
      EXPECT_TRUE(talk.far.holds(seen * 1000, talk.near.bytes(seen * 1000, 1000)));
    }
  };
  talk.run();
  EXPECT_EQ(seen, 8u);
}

TEST_P(Serving, r081_r094_what_stood_before_a_refused_request_succeeds_and_nothing_behind_it_is_done) {
  Talk talk(given());
  talk.far.put(0, pattern(3000));
  talk.near.put_word(8000, 77);
  talk.read(1, 0, 3000, 0);
  talk.write(2, 8000, 8, 8000);
  talk.ask(3, Op::RdmaWrite, 8, talk.far.va(), RKey{0xbad});
  talk.write(4, 8000, 8, 9000);
  talk.add(5, 8008, 9000, 1);
  talk.run();
  EXPECT_EQ(talk.sent(),
            (Outcomes{{1}, {2}, {3, Status::RemoteAccessError}, {4, Status::Flushed}, {5, Status::Flushed}}));
  EXPECT_TRUE(talk.near.holds(0, pattern(3000)));
  EXPECT_EQ(talk.far.word(8000), 77u);
  EXPECT_EQ(talk.far.word(9000), 0u);
}

// ---- Events

bool completion_event(soft::Nic& nic) {
  bool any = false;
  while (const auto event = nic.poll_event()) any |= event->kind == core::Event::Kind::Completion;
  return any;
}

TEST_P(Serving, r130_r131_solicited_messages_wake_who_waits_for_them_once_for_each_arm) {
  Talk talk(given());
  soft::Nic& nic = talk.side(1).nic;
  for (std::uint64_t id = 0; id < 4; ++id) talk.receive(id, 0, 8);
  nic.cq(talk.side(1).receive_cq)->arm(true);
  talk.send(1, 0, 8);
  talk.run();
  EXPECT_FALSE(completion_event(nic));
  talk.send(2, 0, 8, SendFlags::Signaled | SendFlags::Solicited);
  talk.run();
  EXPECT_TRUE(completion_event(nic));
  talk.send(3, 0, 8, SendFlags::Signaled | SendFlags::Solicited);
  talk.run();
  EXPECT_FALSE(completion_event(nic));
  nic.cq(talk.side(1).receive_cq)->arm(true);
  ASSERT_TRUE(talk.step(1, S::Error));
  EXPECT_TRUE(completion_event(nic)) << "a failure wakes in any case";
}

TEST_P(Serving, r132_a_queue_that_overruns_breaks_its_queue_pairs_and_keeps_what_was_unread) {
  Given second = given();
  second.cq_entries = 2;
  Talk talk(given(), second);
  talk.side(1).polls = false;
  for (std::uint64_t id = 20; id < 24; ++id) talk.receive(id, 0, 8);
  for (std::uint64_t id = 1; id <= 3; ++id) talk.send(id, 0, 8);
  talk.run();
  EXPECT_EQ(talk.events(1), (Events{AsyncEventType::CqError, AsyncEventType::QpFatal}));
  EXPECT_EQ(talk.side(1).state(), S::Error);
  Outcomes sent = talk.sent();
  ASSERT_EQ(sent.size(), 3u);
  std::erase_if(sent, [](const Outcome& o) { return o.status == Status::Success; });
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].status, Status::RetryExceeded) << "what overran was not acknowledged";
  talk.side(1).polls = true;
  talk.run();
  EXPECT_EQ(talk.received(), (Outcomes{{20}, {21}}));
}

TEST_P(Serving, r132_nothing_begins_on_a_queue_that_overran) {
  Given second = given();
  second.cq_entries = 2;
  Talk talk(given(), second);
  talk.side(1).polls = false;
  for (std::uint64_t id = 20; id < 24; ++id) talk.receive(id, 0, 8);
  ASSERT_TRUE(talk.step(1, S::Error));
  talk.run();
  Pair::Side& side = talk.side(1);
  ASSERT_TRUE(talk.step(1, S::Reset));
  ASSERT_TRUE(talk.step(1, S::Reset));
  QueuePairAttributes values;
  values.state = S::Init;
  const auto mask = AttributeMask::State | AttributeMask::PkeyIndex | AttributeMask::Port | AttributeMask::Access;
  EXPECT_EQ(side.nic.modify_qp(talk.now(), side.made.qpn, values, mask).error().code(), ErrorCode::WrongState);
  soft::Nic::QpInit another;
  another.pd = side.pd;
  another.send_cq = side.send_cq;
  another.receive_cq = side.receive_cq;
  EXPECT_EQ(side.nic.create_qp(another).error().code(), ErrorCode::WrongState);
}

TEST_P(Serving, r133_the_first_request_in_RTR_is_told_once_as_established_communication) {
  Given second = given();
  second.state = S::Rtr;
  Talk talk(given(), second);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    talk.receive(id, 0, 8);
    talk.send(id, 0, 8);
    talk.run();
  }
  EXPECT_EQ(talk.sent(), (Outcomes{{1}, {2}}));
  EXPECT_EQ(talk.events(1), Events{AsyncEventType::CommEstablished});
}

}  // namespace
}  // namespace verbena::conformance
