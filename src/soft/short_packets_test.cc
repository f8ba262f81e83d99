// SPDX-License-Identifier: Apache-2.0
// Short requests have ways of their own, out and in: what comes of them is what comes of the long ones.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "soft/roce/requester.h"
#include "soft/test_two_devices.h"

namespace verbena::soft {
namespace {

class ShortPackets : public TwoDevices {
 protected:
  ShortPackets() : twin_(1, 1) {
    twin_.bring_up(b);
    twin_.memory = a.memory;
  }
  static std::vector<std::byte> bytes_of(const roce::Train& train) {
    std::vector<std::byte> all, one;
    for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
      train.flatten(i, one);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  using Pieces = std::array<ScatterGather, 3>;
  static Pieces pieces_of(const ScatterGather& whole, std::uint32_t first, std::uint32_t second) {
    return {ScatterGather{whole.address, first, whole.lkey}, ScatterGather{whole.address + first, second, whole.lkey},
            ScatterGather{whole.address + first + second, whole.length - first - second, whole.lkey}};
  }
  // Three pieces are not plain: it goes the long way.
  std::vector<std::byte> by_the_long_way(SendRequest request) {
    const std::uint32_t third = request.local[0].length / 3;
    const Pieces thirds = pieces_of(request.local[0], third, third);
    request.local = thirds;
    EXPECT_TRUE(twin_.qp.queues->post_send({&request, 1}));
    twin_.nic.handle_post(now, *twin_.qp.queues);
    EXPECT_TRUE(twin_.nic.poll_transmit(now, Nic::Acks::Owed, train));
    return bytes_of(train);
  }
  std::vector<std::byte> posted(const SendRequest& request) {
    EXPECT_TRUE(a.qp.queues->post_send({&request, 1}));
    a.nic.handle_post(now, *a.qp.queues);
    EXPECT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
    return bytes_of(train);
  }
  std::vector<std::byte> put(const SendRequest& request) {
    EXPECT_TRUE(a.nic.put_packet(*a.qp.queues, request, train));
    a.nic.follow_packet(now, *a.qp.queues, train);
    return bytes_of(train);
  }
  bool is_refused(const SendRequest& request) {
    const std::uint32_t before = a.qp.queues->send_queue().posted();
    const bool left = a.nic.put_packet(*a.qp.queues, request, train);
    if (left) a.nic.follow_packet(now, *a.qp.queues, train);
    return !left && a.qp.queues->send_queue().posted() == before;
  }

  Side twin_;  // of a
};

class ShortPacketsOf : public ShortPackets, public ::testing::WithParamInterface<SendOpcode> {};

TEST_P(ShortPacketsOf, are_what_the_long_way_makes) {
  int requests = 0;
  for (const SendFlags flags : {SendFlags::None, SendFlags::Inline, SendFlags::Solicited | SendFlags::Signaled})
    for (std::uint32_t length : {0u, 1u, 3u, 8u, 127u, 128u}) {
      if (has_flag(flags, SendFlags::Inline)) length = std::min(length, a.qp.capabilities.max_inline_bytes);
      const bool puts = ++requests % 2 == 0;
      ScatterGather local = a.at(40, length);
      SendRequest request = this->request(GetParam(), local, 8);
      request.flags = flags;
      request.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, static_cast<std::byte>(length)};
      std::vector<std::byte> own(a.memory.begin() + 40, a.memory.begin() + 40 + length);
      if (has_flag(flags, SendFlags::Inline)) local = {reinterpret_cast<std::uint64_t>(own.data()), length, {}};
      const std::vector<std::byte> expected = by_the_long_way(request);
      const Pieces halves = pieces_of(local, length / 2, length - length / 2);
      if (requests % 4 == 0) request.local = std::span(halves).first(2);
      EXPECT_EQ(puts ? put(request) : posted(request), expected) << requests;
      EXPECT_EQ(a.nic.next_deadline(), twin_.nic.next_deadline());
      EXPECT_EQ(a.nic.counters().sent_bytes, twin_.nic.counters().sent_bytes);
      EXPECT_EQ(a.nic.counters().sent_pkts, twin_.nic.counters().sent_pkts);
      now = now + Duration::microseconds(3);
      a.nic.check_invariants();
    }
}

INSTANTIATE_TEST_SUITE_P(Opcode, ShortPacketsOf,
                         ::testing::Values(SendOpcode::Send, SendOpcode::SendWithImmediate, SendOpcode::RdmaWrite,
                                           SendOpcode::RdmaWriteWithImmediate));

TEST_F(ShortPackets, are_posted_and_complete_like_others) {
  const ScatterGather local = a.at(0, 16);
  const SendRequest write = request(SendOpcode::RdmaWrite, local, 64);
  const std::vector<std::byte> datagram = put(write);
  b.nic.handle_datagram(now, train.path(), std::nullopt, datagram);
  run();
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data() + 64, 16), 0);
}

