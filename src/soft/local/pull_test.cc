// SPDX-License-Identifier: Apache-2.0
// Payload that the responder copies out of the requester's memory: the same rules, and what only this way can go wrong.
#include <gtest/gtest.h>

#include <utility>

#include "base/fault_guard.h"
#include "soft/local/test_pair.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

using namespace testing;

constexpr std::size_t kLarge = 3 * kMaxPulledBytes + 1001;

Given pulling(std::uint32_t from = 1000, std::size_t memory_bytes = 4 << 20) {
  Given given;
  given.pulls = true;
  given.config.pull_from_bytes = from;
  given.memory_bytes = memory_bytes;
  return given;
}

TEST(LocalPull, r073_o1_o2_messages_of_every_length_arrive_whole_and_the_long_ones_by_one_copy) {
  for (const std::uint32_t capacity : {512u, 4096u}) {
    Given given = pulling();
    given.capacity = capacity;
    Pair pair(given);
    std::uint64_t pulled = 0;
    pair.run();
    for (const std::size_t length : {0ul, 999ul, 1000ul, 1003ul, std::size_t{kMaxPulledBytes}, kLarge}) {
      const Bytes bytes = pattern(length, static_cast<unsigned>(length));
      pair.a.put(0, bytes);
      pair.b.receive(7, 0, length + 3);
      pair.b.receive(8, 0, 0);
      pair.a.send(1, 0, length);
      pair.a.fetch_or_write(Op::RdmaWriteWithImmediate, 2, 0, length, pair.b, 2 << 20);
      pair.run();
      const auto received = pair.b.received();
      ASSERT_EQ(ids(received), (Ids{7, 8})) << length;
      EXPECT_EQ(received[0].byte_count, length);
      EXPECT_EQ(received[1].byte_count, length);
      EXPECT_TRUE(received[1].with_immediate);
      EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::Success}));
      EXPECT_TRUE(pair.b.holds(0, bytes) && pair.b.holds(2 << 20, bytes)) << length;
      EXPECT_TRUE(pair.b.holds((2 << 20) + length, Bytes(8)));
      if (length >= 1000) pulled += 2 * length;
      EXPECT_EQ(pair.of_a.bytes, pulled) << length;
    }
  }
}

TEST(LocalPull, memory_that_is_not_to_be_reached_straight_goes_through_the_ring) {
  Given given = pulling();
  given.memory_access = Access::All | Access::NoDirect;
  Pair pair(given);
  pair.run();
  const Bytes bytes = pattern(kLarge);
  pair.a.put(0, bytes);
  pair.b.receive(7, 0, kLarge);
  pair.a.send(1, 0, kLarge);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, kLarge, pair.b, 2 << 20);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::Success}));
  EXPECT_TRUE(pair.b.holds(0, bytes) && pair.b.holds(2 << 20, bytes));
  EXPECT_EQ(pair.of_a.bytes, 0u);
}

// Memory of `a` that `b` may map, and named so often that it does.
class MappedSource : public ::testing::Test {
 protected:
  static Given given() {
    Given made = pulling();
    made.direct = true;
    made.file = 0;
    return made;
  }
  // As many bytes came by the kernel as before.
  void send(std::size_t length, std::uint64_t by_kernel) {
    const Bytes bytes = pattern(length, static_cast<unsigned>(++sent));
    pair.a.put(0, bytes);
    pair.b.receive(sent, 5, length);
    pair.a.send(sent, 0, length);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
    EXPECT_EQ(ids(pair.b.received()), Ids{sent});
    EXPECT_TRUE(pair.b.holds(5, bytes));
    EXPECT_EQ(pair.of_a.bytes - pulled, by_kernel);
    pulled = pair.of_a.bytes;
  }
  void open() {
    pair.run();
    for (int i = 0; i < 2; ++i) send(4000, 4000);
    ASSERT_EQ(pair.regions_of_a.asked, std::vector<RKey>{pair.a.region.rkey});
    ASSERT_TRUE(pair.regions_of_a.answer(pair.b, pair.a));
  }

  Pair pair{given()};
  std::uint64_t sent = 0, pulled = 0;
};

