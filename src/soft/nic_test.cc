// SPDX-License-Identifier: Apache-2.0
// Two devices joined by a perfect wire: a byte through every layer, for each operation.
#include <array>
#include <cstring>
#include <map>
#include <numeric>

#include "soft/test_two_devices.h"

namespace verbena::soft {
namespace {

TEST(Nic, draws_numbers_from_its_slot_alone) {
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, 1);
  config.ids = {6, 41};
  SeededRandom random(3);
  Nic nic(config, random);
  Nic::QpInit init;
  init.pd = *nic.create_pd();
  init.send_cq = init.receive_cq = *nic.create_cq(16);
  std::uint32_t seen = 0;
  for (int i = 0; i < 200; ++i) {
    const auto made = nic.create_qp(init);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->qpn.value() >> 18, 41u);
    seen |= made->qpn.value();
  }
  EXPECT_EQ(seen & 0x3'ffff, 0x3'ffffu);  // the rest is random
  init.qpn = Qpn{0x12345};
  EXPECT_FALSE(nic.create_qp(init)) << "a number of another slot";
}

TEST(Nic, communication_ids_begin_with_its_slot) {
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, 1);
  config.ids = {6, 41};
  SeededRandom random(3);
  Nic nic(config, random);
  cm::ConnectParams to;
  to.remote = Gid::from_ipv4(192, 0, 2, 2);
  to.port = 7471;
  to.qpn = Qpn{0xa40001};
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(nic.cm().connect({}, to));
    cm::OutgoingMad mad;
    ASSERT_TRUE(nic.cm().poll_transmit({}, mad));
    constexpr std::size_t kLocalCommIdAt = 24;
    EXPECT_EQ(std::to_integer<unsigned>(mad.bytes[kLocalCommIdAt]) >> 2, 41u);
  }
}

// A zeroed address vector, as programs write it, means the usual hop limit.
TEST_F(TwoDevices, take_a_hop_limit_of_zero_for_the_usual_one) {
  QueuePairAttributes reset;
  reset.state = QueuePairState::Reset;
  ASSERT_TRUE(a.nic.modify_qp(now, a.qp.qpn, reset, AttributeMask::State));
  a.bring_up(b, 0);
  const ScatterGather local = a.at(0, 8);
  post(request(SendOpcode::RdmaWrite, local, 0));
  a.nic.handle_doorbells(now);
  ASSERT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Flush, train));
  EXPECT_EQ(train.path().hop_limit, 64);
}

TEST_F(TwoDevices, carry_a_send) {
  const auto local = a.at(100, 5000);
  post_receive(b.at(0, 8000), 5);
  post(request(SendOpcode::Send, local, 0));
  run();
  const auto sent = a.poll();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, CompletionStatus::Success);
  const auto received = b.poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->id, 5u);
  EXPECT_EQ(received->byte_count, 5000u);
  EXPECT_EQ(std::memcmp(a.memory.data() + 100, b.memory.data(), 5000), 0);
}

TEST_F(TwoDevices, carry_a_write_and_a_read_of_every_shape) {
  for (const std::uint32_t size : {0u, 1u, 1023u, 1024u, 1025u, 2049u, 65536u, 300001u}) {
    const auto local = a.at(0, size);
    post(request(SendOpcode::RdmaWrite, local, 64));
    run();
    ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << size;
    EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data() + 64, size), 0);
    const auto sink = a.at(500000, size);
    post(request(SendOpcode::RdmaRead, sink, 64));
    run();
    ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << size;
    EXPECT_EQ(std::memcmp(a.memory.data(), a.memory.data() + 500000, size), 0);
  }
}

TEST_F(TwoDevices, carry_atomics) {
  std::uint64_t value = 40;
  std::memcpy(b.memory.data() + 8, &value, 8);
  const auto local = a.at(0, 8);
  SendRequest add = request(SendOpcode::FetchAndAdd, local, 8);
  add.swap_or_add = 2;
  post(add);
  run();
  std::memcpy(&value, b.memory.data() + 8, 8);
  EXPECT_EQ(value, 42u);
  std::memcpy(&value, a.memory.data(), 8);
  EXPECT_EQ(value, 40u);
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
}