TEST_F(ShortPackets, that_are_lost_are_sent_again) {
  const ScatterGather local = a.at(0, 16);
  put(request(SendOpcode::RdmaWrite, local, 64));
  now = a.nic.next_deadline();
  a.nic.handle_timeout(now);
  run();
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data() + 64, 16), 0);
}

TEST_F(ShortPackets, are_refused_where_another_way_is_right) {
  const ScatterGather local = a.at(0, 16), long_one = a.at(0, 129);
  const ScatterGather foreign{0x10000, 16, LKey{a.region.lkey.value() ^ 0x5500}};
  const Pieces three = pieces_of(local, 4, 4), much = pieces_of(a.at(0, 129), 128, 1);
  const std::array<ScatterGather, 2> foreign_last{local, foreign};
  SendRequest several = request(SendOpcode::Send, local, 0);
  using Span = std::span<const ScatterGather>;
  for (const Span pieces : {Span(three), Span(much).first(2), Span(foreign_last)}) {
    several.local = pieces;
    EXPECT_TRUE(is_refused(several));
  }
  EXPECT_TRUE(is_refused(request(SendOpcode::Send, long_one, 0)));
  EXPECT_TRUE(is_refused(request(SendOpcode::Send, foreign, 0)));
  for (const SendOpcode opcode : {SendOpcode::RdmaRead, SendOpcode::CompareAndSwap, SendOpcode::FetchAndAdd})
    EXPECT_TRUE(is_refused(request(opcode, local, 0)));
  SendRequest too_long_inline = request(SendOpcode::Send, local, 0);
  too_long_inline.flags = SendFlags::Inline;
  const std::uint32_t most = a.qp.capabilities.max_inline_bytes;
  const ScatterGather own{reinterpret_cast<std::uint64_t>(a.memory.data()), most + 1, {}};
  too_long_inline.local = {&own, 1};
  ASSERT_LT(most, roce::kMostShortBytes);
  EXPECT_TRUE(is_refused(too_long_inline));
}

TEST_F(ShortPackets, wait_for_what_was_posted_before_them) {
  const ScatterGather local = a.at(0, 16), sink = a.at(500000, 16);
  post(request(SendOpcode::RdmaRead, sink, 0));
  EXPECT_TRUE(is_refused(request(SendOpcode::RdmaWrite, local, 0))) << "nobody heard the bell of that one yet";
  a.nic.handle_doorbells(now);
  EXPECT_TRUE(is_refused(request(SendOpcode::RdmaWrite, local, 0))) << "it has not left";
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  SendRequest fenced = request(SendOpcode::RdmaWrite, local, 0);
  fenced.flags = SendFlags::Fence;
  EXPECT_TRUE(is_refused(fenced)) << "Q-031";
  EXPECT_FALSE(is_refused(request(SendOpcode::RdmaWrite, local, 0)));
}

TEST_F(ShortPackets, wait_for_what_other_queue_pairs_have_ready) {
  const Nic::CreatedQp ours = a.make_qp(), theirs = b.make_qp();
  a.bring_up(ours, b, theirs);
  const ScatterGather local = a.at(0, 16);
  post(request(SendOpcode::RdmaWrite, local, 0));
  a.nic.handle_doorbells(now);
  const SendRequest write = request(SendOpcode::RdmaWrite, local, 0);
  EXPECT_FALSE(a.nic.put_packet(*ours.queues, write, train));
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  EXPECT_TRUE(a.nic.put_packet(*ours.queues, write, train));
  a.nic.follow_packet(now, *ours.queues, train);
}