TEST_F(MappedSource, o1_o4_is_copied_without_the_kernel) {
  open();
  for (const std::size_t length : {std::size_t{1000}, std::size_t{1003}, std::size_t{kMaxPulledBytes}, kLarge})
    send(length, 0);
  const Bytes bytes = pattern(kLarge);
  pair.a.put(0, bytes);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, kLarge, pair.b, 2 << 20);
  pair.run();
  EXPECT_TRUE(pair.b.holds(2 << 20, bytes));
  EXPECT_EQ(pair.of_a.bytes, pulled);
}

// Too short to be worth the kernel's call, but not to be copied once instead of twice.
TEST_F(MappedSource, is_named_now_and_then_and_by_short_messages_once_it_is_mapped) {
  pair.run();
  const auto is_named = [this](std::size_t length) {
    const Bytes bytes = pattern(length, static_cast<unsigned>(++sent));
    pair.a.put(0, bytes);
    pair.b.receive(sent, 5, length);
    pair.a.send(sent, 0, length);
    while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
    const bool named = pair.a.transport->names(pair.a.region.lkey);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
    EXPECT_EQ(ids(pair.b.received()), Ids{sent});
    EXPECT_TRUE(pair.b.holds(5, bytes));
    return named;
  };
  Ids named;
  while (sent != 97)
    if (is_named(600)) named.push_back(sent);
  EXPECT_EQ(named, (Ids{33, 97}));
  EXPECT_EQ(pair.of_a.bytes, 2 * 600u);
  ASSERT_EQ(pair.regions_of_a.asked, std::vector<RKey>{pair.a.region.rkey});
  ASSERT_TRUE(pair.regions_of_a.answer(pair.b, pair.a));
  EXPECT_TRUE(is_named(600));
  EXPECT_TRUE(is_named(512));
  EXPECT_FALSE(is_named(511));
  EXPECT_EQ(pair.of_a.bytes, 2 * 600u) << "no more by the kernel";
  pair.a.transport->revoke(pair.a.region.rkey);
  EXPECT_FALSE(is_named(600));
}

TEST_F(MappedSource, is_copied_by_the_kernel_again_once_it_was_taken_back) {
  open();
  send(4000, 0);
  pair.a.transport->revoke(pair.a.region.rkey);
  send(4000, 4000);
  EXPECT_EQ(pair.regions_of_a.dropped, std::vector<RKey>{pair.a.region.rkey});
}

// As it is when the grant is taken back between the record and the copy.
TEST_F(MappedSource, is_copied_by_the_kernel_where_the_grant_fell_before_the_copy) {
  open();
  const Bytes bytes = pattern(4000);
  pair.a.put(0, bytes);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 4000, pair.b, 100);
  while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
  pair.a.transport->revoke(pair.a.region.rkey);
  pair.run();
  EXPECT_TRUE(pair.b.holds(100, bytes));
  EXPECT_EQ(pair.of_a.bytes, pulled + 4000);
}

// The key says where to look, and what was granted counts: neither before its beginning nor behind its end.
TEST(PeerRegion, F21_is_not_left_by_the_peers_addresses) {
  std::array<std::byte, 256> here{};
  PeerRegion region;
  region.base = here.data();
  region.address = 0x10000;
  region.length = here.size();
  region.access = Access::RemoteRead;
  EXPECT_EQ(region.mapped(0x10000, 256), here.data());
  EXPECT_EQ(region.mapped(0x10009, 247), here.data() + 9);
  EXPECT_EQ(region.mapped(0xffff, 1), nullptr);
  EXPECT_EQ(region.mapped(0x10001, 256), nullptr);
  EXPECT_EQ(region.mapped(~std::uint64_t{0} - 99, 100), nullptr);
  region.access = Access::RemoteWrite;
  EXPECT_EQ(region.mapped(0x10000, 1), nullptr);
}

TEST_F(MappedSource, in_several_pieces_is_copied_by_the_kernel) {
  open();
  const ScatterGather from[] = {pair.a.sge(0, 2000), pair.a.sge(3000, 2000)};
  SendRequest request;
  request.local = from;
  pair.b.receive(7, 0, 4000);
  pair.a.post(request);
  pair.run();
  EXPECT_EQ(ids(pair.b.received()), Ids{7});
  EXPECT_EQ(pair.of_a.bytes, pulled + 4000);
}