class NumberedPackets : public TwoDevices {
 protected:
  // One datagram each, with that identification.
  void send(std::span<const std::uint16_t> identifications) {
    const ScatterGather local = a.at(0, 16);
    for (std::uint32_t i = 0; i < identifications.size(); ++i) post(request(SendOpcode::RdmaWrite, local, 16 * i));
    a.nic.handle_doorbells(now);
    std::vector<std::byte> bytes;
    while (a.nic.poll_transmit(now, Nic::Acks::Flush, train))
      for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
        train.flatten(i, bytes);
        const std::size_t covered = bytes.size() - wire::kIcrcBytes;
        ASSERT_FALSE(identifications.empty());
        wire::store_icrc(&bytes[covered],
                         wire::icrc_of(train.path(), identifications.front(), {bytes.data(), covered}));
        identifications = identifications.subspan(1);
        b.nic.handle_datagram(now, train.path(), std::nullopt, bytes);
      }
    EXPECT_TRUE(identifications.empty());
  }
};

// A peer whose system numbers all that it sends: only the first number is a surprise.
TEST_F(NumberedPackets, are_checked_in_full_where_identifications_count_up) {
  send(std::array<std::uint16_t, 8>{0xfffc, 0xfffd, 0xfffe, 0xffff, 0, 1, 2, 3});
  EXPECT_EQ(b.nic.counters().rcvd_pkts, 8u);
  EXPECT_EQ(b.nic.counters().icrc_solved, 2u);  // 0xfffc, and 1: 0 is always likely, and tells of no counting
}

// What follows 0 is taken for not counted again, until it is.
TEST_F(NumberedPackets, are_told_from_those_that_are_not) {
  send(std::array<std::uint16_t, 8>{700, 701, 0, 0, 0, 702, 703, 0});
  EXPECT_EQ(b.nic.counters().rcvd_pkts, 8u);
  EXPECT_EQ(b.nic.counters().icrc_solved, 2u);  // 700 and 702
}

// Numbered as one socket sends: a train takes one number, and its datagrams count on from it.
TEST_F(TwoDevices, check_all_of_an_icrc_where_trains_and_queue_pairs_of_a_port_are_counted) {
  std::vector<Nic::CreatedQp> ours{a.qp}, theirs{b.qp};
  for (int i = 0; i < 12; ++i) {  // of four ports: some share one
    ours.push_back(a.make_qp());
    theirs.push_back(b.make_qp());
    a.bring_up(ours.back(), b, theirs.back());
    b.bring_up(theirs.back(), a, ours.back());
  }
  std::map<std::uint16_t, std::uint16_t> next;
  std::uint64_t packets = 0;
  const ScatterGather local = a.at(0, 5000);
  for (int round = 0; round < 3; ++round) {
    for (const Nic::CreatedQp& qp : ours) {
      const SendRequest write = request(SendOpcode::RdmaWrite, local, 0);
      ASSERT_TRUE(qp.queues->post_send({&write, 1}));
      a.nic.ring_doorbell(*qp.queues);
    }
    a.nic.handle_doorbells(now);
    std::vector<std::byte> bytes, whole;
    while (a.nic.poll_transmit(now, Nic::Acks::Flush, train)) {
      std::uint16_t& number = next.try_emplace(train.path().source_port, 1000).first->second;
      whole.clear();
      for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
        train.flatten(i, bytes);
        const std::size_t covered = bytes.size() - wire::kIcrcBytes;
        const auto identification = static_cast<std::uint16_t>(number + i);
        wire::store_icrc(&bytes[covered], wire::icrc_of(train.path(), identification, {bytes.data(), covered}));
        whole.insert(whole.end(), bytes.begin(), bytes.end());
      }
      ++number;
      packets += train.datagrams();
      b.nic.handle_datagrams(now, train.path(), std::nullopt, whole, train.segment_bytes());
    }
    move(b, a);
  }
  EXPECT_EQ(b.nic.counters().rcvd_pkts, packets);
  EXPECT_EQ(packets, 3u * 13 * 5);
  EXPECT_EQ(b.nic.counters().icrc_solved, next.size());
}