// also of those that leave in one go.
TEST_F(ShortPackets, wait_behind_a_fence) {
  const ScatterGather local = a.at(0, 16), sink = a.at(500000, 16);
  post(request(SendOpcode::RdmaRead, sink, 0));
  post(request(SendOpcode::RdmaWrite, local, 0));
  SendRequest fenced = request(SendOpcode::RdmaWrite, local, 0);
  fenced.flags = SendFlags::Fence;
  post(fenced);
  a.nic.handle_doorbells(now);
  while (a.nic.poll_transmit(now, Nic::Acks::Owed, train)) continue;
  EXPECT_EQ(a.nic.counters().sent_pkts, 2u);
}

// the tail of an answer leaves behind a short SEND, finds no region, and what it flushes overruns the queue.
TEST_F(ShortPackets, end_all_on_a_queue_that_overran_by_what_left_behind_them) {
  complete_to(1);
  const Nic::CreatedQp other = b.make_qp(), peer = a.make_qp();
  b.bring_up(other, a, peer);
  const ScatterGather sink = a.at(0, 100 * 1024 + 100);
  post(request(SendOpcode::RdmaRead, sink, 0));
  a.nic.handle_doorbells(now);
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  b.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
  while (b.nic.poll_transmit(now, Nic::Acks::Owed, train)) continue;
  ASSERT_TRUE(b.nic.packets_wait()) << "the last packet waits for company";
  for (std::uint32_t i = 0; i < 2; ++i) post_receive(b.at(8 * i, 8), i);
  now = now + Duration::microseconds(1);
  ASSERT_TRUE(b.nic.deregister_memory(b.region.lkey));
  std::array<std::byte, 8> own{};
  const ScatterGather local{reinterpret_cast<std::uint64_t>(own.data()), 8, {}};
  SendRequest send = request(SendOpcode::Send, local, 0);
  send.flags = SendFlags::Inline | SendFlags::Signaled;
  ASSERT_TRUE(b.nic.put_packet(*b.qp.queues, send, train));
  b.nic.follow_packet(now, *b.qp.queues, train);
  EXPECT_EQ(b.qp.queues->state(), QueuePairState::Rts);
  while (b.nic.poll_transmit(now, Nic::Acks::Idle, train)) continue;
  EXPECT_EQ(b.qp.queues->state(), QueuePairState::Error);
  EXPECT_EQ(other.queues->state(), QueuePairState::Error);
}

// What answers has a wait behind it in which an acknowledgement costs nobody anything.
TEST_F(ShortPackets, leave_before_an_acknowledgement_that_is_owed) {
  const ScatterGather from_a = a.at(0, 8), from_b = b.at(0, 8);
  SendRequest answer = request(SendOpcode::RdmaWrite, from_b, 0);
  answer.rkey = a.region.rkey;
  const std::uint32_t held = roce::Config{}.max_held_acknowledgements;
  std::uint32_t acknowledgements = 0;
  for (std::uint32_t turn = 1; turn <= 2 * held; ++turn) {
    ASSERT_TRUE(a.nic.put_packet(*a.qp.queues, request(SendOpcode::RdmaWrite, from_a, 0), train)) << turn;
    a.nic.follow_packet(now, *a.qp.queues, train);
    b.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
    ASSERT_TRUE(b.nic.put_packet(*b.qp.queues, answer, train)) << turn;
    EXPECT_EQ(train.datagrams(), 1u) << turn;
    b.nic.follow_packet(now, *b.qp.queues, train);
    a.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
    while (move(a, b)) continue;
    if (!b.nic.poll_transmit(now, Nic::Acks::Idle, train)) continue;
    ++acknowledgements;
    a.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
    EXPECT_EQ(a.qp.queues->send_queue().retired(), turn);
  }
  EXPECT_EQ(acknowledgements, 2u);
}