TEST(LocalPull, memory_that_the_peer_may_not_read_is_never_asked_for) {
  for (const int why : {0, 1, 2}) {
    Given given = pulling();
    given.direct = true;
    given.file = 0;
    if (why == 0) given.memory_access = Access::LocalWrite | Access::RemoteWrite;
    if (why == 1) given.qp_access = Access::RemoteWrite;
    if (why == 2) given.max_dest_rd_atomic = 0;
    Pair pair(given);
    pair.run();
    for (int i = 0; i < 4; ++i) {
      pair.b.receive(7, 0, 4000);
      pair.a.send(1, 0, 4000);
      pair.run();
    }
    EXPECT_TRUE(pair.regions_of_a.asked.empty()) << why;
    EXPECT_EQ(pair.of_a.bytes, 16'000u);
  }
}

TEST_F(MappedSource, is_not_asked_for_by_one_long_message) {
  pair.run();
  send(kLarge, kLarge);
  EXPECT_TRUE(pair.regions_of_a.asked.empty());
  send(kLarge, kLarge);
  EXPECT_EQ(pair.regions_of_a.asked.size(), 1u);
}

// However many regions the peer sends from, most of its grants are left to what this side asks for by itself.
TEST_F(MappedSource, takes_few_of_the_grants_there_are) {
  pair.run();
  for (int i = 0; i < 40; ++i) {
    const auto region =
        *pair.a.memory.register_region({}, pair.a.data() + 4096 * i, 4096, 1 << 20, Access::All, 0);
    const ScatterGather local{region.iova, 4096, region.lkey};
    for (int twice = 0; twice < 2; ++twice) {
      SendRequest request;
      request.local = {&local, 1};
      pair.b.receive(7, 0, 4096);
      pair.a.post(request);
      pair.run();
    }
  }
  EXPECT_EQ(pair.regions_of_a.asked.size(), 8u);
  EXPECT_EQ(pair.of_a.bytes, 80u * 4096);
}

TEST(LocalPull, q006_r078_pieces_here_and_there_and_more_of_them_than_a_record_names) {
  Pair pair(pulling(1));
  pair.run();
  const Bytes bytes = pattern(70'000);
  pair.a.put(0, bytes);
  const ScatterGather from[] = {pair.a.sge(0, 3),      pair.a.sge(3, 0),      pair.a.sge(3, 600),   pair.a.sge(603, 97),
                                pair.a.sge(700, 9300), pair.a.sge(10'000, 1), pair.a.sge(10'001, 59'999)};
  const ScatterGather to[] = {pair.b.sge(100'001, 1), pair.b.sge(0, 0), pair.b.sge(100'002, 69'996),
                              pair.b.sge(169'998, 3)};
  const ReceiveRequest receive{4, to};
  ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
  SendRequest request;
  request.local = from;
  pair.a.post(request);
  pair.run();
  EXPECT_TRUE(pair.b.holds(100'001, bytes));
  EXPECT_EQ(pair.b.received()[0].byte_count, 70'000u);
  EXPECT_EQ(pair.of_a.bytes, 70'000u);
  EXPECT_GE(pair.of_a.calls, 2u);
}

TEST(LocalPull, what_goes_inline_or_to_a_peer_that_cannot_goes_through_the_ring) {
  Pair pair(pulling(1));
  pair.of_b.granted = false;
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 5000, pair.b, 0);
  const Bytes bytes = pattern(16);
  const ScatterGather own{reinterpret_cast<std::uintptr_t>(bytes.data()), 16, LKey{}};
  SendRequest request;
  request.local = {&own, 1};
  request.flags = SendFlags::Inline;
  pair.a.receive(6, 0, 16);
  pair.b.post(request);
  pair.run();
  EXPECT_EQ(pair.of_a.bytes + pair.of_b.bytes, 0u);
  EXPECT_TRUE(pair.a.holds(0, bytes));
  pair.of_b.granted = true;
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 5000, pair.b, 0);
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 3, 0, 5000, pair.b, 0);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3}));
  EXPECT_GE(pair.of_a.bytes, 5000u);
}

TEST(LocalPull, one_turn_copies_no_more_than_a_record_names) {
  Pair pair(pulling());
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, kLarge, pair.b, 0);
  while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
  for (std::uint64_t turn = 1; turn <= 3; ++turn) {
    EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
    EXPECT_EQ(pair.of_a.bytes, turn * kMaxPulledBytes);
  }
  EXPECT_TRUE(pair.a.sent().empty());
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
}

TEST(LocalPull, r070_q025_what_finds_no_receive_comes_again_and_is_pulled_once) {
  Pair pair(pulling());
  pair.run();
  pair.a.put(0, pattern(kLarge));
  pair.a.send(1, 0, kLarge);
  pair.run();
  EXPECT_EQ(pair.of_a.bytes, 0u);
  pair.b.receive(5, 0, kLarge);
  ASSERT_TRUE(pair.wait());
  EXPECT_EQ(ids(pair.b.received()), Ids{5});
  EXPECT_EQ(pair.of_a.bytes, kLarge);
  EXPECT_TRUE(pair.b.holds(0, pattern(kLarge)));
}

TEST(LocalPull, r058_r079_r060_what_may_not_be_stored_is_not_even_read) {
  for (const int what : {0, 1, 2}) {
    Given of_b = pulling();
    if (what == 2) of_b.qp_access = Access::None;
    Pair pair(pulling(), of_b);
    pair.run();
    pair.b.receive(5, 0, 1999);
    if (what == 0) {
      pair.a.send(1, 0, 2000);
    } else {
      pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 2000, pair.b, what == 1 ? (4 << 20) - 1999 : 0);
    }
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()),
              Statuses{what == 1 ? Status::RemoteAccessError : Status::RemoteInvalidRequest});
    EXPECT_EQ(statuses(pair.b.received()), Statuses{what == 0 ? Status::LocalLengthError : Status::Flushed});
    EXPECT_EQ(pair.of_a.bytes, 0u);
  }
}

TEST(LocalPull, r067_a_region_that_goes_while_it_is_written_is_not_written_any_more) {
  Pair pair(pulling());
  pair.run();
  pair.a.put(0, pattern(kLarge));
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, kLarge, pair.b, 0);
  while (pair.a.transport->ready(pair.now)) pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  ASSERT_TRUE(pair.b.memory.deregister(pair.b.region.lkey));
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteAccessError});
  EXPECT_EQ(pair.of_a.bytes, kMaxPulledBytes);
  EXPECT_EQ(pair.b.happened(), Events{AsyncEventType::QpAccessError});
}