TEST_F(TwoDevices, have_nothing_to_send_for_what_cannot_leave_yet) {
  QueuePairAttributes reset;
  reset.state = QueuePairState::Reset;
  ASSERT_TRUE(b.nic.modify_qp(now, b.qp.qpn, reset, AttributeMask::State));  // nobody answers
  const ScatterGather local = a.at(0, 16);
  for (int i = 0; i < 300; ++i)  // more than the window admits
    if (!a.qp.queues->post_send(std::array{request(SendOpcode::RdmaWrite, local, 0)})) break;
  a.nic.ring_doorbell(*a.qp.queues);
  a.nic.handle_doorbells(now);
  while (a.nic.poll_transmit(now, Nic::Acks::Flush, train)) continue;
  a.nic.handle_post(now, *a.qp.queues);
  EXPECT_TRUE(a.nic.transmit_waits());
  EXPECT_FALSE(a.nic.poll_transmit(now, Nic::Acks::Flush, train));
  EXPECT_FALSE(a.nic.transmit_waits());
}

TEST_F(TwoDevices, recover_from_every_single_loss) {
  for (int lost = 0; lost < 40; ++lost) {
    const auto local = a.at(0, 9000);
    post(request(SendOpcode::RdmaWrite, local, 0));
    const auto sink = a.at(500000, 9000);
    post(request(SendOpcode::RdmaRead, sink, 0));
    int count = 0;
    std::vector<std::byte> bytes;
    a.nic.handle_doorbells(now);
    for (int step = 0;
         step < 400 && a.qp.queues->send_queue().retired() != a.qp.queues->send_queue().posted(); ++step) {
      for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}})
        while (from->nic.poll_transmit(now, Nic::Acks::Flush, train))
          for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
            train.flatten(i, bytes);
            if (count++ != lost) to->nic.handle_datagram(now, train.path(), std::nullopt, bytes);
          }
      now = now + Duration::milliseconds(1);
      a.nic.handle_timeout(now);
      b.nic.handle_timeout(now);
    }
    ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << lost;
    ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << lost;
    ASSERT_EQ(std::memcmp(a.memory.data(), a.memory.data() + 500000, 9000), 0) << lost;
  }
}

// Trains as a kernel joins them: what is lost from one is missing inside, what is damaged stands there.
TEST_F(TwoDevices, take_trains_with_a_datagram_lost_or_damaged_at_any_place) {
  constexpr std::uint32_t kBytes = 40 * 1024 + 100;
  for (const bool damage : {false, true})
    for (int chosen = 0; chosen < 90; ++chosen) {
      std::memset(b.memory.data(), 0, kBytes + 1);
      std::memset(a.memory.data() + 500000, 0, kBytes + 1);
      if (chosen % 2 == 0) post_receive(b.at(0, kBytes), 1);
      const ScatterGather from_here = a.at(0, kBytes), to_here = a.at(500000, kBytes);
      post(request(chosen % 2 == 0 ? SendOpcode::Send : SendOpcode::RdmaWrite, from_here, 0));
      SendRequest read = request(SendOpcode::RdmaRead, to_here, 0);
      read.flags = SendFlags::Signaled | SendFlags::Fence;
      post(read);
      int count = 0;
      std::vector<std::byte> one, joined;
      a.nic.handle_doorbells(now);
      for (int step = 0;
           step < 400 && a.qp.queues->send_queue().retired() != a.qp.queues->send_queue().posted(); ++step) {
        for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}})
          while (from->nic.poll_transmit(now, Nic::Acks::Flush, train)) {
            joined.clear();
            for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
              train.flatten(i, one);
              const bool hit = count++ == chosen;
              if (hit && damage) one[one.size() / 2] ^= std::byte{4};
              if (!hit || damage) joined.insert(joined.end(), one.begin(), one.end());
            }
            if (!joined.empty())
              to->nic.handle_datagrams(now, train.path(), std::nullopt, joined, train.segment_bytes());
          }
        now = now + Duration::milliseconds(1);
        a.nic.handle_timeout(now);
        b.nic.handle_timeout(now);
      }
      ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << chosen;
      ASSERT_EQ(a.poll().value().status, CompletionStatus::Success) << chosen;
      ASSERT_EQ(std::memcmp(a.memory.data(), b.memory.data(), kBytes), 0) << chosen;
      ASSERT_EQ(std::memcmp(a.memory.data(), a.memory.data() + 500000, kBytes), 0) << chosen;
      ASSERT_EQ(b.memory[kBytes], std::byte{0}) << chosen;
      ASSERT_EQ(a.memory[500000 + kBytes], std::byte{0}) << chosen;
      if (chosen % 2 == 0) {
        ASSERT_EQ(b.poll().value().byte_count, kBytes);
      }
      a.nic.check_invariants();
    }
}