// However many others hold theirs back: what is due behind an answer is not looked for behind them.
TEST_F(ShortPackets, are_followed_by_the_acknowledgement_that_is_due) {
  constexpr std::size_t kPairs = 12;
  std::vector<Nic::CreatedQp> ours, theirs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    ours.push_back(a.make_qp());
    theirs.push_back(b.make_qp());
    a.bring_up(ours[i], b, theirs[i]);
    b.bring_up(theirs[i], a, ours[i]);
  }
  const ScatterGather from_a = a.at(0, 8), from_b = b.at(0, 8);
  SendRequest answer = request(SendOpcode::RdmaWrite, from_b, 0);
  answer.rkey = a.region.rkey;
  const auto exchange = [&](std::size_t i) {
    ASSERT_TRUE(a.nic.put_packet(*ours[i].queues, request(SendOpcode::RdmaWrite, from_a, 0), train));
    a.nic.follow_packet(now, *ours[i].queues, train);
    b.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
    ASSERT_TRUE(b.nic.put_packet(*theirs[i].queues, answer, train));
    b.nic.follow_packet(now, *theirs[i].queues, train);
    a.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
    while (move(a, b)) continue;
  };
  const std::uint32_t held = roce::Config{}.max_held_acknowledgements;
  for (std::uint32_t turn = 1; turn < held; ++turn)
    for (std::size_t i = 0; i < kPairs; ++i) exchange(i);
  exchange(kPairs - 1);
  ASSERT_TRUE(b.nic.poll_transmit(now, Nic::Acks::Idle, train));
  a.nic.handle_datagram(now, train.path(), std::nullopt, bytes_of(train));
  EXPECT_EQ(ours[kPairs - 1].queues->send_queue().retired(), held);
  EXPECT_FALSE(b.nic.poll_transmit(now, Nic::Acks::Idle, train));
}

TEST_F(ShortPackets, keep_to_the_window_and_to_the_state) {
  Nic::QpInit init;
  init.pd = a.pd;
  init.send_cq = init.receive_cq = a.cq;
  init.capabilities.max_send_requests = 4 * roce::Config{}.initial_window_packets;
  a.qp = *a.nic.create_qp(init);
  a.bring_up(b);
  const ScatterGather local = a.at(0, 16);
  const SendRequest write = request(SendOpcode::RdmaWrite, local, 0);
  std::uint32_t left = 0;
  while (!is_refused(write)) ++left;
  EXPECT_EQ(left, roce::Config{}.initial_window_packets);
  QueuePairAttributes drains;
  drains.state = QueuePairState::Sqd;
  const ScatterGather other = twin_.at(0, 16);
  ASSERT_TRUE(twin_.nic.modify_qp(now, twin_.qp.qpn, drains, AttributeMask::State));
  EXPECT_FALSE(twin_.nic.put_packet(*twin_.qp.queues, request(SendOpcode::RdmaWrite, other, 0), train)) << "Q-055";
}

// SENDs that arrive together are taken together, whatever stands between them.
class ManySends : public TwoDevices {
 protected:
  static constexpr std::uint32_t kSends = 40, kBytes = 12;
  void post_sends() {
    for (std::uint32_t i = 0; i < kSends; ++i) {
      const ScatterGather local = a.at(i * kBytes, kBytes);
      post(request(SendOpcode::Send, local, 0));
    }
    a.nic.handle_doorbells(now);
  }
  void post_receives(std::uint32_t first, std::uint32_t count, std::uint32_t bytes = kBytes) {
    for (std::uint32_t i = first; i < first + count; ++i) post_receive(b.at(i * 64, bytes), i);
  }
  // `change` may damage or take away the i-th datagram of all that left.
  template <class F>
  void exchange_trains(F&& change, int steps = 400) {
    std::vector<std::byte> one, joined;
    int count = 0;
    for (int step = 0; step < steps; ++step) {
      for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}})
        while (from->nic.poll_transmit(now, Nic::Acks::Flush, train)) {
          joined.clear();
          for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
            train.flatten(i, one);
            if (from == &b || change(count++, one)) joined.insert(joined.end(), one.begin(), one.end());
          }
          if (!joined.empty())
            to->nic.handle_datagrams(now, train.path(), std::nullopt, joined, train.segment_bytes());
        }
      now = now + Duration::milliseconds(1);
      a.nic.handle_timeout(now);
      b.nic.handle_timeout(now);
      if (a.qp.queues->send_queue().retired() == a.qp.queues->send_queue().posted()) break;
    }
    a.nic.check_invariants();
    b.nic.check_invariants();
  }
  static bool keep(int, const std::vector<std::byte>&) { return true; }
  void expect_all_once_in_order() {
    for (std::uint32_t i = 0; i < kSends; ++i) {
      ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << i;
      const Completion received = b.poll().value();
      ASSERT_EQ(received.id, i);
      ASSERT_EQ(received.status, CompletionStatus::Success);
      ASSERT_EQ(received.byte_count, kBytes);
      ASSERT_EQ(std::memcmp(a.memory.data() + i * kBytes, b.memory.data() + i * 64, kBytes), 0) << i;
    }
    EXPECT_FALSE(a.poll());
    EXPECT_FALSE(b.poll());
  }
};