TEST(LocalPull, f30_memory_of_the_sender_that_is_gone_is_its_own_error) {
  fault_guard::install();
  Pair pair(pulling());
  pair.run();
  pair.b.receive(5, 0, 5000);
  auto region = *pair.a.memory.register_region({}, reinterpret_cast<void*>(0x1000), 5000, 0x900000, Access::All);
  const ScatterGather local{region.iova, 5000, region.lkey};
  SendRequest request;
  request.id = 1;
  request.local = {&local, 1};
  pair.a.post(request);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
  EXPECT_TRUE(pair.b.received().empty() && pair.b.happened().empty()) << "as by packets";
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
  EXPECT_EQ(pair.a.counters.memory_faults, 1u);
}

TEST(LocalPull, f30_memory_that_the_sender_deregistered_and_gave_back_meanwhile_is_its_own_error) {
  Pair pair(pulling());
  pair.run();
  pair.b.receive(5, 0, 5000);
  auto region = *pair.a.memory.register_region({}, reinterpret_cast<void*>(0x1000), 5000, 0x900000, Access::All);
  const ScatterGather local{region.iova, 5000, region.lkey};
  SendRequest request;
  request.local = {&local, 1};
  pair.a.post(request);
  pair.a.transport->emit(pair.now);
  ASSERT_TRUE(pair.a.memory.deregister(region.lkey));
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
}

TEST(LocalPull, f30_memory_of_the_receiver_that_is_gone_is_its_own_error) {
  Pair pair(pulling());
  pair.run();
  void* const nowhere = reinterpret_cast<void*>(0x1000);
  auto region = *pair.b.memory.register_region({}, nowhere, 5000, 0x900000, Access::All);
  pair.of_a.unmapped = static_cast<std::byte*>(nowhere);
  const ScatterGather local{region.iova, 5000, region.lkey};
  const ReceiveRequest receive{5, {&local, 1}};
  ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
  pair.a.send(1, 0, 5000);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteOperationError});
  EXPECT_EQ(statuses(pair.b.received()), Statuses{Status::LocalProtectionError});
}