TEST_F(TwoDevices, let_an_owed_acknowledgement_leave_when_its_time_has_come) {
  const auto local = a.at(0, 8);
  post(request(SendOpcode::RdmaWrite, local, 0));
  a.nic.handle_doorbells(now);
  move(a, b);
  EXPECT_FALSE(b.nic.poll_transmit(now, Nic::Acks::Owed, train));
  now = b.nic.next_deadline();
  b.nic.handle_timeout(now);
  EXPECT_TRUE(b.nic.poll_transmit(now, Nic::Acks::Owed, train));
  EXPECT_GT(b.nic.next_deadline(), now);
}

// Requests of a, each answered by data of b, as a driver of b sees them that polls.
class Conversation : public TwoDevices {
 protected:
  // What b sends for one request of a: packets, the data among them.
  int answer(Duration thinking = {}) { return answer(b.qp, thinking); }
  int answer(const Nic::CreatedQp& by, Duration thinking = {}) {
    const ScatterGather from_a = a.at(0, 8);
    post(request(SendOpcode::RdmaWrite, from_a, 0));
    a.nic.handle_doorbells(now);
    move(a, b);
    wait(thinking);
    return say(by);
  }
  int say(const Nic::CreatedQp& by) {
    const ScatterGather from_b = b.at(0, 8);
    SendRequest back = request(SendOpcode::RdmaWrite, from_b, 0);
    back.rkey = a.region.rkey;
    EXPECT_TRUE(by.queues->post_send({&back, 1}));
    b.nic.ring_doorbell(*by.queues);
    b.nic.handle_doorbells(now);
    return idle();
  }
  int idle() {
    int packets = 0;
    trains = 0;
    std::vector<std::byte> bytes;
    for (; b.nic.poll_transmit(now, Nic::Acks::Idle, train); ++trains) {
      for (std::uint32_t i = 0; i < train.datagrams(); ++i, ++packets) {
        train.flatten(i, bytes);
        a.nic.handle_datagram(now, train.path(), std::nullopt, bytes);
      }
    }
    return packets;
  }
  void wait(Duration time) { now = now + time; }
  const roce::Config config{};
  int trains = 0;  // of the last answer
};

TEST_F(Conversation, acknowledges_several_requests_at_once) {
  for (std::uint32_t turn = 1; turn < config.max_held_acknowledgements; ++turn) EXPECT_EQ(answer(), 1) << turn;
  EXPECT_EQ(answer(), 2);
  EXPECT_EQ(trains, 1);
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
}

// A train's packets are of one length: the last of an answer would be a train by itself.
TEST_F(Conversation, sends_the_last_packet_of_a_long_read_with_the_first_ones_of_the_next) {
  constexpr std::uint32_t kEach = 127, kFull = 62, kBytes = 2 * kEach * 1024;
  for (std::size_t i = 0; i < b.memory.size(); ++i) b.memory[i] = static_cast<std::byte>(i * 5 + (i >> 8));
  std::fill(a.memory.begin(), a.memory.end(), std::byte{0});
  const ScatterGather to_a = a.at(0, kBytes);
  post(request(SendOpcode::RdmaRead, to_a, 0));
  a.nic.handle_doorbells(now);
  for (int asked = 0; asked < 2; ++asked) {
    ASSERT_TRUE(move(a, b));
    EXPECT_EQ(idle(), asked == 0 ? kEach - 1 : kEach);
    EXPECT_EQ(trains, 3) << "two of them full";
    EXPECT_EQ(idle(), 0) << "another request may have come";
  }
  static_assert(kEach == 3 + 2 * kFull);
  wait(Duration{1});
  EXPECT_EQ(idle(), 1) << "none has";
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + kBytes, b.memory.begin()));
}

TEST_F(Conversation, sends_all_of_a_read_that_fills_no_train) {
  const ScatterGather to_a = a.at(0, 60 * 1024);
  post(request(SendOpcode::RdmaRead, to_a, 0));
  a.nic.handle_doorbells(now);
  move(a, b);
  EXPECT_EQ(idle(), 60);
}