TEST_F(ManySends, arrive_once_and_in_order_and_owe_one_acknowledgement) {
  post_receives(0, kSends);
  post_sends();
  exchange_trains(keep);
  expect_all_once_in_order();
  EXPECT_EQ(b.nic.counters().rcvd_pkts, kSends);
  EXPECT_EQ(b.nic.counters().rdma_recvs, kSends);
  EXPECT_EQ(b.nic.counters().ack_deferred, kSends - 1);
  EXPECT_EQ(b.nic.counters().sent_pkts, 1u);
}

TEST_F(ManySends, arrive_in_receives_of_several_segments) {
  for (std::uint32_t i = 0; i < kSends; ++i) {
    const std::uint32_t at = i * 64;
    const std::array whole{b.at(at, kBytes)};
    const std::array two{b.at(at, 5), b.at(at + 5, kBytes)};
    const std::array three{b.at(at, 5), b.at(at + 5, 1), b.at(at + 6, kBytes - 6)};
    const std::array<std::span<const ScatterGather>, 3> lists{three, whole, two};
    const ReceiveRequest receive{i, lists[i % 3]};
    ASSERT_TRUE(b.qp.queues->post_receive({&receive, 1}));
  }
  post_sends();
  exchange_trains(keep);
  expect_all_once_in_order();
}

TEST_F(ManySends, keep_what_neighbours_differ_in) {
  constexpr std::array kFlags{SendFlags::None, SendFlags::Solicited, SendFlags::Solicited | SendFlags::Inline,
                              SendFlags::Inline, SendFlags::Inline, SendFlags::None};
  for (std::uint32_t i = 0; i < kFlags.size(); ++i) {
    const ScatterGather local = a.at(i * kBytes, kBytes);
    SendRequest send = request(SendOpcode::Send, local, 0);
    const ScatterGather own{reinterpret_cast<std::uint64_t>(a.memory.data() + i * kBytes), kBytes, {}};
    if (has_flag(kFlags[i], SendFlags::Inline)) send.local = {&own, 1};
    send.flags = kFlags[i];
    post(send);
  }
  a.nic.handle_doorbells(now);
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  ASSERT_EQ(train.datagrams(), kFlags.size());
  for (std::uint32_t i = 0; i < kFlags.size(); ++i) {
    std::vector<std::byte> one;
    train.flatten(i, one);
    wire::Packet packet;
    ASSERT_EQ(wire::parse(one, packet), wire::DropReason::None);
    EXPECT_EQ(packet.bth.solicited, has_flag(kFlags[i], SendFlags::Solicited)) << i;
    EXPECT_EQ(std::memcmp(packet.payload.data(), a.memory.data() + i * kBytes, kBytes), 0) << i;
  }
}

TEST_F(ManySends, arrive_whichever_is_lost_or_damaged) {
  for (const bool damage : {false, true})
    for (int chosen = 0; chosen < static_cast<int>(kSends); ++chosen) {
      post_receives(0, kSends);
      post_sends();
      exchange_trains([&](int i, std::vector<std::byte>& datagram) {
        if (i == chosen && damage) datagram[wire::kBthBytes + 1] ^= std::byte{4};
        return i != chosen || damage;
      });
      ASSERT_NO_FATAL_FAILURE(expect_all_once_in_order()) << chosen;
    }
}