TEST(LocalPull, where_the_kernel_cannot_copy_at_once_parts_go_through_a_buffer) {
  Pair pair(pulling());
  pair.run();
  const Bytes bytes = pattern(20'011);
  pair.a.put(0, bytes);
  pair.of_a.unmapped = pair.b.data();
  pair.b.receive(5, 0, 20'011);
  pair.a.send(1, 0, 20'011);
  pair.run();
  EXPECT_EQ(ids(pair.b.received()), Ids{5});
  EXPECT_TRUE(pair.b.holds(0, bytes));
  EXPECT_EQ(pair.of_a.calls, 5u);
}

TEST(LocalPull, q051_what_a_dead_peer_named_is_neither_completed_nor_acknowledged) {
  Pair pair(pulling());
  pair.run();
  pair.b.receive(5, 0, 5000);
  pair.b.fetch_or_write(Op::RdmaWrite, 9, 0, 8, pair.a, 0);
  pair.b.transport->emit(pair.now);
  pair.a.send(1, 0, 5000);
  pair.a.transport->emit(pair.now);
  pair.of_a.gone = true;
  while (pair.b.transport->handle_records(pair.now)) continue;
  EXPECT_FALSE(pair.b.transport->ready(pair.now));
  EXPECT_TRUE(pair.b.sent().empty()) << "why it is gone is said by others";
  pair.b.transport->handle_hang_up(pair.now);
  const auto sent = pair.b.sent();
  EXPECT_EQ(statuses(sent), Statuses{Status::RetryExceeded});
  EXPECT_EQ(sent.at(0).vendor_error, core::kVendorPeerEnded);
  EXPECT_EQ(statuses(pair.b.received()), Statuses{Status::Flushed});
  EXPECT_TRUE(pair.b.transport->finished());
}

TEST(LocalPull, a_peer_that_died_with_payload_not_copied_yet_is_told_of) {
  Pair pair(pulling());
  pair.run();
  pair.b.receive(5, 0, 5000);
  pair.a.send(1, 0, 5000);
  pair.a.transport->emit(pair.now);
  pair.of_a.gone = true;
  pair.b.transport->handle_hang_up(pair.now, true);
  EXPECT_EQ(pair.b.happened(), Events{AsyncEventType::PeerEnded});
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
}

// ---- Memory that goes back to the program

// How a request can end while its peer copies.
enum class Ending { Flushed, GivenUp };

void end_and_change(Pair& pair, Ending how) {
  if (how == Ending::Flushed) {
    ASSERT_TRUE(pair.a.go(QueuePairState::Error));
  } else {
    while (pair.a.qp->state() == QueuePairState::Rts) {  // b is in the middle of a copy, and stopped there
      pair.now = pair.a.transport->deadline();
      pair.a.transport->handle_timeout(pair.now);
    }
  }
  ASSERT_EQ(pair.a.sent().size(), 1u);
  std::fill_n(pair.a.data(), kLarge, std::byte{0xee});
}

TEST(LocalPull, q051_q052_a_request_that_ended_while_it_is_copied_does_not_arrive_changed) {
  for (const Ending how : {Ending::Flushed, Ending::GivenUp})
    for (const Op op : {Op::Send, Op::RdmaWriteWithImmediate})
      for (const std::size_t length : {std::size_t{5000}, kLarge}) {
        Pair pair(pulling());
        pair.run();
        pair.a.put(0, pattern(length));
        pair.b.receive(7, 0, length);
        if (op == Op::Send)
          pair.a.send(1, 0, length);
        else
          pair.a.fetch_or_write(op, 1, 0, length, pair.b, 0);
        bool ended = false;
        pair.of_a.before = [&] {
          if (!std::exchange(ended, true)) end_and_change(pair, how);
        };
        pair.run();
        EXPECT_TRUE(ended);
        for (const Completion& received : pair.b.received()) EXPECT_NE(received.status, Status::Success);
        EXPECT_TRUE(pair.a.sent().empty());
        EXPECT_TRUE(pair.b.transport->lost_peer());
        pair.b.transport->handle_hang_up(pair.now);
        pair.b.send(2, 0, 8);
        pair.run();
        EXPECT_EQ(statuses(pair.b.sent()), Statuses{Status::RetryExceeded}) << "the peer is gone";
      }
}

TEST(LocalPull, q052_what_was_named_before_a_flush_and_is_copied_after_it_does_not_arrive) {
  Pair pair(pulling());
  pair.run();
  pair.a.put(0, pattern(5000));
  pair.b.receive(7, 0, 5000);
  pair.a.send(1, 0, 5000);
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  end_and_change(pair, Ending::Flushed);
  while (pair.b.transport->handle_records(pair.now)) continue;
  EXPECT_TRUE(pair.b.received().empty());
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
}

// A peer that names what it likes.
class HostilePull : public ::testing::Test {
 protected:
  HostilePull() : pair(pulling()), out(pair.ring_to_b().memory()) {}

  void write(std::uint32_t length, std::initializer_list<Piece> pieces) {
    Request request;
    request.opcode = Op::RdmaWrite;
    request.placement = Placement::InMemory;
    request.length = length;
    request.remote_address = pair.b.va(0);
    request.rkey = pair.b.region.rkey;
    for (const Piece& piece : pieces) request.pieces.pieces[request.pieces.count++] = piece;
    const auto at = out.try_reserve(static_cast<std::uint16_t>(kind_of(request)), head_bytes(request));
    emit(request, out.memory().data() + *at);
  }
  void go_on(std::initializer_list<Piece> pieces) {
    Continuation more{0, 0, 0, Placement::InMemory, {}};
    for (const Piece& piece : pieces) more.pieces.pieces[more.pieces.count++] = piece;
    const auto at = out.try_reserve(static_cast<std::uint16_t>(RecordKind::Continuation),
                                    kContinuationHeadBytes + more.pieces.count * kPieceBytes);
    emit(more, out.memory().data() + *at);
  }
  void expect_end(AsyncEventType event) {
    out.publish();
    while (pair.b.transport->handle_records(pair.now)) continue;
    EXPECT_EQ(pair.b.happened(), Events{event});
    EXPECT_TRUE(pair.b.holds(0, Bytes(20'000)));
  }
  // That is the peer's own affair: it is told, and what it says further of this is passed over.
  void expect_refusal() {
    out.publish();
    while (pair.b.transport->handle_records(pair.now)) continue;
    EXPECT_EQ(pair.b.happened(), Events{});
    EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
    EXPECT_EQ(pair.b.counters.invalid_requests, 1u);
    EXPECT_TRUE(pair.b.holds(0, Bytes(20'000)));
  }
  Piece at(std::uint64_t offset, std::uint32_t bytes) {
    return {0, bytes, reinterpret_cast<std::uintptr_t>(pair.a.data()) + offset};
  }

  Pair pair;
  RingProducer out;
};

TEST_F(HostilePull, F21_addresses_where_nothing_is) {
  write(2000, {Piece{0, 2000, 16}});
  expect_refusal();
}

TEST_F(HostilePull, F21_addresses_that_begin_well_and_end_nowhere) {
  write(20'000, {Piece{0, 20'000, reinterpret_cast<std::uintptr_t>(pair.a.data()) + (4 << 20) - 8}});
  expect_refusal();
}

TEST_F(HostilePull, F21_keys_of_nothing) {
  write(2000, {Piece{4711, 2000, 16}});
  expect_refusal();
}

TEST_F(HostilePull, F21_r053_more_than_the_length) {
  write(2000, {at(0, 1000), at(0, 1001)});
  expect_end(AsyncEventType::QpFatal);
}

TEST_F(HostilePull, F21_r053_more_than_the_length_in_what_follows) {
  write(2000, {at(0, 1000)});
  go_on({at(0, 1000), at(0, 1)});
  expect_end(AsyncEventType::QpFatal);
}

TEST_F(HostilePull, F21_more_at_once_than_a_turn_may_take) {
  write(kMaxPulledBytes + 1, {at(0, kMaxPulledBytes + 1)});
  expect_end(AsyncEventType::QpFatal);
}

TEST_F(HostilePull, F21_nothing_named) {
  write(2000, {});
  expect_end(AsyncEventType::QpFatal);
}

}  // namespace
}  // namespace verbena::local