// Who waits for nothing else to come does not keep it, nor longer than an acknowledgement.
TEST_F(Conversation, sends_the_last_packet_of_a_long_read_when_it_is_due) {
  const ScatterGather to_a = a.at(0, 100 * 1024);
  for (const bool flushed : {true, false}) {
    post(request(SendOpcode::RdmaRead, to_a, 0));
    a.nic.handle_doorbells(now);
    move(a, b);
    if (flushed) {
      move(b, a);
    } else {
      EXPECT_EQ(idle(), 99);
      EXPECT_EQ(b.nic.next_deadline(), now + config.max_owed_ack_time);
      now = b.nic.next_deadline();
      b.nic.handle_timeout(now);
      EXPECT_TRUE(b.nic.poll_transmit(now, Nic::Acks::Owed, train));
      std::vector<std::byte> bytes;
      train.flatten(0, bytes);
      a.nic.handle_datagram(now, train.path(), std::nullopt, bytes);
    }
    const std::optional<Completion> done = a.poll();
    ASSERT_TRUE(done) << flushed;
    EXPECT_EQ(done->status, CompletionStatus::Success);
  }
}

// Each direction has its queue pair, as with senders and receivers of messages.
TEST_F(Conversation, takes_the_data_of_another_queue_pair_to_the_same_peer_for_answers) {
  const Nic::CreatedQp there = b.make_qp(), here = a.make_qp();
  b.bring_up(there, a, here);
  a.bring_up(here, b, there);
  int acknowledged = 0;
  for (std::uint32_t turn = 0; turn < 8 * config.max_held_acknowledgements; ++turn) acknowledged += answer(there) - 1;
  EXPECT_EQ(acknowledged, 8);
  wait(config.max_hold_time);
  EXPECT_EQ(idle(), 0);
  EXPECT_EQ(answer(there), 1);
  wait(config.max_hold_time);
  EXPECT_EQ(idle(), 1) << "the peer may wait for it";
  EXPECT_EQ(answer(there), 2) << "and for the next";
}

// What is under way when data leave for something else is not answered by them.
TEST_F(Conversation, does_not_keep_requests_waiting_that_nothing_answers) {
  const Nic::CreatedQp there = b.make_qp(), here = a.make_qp();
  b.bring_up(there, a, here);
  a.bring_up(here, b, there);
  EXPECT_EQ(answer(there), 1);
  const ScatterGather from_a = a.at(0, 8);
  for (int i = 0; i < 3; ++i) post(request(SendOpcode::RdmaWrite, from_a, 0));
  a.nic.handle_doorbells(now);
  move(a, b);
  EXPECT_EQ(idle(), 0) << "they may still be answered";
  wait(config.min_hold_time / 2);
  EXPECT_EQ(idle(), 1);
  EXPECT_EQ(answer(there), 2) << "the peer may wait for the next, too";
}

// Data that leave without a request in between answer nothing: the peer may wait for the acknowledgement.
TEST_F(Conversation, does_not_take_a_stream_of_data_for_answers) {
  const Nic::CreatedQp there = b.make_qp(), here = a.make_qp();
  b.bring_up(there, a, here);
  a.bring_up(here, b, there);
  for (const Nic::CreatedQp& by : {b.qp, there}) {
    int packets = answer(by), turns = 1;
    for (; packets == 1; ++turns) {
      wait(Duration::microseconds(2));
      packets = say(by);
    }
    EXPECT_EQ(packets, 2);
    EXPECT_LE(Duration::microseconds(2 * turns), config.max_hold_time + Duration::microseconds(4));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(answer(by), 2) << i;
      wait(Duration::microseconds(2));
      EXPECT_EQ(say(by), 1) << i;
    }
    wait(Duration::milliseconds(1));
    while (answer(by) == 2) continue;
    wait(config.max_hold_time);
    idle();
  }
}

TEST_F(Conversation, acknowledges_at_once_a_while_after_it_waited_in_vain) {
  const auto turns_at_once = [this] {
    EXPECT_EQ(answer(), 1);
    EXPECT_EQ(idle(), 0);
    wait(config.max_hold_time);
    EXPECT_EQ(idle(), 1);
    int turns = 0;
    for (; answer() == 2; ++turns) EXPECT_EQ(trains, 1);
    while (answer() == 1) continue;  // what is held back leaves with data
    return turns;
  };
  const int first = turns_at_once();
  EXPECT_GT(first, 4);
  EXPECT_EQ(turns_at_once(), first);  // it worked in between
}