TEST_F(ManySends, find_a_receive_that_is_posted_later) {
  for (const std::uint32_t there : {0u, 1u, 17u, kSends - 1}) {
    post_receives(0, there);
    post_sends();
    exchange_trains(keep, 1);
    post_receives(there, kSends - there);
    exchange_trains(keep);
    ASSERT_NO_FATAL_FAILURE(expect_all_once_in_order()) << there;
  }
  EXPECT_NE(b.nic.counters().send_rnr_err, 0u);
}

TEST_F(ManySends, end_at_a_receive_that_is_too_short) {
  constexpr std::uint32_t kGood = 9;
  post_receives(0, kGood);
  post_receives(kGood, 1, kBytes - 1);
  post_receives(kGood + 1, 1);
  post_sends();
  exchange_trains(keep);
  for (std::uint32_t i = 0; i < kGood; ++i) {
    ASSERT_EQ(b.poll().value().status, CompletionStatus::Success);
    ASSERT_EQ(a.poll().value().status, CompletionStatus::Success);
  }
  const Completion failed = b.poll().value();
  EXPECT_EQ(failed.id, kGood);
  EXPECT_EQ(failed.status, CompletionStatus::LocalLengthError);
  EXPECT_EQ(b.poll().value().status, CompletionStatus::Flushed);
  EXPECT_EQ(a.poll().value().status, CompletionStatus::RemoteInvalidRequest);
}

// What came twice stands before what is new: R-021 once for each gap.
TEST_F(ManySends, say_again_what_is_missing_behind_what_came_twice) {
  post_receives(0, kSends);
  post_sends();
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  const auto hand_over = [&](std::uint32_t first, std::uint32_t count) {
    std::vector<std::byte> one, joined;
    for (std::uint32_t i = first; i < first + count; ++i) {
      train.flatten(i, one);
      joined.insert(joined.end(), one.begin(), one.end());
    }
    b.nic.handle_datagrams(now, train.path(), std::nullopt, joined, one.size());
  };
  hand_over(0, 1);
  hand_over(2, 1);
  EXPECT_EQ(b.nic.counters().send_seq_err, 1u);
  hand_over(0, 4);
  EXPECT_EQ(b.nic.counters().rdma_recvs, 4u);
  hand_over(6, 1);
  EXPECT_EQ(b.nic.counters().send_seq_err, 2u);
}

// A duplicate is judged by its number alone; what repeats it is new, and keeps no rule of lengths.
TEST_F(ManySends, of_a_length_that_breaks_the_rules_are_refused_behind_what_came_twice) {
  post_receives(0, 3);
  const ScatterGather local = a.at(0, kBytes);
  post(request(SendOpcode::Send, local, 0));
  a.nic.handle_doorbells(now);
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
  std::vector<std::byte> good, joined;
  train.flatten(0, good);
  b.nic.handle_datagram(now, train.path(), std::nullopt, good);
  wire::Packet bad;
  ASSERT_EQ(wire::parse(good, bad), wire::DropReason::None);
  bad.payload = bad.payload.first(kBytes - 1);
  for (int i = 0; i < 2; ++i, ++bad.bth.psn) {
    std::vector<std::byte> one(wire::datagram_bytes(bad));
    wire::emit(bad, train.path(), 0, one);
    joined.insert(joined.end(), one.begin(), one.end());
  }
  b.nic.handle_datagrams(now, train.path(), std::nullopt, joined, joined.size() / 2);
  EXPECT_EQ(b.qp.queues->state(), QueuePairState::Error);
  EXPECT_EQ(b.nic.counters().rdma_recvs, 1u);
  EXPECT_EQ(b.nic.counters().invalid_requests, 1u);
}

// what comes behind the one that overran the queue is not taken.
TEST_F(ManySends, end_where_the_completion_queue_is_full) {
  complete_to(8);
  post_receives(0, kSends);
  post_sends();
  exchange_trains(keep, 1);
  EXPECT_EQ(b.qp.queues->state(), QueuePairState::Error);
  const std::uint32_t room = b.nic.cq(b.cq)->capacity();
  EXPECT_GE(b.nic.counters().rdma_recvs, room);
  EXPECT_LE(b.nic.counters().rdma_recvs, room + 1);
}

}  // namespace
}  // namespace verbena::soft