TEST_F(Conversation, waits_in_vain_the_less_often_the_longer_it_does_not_work) {
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    int turns = 0;
    while (answer() == 2) ++turns;
    EXPECT_GE(turns, 2 * before) << i;
    before = turns;
    wait(config.max_hold_time);
    EXPECT_EQ(idle(), 1);
  }
  EXPECT_GT(before, 16);
}

// With an answer that comes late the acknowledgement leaves: that says nothing of holding it back.
TEST_F(Conversation, does_not_take_a_late_answer_for_a_sign_that_waiting_works) {
  EXPECT_EQ(answer(), 1);
  wait(config.max_hold_time);
  EXPECT_EQ(idle(), 1);
  for (const int at_once : {8, 16, 32}) {
    for (int i = 1; i < at_once; ++i) EXPECT_EQ(answer(), 2) << i << " of " << at_once;
    EXPECT_EQ(answer(config.max_owed_ack_time), 2);
    EXPECT_EQ(answer(), 1) << at_once;
    wait(config.max_hold_time);
    EXPECT_EQ(idle(), 1) << at_once;
  }
}

// Two answers to one request are not two turns.
TEST_F(Conversation, takes_its_pace_from_turns) {
  const Duration turn = config.max_owed_ack_time / 3;
  for (int i = 0; i < 3; ++i) {
    answer();
    wait(turn);
  }
  EXPECT_EQ(answer(), 1);
  EXPECT_EQ(say(b.qp), 1);
  wait(turn);
  EXPECT_EQ(idle(), 0);
}

TEST_F(Conversation, acknowledges_with_the_data_that_leave_before_it_is_due) {
  const Duration turn = config.max_owed_ack_time / 4;
  int held = 0;
  for (int i = 0; i < 40; ++i) {
    held += answer() == 1 ? 1 : 0;
    wait(turn);
    EXPECT_EQ(idle(), 0) << i;
  }
  EXPECT_GE(held, 16);
}

TEST_F(Conversation, owes_nothing_longer_when_the_device_goes_to_sleep) {
  EXPECT_EQ(answer(), 1);
  EXPECT_TRUE(b.nic.poll_transmit(now, Nic::Acks::Flush, train));
}

TEST_F(Conversation, holds_nothing_back_where_no_data_answers) {
  const ScatterGather from_a = a.at(0, 8);
  post(request(SendOpcode::RdmaWrite, from_a, 0));
  a.nic.handle_doorbells(now);
  move(a, b);
  EXPECT_EQ(idle(), 1);
}

TEST_F(TwoDevices, acknowledge_many_requests_while_more_arrive) {
  const auto local = a.at(0, 8);
  const roce::Config config;
  for (std::uint32_t i = 1; i <= config.max_owed_acknowledgements; ++i) {
    EXPECT_FALSE(b.nic.poll_transmit(now, Nic::Acks::Owed, train)) << i;
    post(request(SendOpcode::RdmaWrite, local, 0));
    a.nic.handle_doorbells(now);
    move(a, b);
  }
  EXPECT_TRUE(b.nic.poll_transmit(now, Nic::Acks::Owed, train));
  EXPECT_EQ(train.datagrams(), 1u);
  EXPECT_FALSE(b.nic.poll_transmit(now, Nic::Acks::Flush, train));
}

TEST(Marks, a_flow_label_and_a_traffic_class_are_on_the_path_and_the_label_picks_the_source_port) {
  const auto path_with = [](std::uint32_t label) {
    Side a(1, 1), b(2, 2);
    a.bring_up(b, 64, label);
    SendRequest request;
    EXPECT_TRUE(a.qp.queues->post_send({&request, 1}));
    a.nic.ring_doorbell(*a.qp.queues);
    a.nic.handle_doorbells({});
    roce::Train train({});
    EXPECT_TRUE(a.nic.poll_transmit({}, Nic::Acks::Owed, train));
    return train.path();
  };
  EXPECT_EQ(path_with(0x12368).flow_label, 0x12368u);
  EXPECT_EQ(path_with(0x12368).traffic_class, 0x68);
  EXPECT_EQ(path_with(0x12368).source_port, path_with(0x12368).source_port);
  EXPECT_NE(path_with(0x00001).source_port, path_with(0x00002).source_port);
}

}  // namespace
}  // namespace verbena::soft
