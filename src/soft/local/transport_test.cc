// SPDX-License-Identifier: Apache-2.0
// Requests over two rings, held to the numbered rules.
#include "soft/local/transport.h"

#include <gtest/gtest.h>

#include "soft/local/short_send.h"
#include "soft/local/test_pair.h"

namespace verbena::local {
namespace {

using namespace testing;

TEST(LocalTransport, r073_r074_o1_sends_of_every_length_arrive_whole_and_in_order) {
  for (const std::uint32_t capacity : {512u, 1024u, 16384u}) {
    Given given;
    given.capacity = capacity;
    Pair pair(given);
    std::uint64_t id = 0;
    for (const std::size_t length : {0u, 1u, 7u, 8u, 40u, 41u, 255u, 256u, 1000u, 9000u}) {
      const Bytes bytes = pattern(length, static_cast<unsigned>(++id));
      pair.a.put(0, bytes);
      pair.b.receive(100 + id, 0, length + 3);
      pair.a.send(id, 0, length);
      pair.run();
      const auto received = pair.b.received(), sent = pair.a.sent();
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].id, 100 + id);
      EXPECT_EQ(received[0].status, Status::Success);
      EXPECT_EQ(received[0].opcode, CompletionOpcode::Receive);
      EXPECT_EQ(received[0].byte_count, length);
      EXPECT_FALSE(received[0].with_immediate);
      EXPECT_EQ(ids(sent), Ids{id});
      EXPECT_EQ(statuses(sent), Statuses{Status::Success});
      EXPECT_TRUE(pair.b.holds(0, bytes)) << capacity << " " << length;
    }
  }
}

// Whatever it leaves to the long way comes to the same.
TEST(LocalTransport, a_short_send_alone_goes_the_short_way_and_nothing_else_does) {
  const Given given;
  Pair pair(given);
  const auto goes = [&pair] {
    const bool went = pair.a.transport->emit_short();
    if (went) pair.a.transport->follow_short(pair.now);
    return went;
  };
  EXPECT_FALSE(goes()) << "nothing is posted";
  pair.b.receive(1, 0, 300);
  pair.a.send(1, 0, 255);
  EXPECT_TRUE(goes());
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  EXPECT_FALSE(goes());
  pair.a.send(2, 0, 256);
  EXPECT_FALSE(goes()) << "not short";
  pair.run();
  pair.a.send(3, 0, 8);
  pair.a.send(4, 0, 8);
  EXPECT_FALSE(goes()) << "two";
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 5, 0, 8, pair.b, 0);
  EXPECT_FALSE(goes()) << "not a SEND";
  pair.run();
  for (std::uint64_t id = 1; id < 5; ++id) pair.b.receive(id, 0, 300);
  while (pair.wait()) continue;
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3, 4, 5}));
  pair.a.send(6, given.memory_bytes, 8);
  EXPECT_TRUE(goes()) << "its bytes are not registered";
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
}

TEST(LocalTransport, a_plain_send_of_a_few_bytes_leaves_with_its_post_and_nothing_else_does) {
  Given given;
  given.requests = 4;
  given.max_inline = 64;
  Pair pair(given);
  const auto leaves = [&](std::size_t length, SendFlags flags, Op op = Op::Send, std::uint64_t offset = 0) {
    const bool is_inline = has_flag(flags, SendFlags::Inline);
    ScatterGather local = pair.a.sge(offset, length);
    if (is_inline) local.address = reinterpret_cast<std::uint64_t>(pair.a.data());
    SendRequest request;
    request.id = length;
    request.opcode = op;
    request.flags = flags;
    request.local = {&local, 1};
    return pair.a.transport->put_short(request);
  };
  for (const SendFlags more : {SendFlags::None, SendFlags::Inline})
    for (const std::size_t length : {0u, 1u, 8u, 63u, 104u, 105u, ShortSend::kMostBytes}) {
      if (more == SendFlags::Inline && length > given.max_inline) continue;
      pair.a.put(0, pattern(length, 9));
      pair.b.receive(1, 0, 500);
      EXPECT_TRUE(leaves(length, SendFlags::Signaled | more));
      pair.a.transport->follow_short(pair.now);
      pair.run();
      EXPECT_TRUE(pair.b.holds(0, pattern(length, 9)));
      EXPECT_EQ(ids(pair.a.sent()), Ids{length});
      EXPECT_EQ(pair.b.received().size(), 1u);
    }
  EXPECT_FALSE(leaves(ShortSend::kMostBytes + 1, SendFlags::None));
  EXPECT_FALSE(leaves(65, SendFlags::Inline)) << "more than may be inline";
  EXPECT_FALSE(leaves(8, SendFlags::Solicited));
  EXPECT_FALSE(leaves(8, SendFlags::None, Op::SendWithImmediate));
  EXPECT_FALSE(leaves(8, SendFlags::None, Op::RdmaWrite));
  EXPECT_FALSE(leaves(8, SendFlags::None, Op::Send, given.memory_bytes)) << "not registered";
  EXPECT_EQ(pair.a.qp->send_queue().posted(), 11u);
  pair.b.receive(1, 0, 300);
  pair.a.send(1, 0, 8);
  EXPECT_FALSE(leaves(8, SendFlags::None)) << "another waits";
  pair.run();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(leaves(8, SendFlags::None));
  EXPECT_FALSE(leaves(8, SendFlags::None)) << "the queue is full";
  EXPECT_TRUE(pair.a.go(QueuePairState::Error));
  EXPECT_FALSE(leaves(8, SendFlags::None));
}

// Else who writes would be out of room one day, and wait for a turn that finds nothing.
TEST(LocalTransport, short_messages_there_and_back_never_lack_room) {
  Given given;
  given.capacity = kMinRingCapacity;
  Pair pair(given);
  for (std::uint64_t i = 0; i < 1000; ++i)
    for (Side* const from : {&pair.a, &pair.b}) {
      Side& to = from == &pair.a ? pair.b : pair.a;
      to.receive(i, 0, 8);
      const ScatterGather local = from->sge(0, 8);
      SendRequest request;
      request.flags = SendFlags::None;
      request.local = {&local, 1};
      if (from->transport->put_short(request)) {
        from->transport->follow_short(pair.now);
      } else {
        from->post(request);  // only now it looks how far the other has read
        ASSERT_TRUE(from->transport->emit_short()) << i;
        from->transport->follow_short(pair.now);
      }
      ASSERT_TRUE(to.transport->take_short(pair.now)) << i;
      ASSERT_EQ(to.received().size(), 1u);
    }
}

TEST(LocalTransport, q022_a_peer_that_took_a_short_message_is_seen_to_read) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.send(1, 0, 8);
  ASSERT_TRUE(pair.a.transport->emit_short());
  pair.a.transport->follow_short(pair.now);
  ASSERT_TRUE(pair.b.transport->take_short(pair.now));
  pair.b.transport->catch_up(pair.now);
  pair.now = pair.a.transport->deadline();
  pair.a.transport->handle_timeout(pair.now);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  pair.now = pair.a.transport->deadline();
  pair.a.transport->handle_timeout(pair.now);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u) << "and then not any more";
}

// r071: what left with its post is sent again from the queue.
TEST(LocalTransport, r070_r071_what_left_with_its_post_is_there_to_be_sent_again) {
  for (const bool is_inline : {false, true}) {
    Given given;
    given.max_inline = 64;
    Pair pair(given);
    pair.a.put(0, pattern(20));
    ScatterGather local = pair.a.sge(0, 20);
    if (is_inline) local.address = reinterpret_cast<std::uint64_t>(pair.a.data());
    SendRequest request;
    request.flags = is_inline ? SendFlags::Signaled | SendFlags::Inline : SendFlags::Signaled;
    request.local = {&local, 1};
    ASSERT_TRUE(pair.a.transport->put_short(request));
    pair.a.transport->follow_short(pair.now);
    pair.run();
    if (is_inline) pair.a.put(0, pattern(20, 5));
    pair.b.receive(1, 100, 20);
    EXPECT_TRUE(pair.wait());
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
    EXPECT_TRUE(pair.b.holds(100, pattern(20)));
  }
}

TEST(LocalTransport, a_plain_send_that_came_whole_is_taken_the_short_way_and_nothing_else_is) {
  const Given given;
  Pair pair(given);
  const auto taken = [&pair] {
    pair.a.transport->emit(pair.now);
    return pair.b.transport->take_short(pair.now);
  };
  EXPECT_FALSE(taken()) << "nothing came";
  for (std::uint64_t id = 1; id <= 9; ++id) pair.b.receive(id, 0, 500);
  for (const std::size_t length : {1u, 8u, 105u, ShortSend::kMostBytes}) {
    pair.a.put(0, pattern(length));
    pair.a.send(length, 0, length);
    EXPECT_TRUE(taken()) << length;
    EXPECT_TRUE(pair.b.holds(0, pattern(length)));
    const auto received = pair.b.received();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].byte_count, length);
    EXPECT_EQ(received[0].opcode, CompletionOpcode::Receive);
    EXPECT_FALSE(taken());
  }
  pair.a.send(2, 0, ShortSend::kMostBytes + 1);
  EXPECT_FALSE(taken()) << "not short";
  pair.run();
  pair.a.send(3, 0, 8, SendFlags::Signaled | SendFlags::Solicited);
  EXPECT_FALSE(taken()) << "it says more";
  pair.run();
  pair.a.fetch_or_write(Op::SendWithImmediate, 4, 0, 8, pair.b, 0);
  EXPECT_FALSE(taken()) << "likewise";
  pair.run();
  pair.a.fetch_or_write(Op::RdmaWrite, 5, 0, 8, pair.b, 0);
  EXPECT_FALSE(taken()) << "not a SEND";
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 8, 105, ShortSend::kMostBytes, 2, 3, 4, 5}));
  EXPECT_EQ(pair.b.received().size(), 3u);
}

TEST(LocalTransport, what_the_short_way_finds_wrong_with_a_receive_the_long_one_tells) {
  enum Wrong { None, TooShort, NoKey, TwoPieces };
  for (const Wrong wrong : {None, TooShort, NoKey, TwoPieces}) {
    Given given;
    given.rnr_retry = 0;
    Pair pair(given);
    std::array<ScatterGather, 2> local{pair.b.sge(0, wrong == TooShort ? 7 : 4), pair.b.sge(100, 4)};
    if (wrong == NoKey) local[0] = {pair.b.va(0), 8, LKey{1}};
    const ReceiveRequest receive{1, {local.data(), wrong == TwoPieces ? 2u : 1u}};
    if (wrong != None) {
      ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
    }
    pair.a.put(0, pattern(8));
    pair.a.send(1, 0, 8);
    pair.a.transport->emit(pair.now);
    EXPECT_EQ(pair.b.transport->take_short(pair.now), wrong == TwoPieces) << "which is not wrong";
    EXPECT_FALSE(pair.b.transport->take_short(pair.now)) << "again";
    pair.run();
    if (wrong == TwoPieces) {
      const Bytes sent = pattern(8);
      EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 4, pair.b.data()));
      EXPECT_TRUE(std::equal(sent.begin() + 4, sent.end(), pair.b.data() + 100));
    }
    const Status expected = wrong == TwoPieces  ? Status::Success
                            : wrong == TooShort ? Status::RemoteInvalidRequest
                            : wrong == NoKey    ? Status::RemoteOperationError
                                                : Status::RnrRetryExceeded;
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{expected}) << wrong;
    EXPECT_EQ(pair.b.received().size(), wrong == None ? 0u : 1u) << wrong;
  }
}

// It is found by the way, before the message is told of; a message that says what is not true is not told of at all.
TEST(LocalTransport, r090_a_short_send_acknowledges_what_was_sent) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.receive(2, 0, 8);
  pair.a.send(1, 0, 8);
  EXPECT_TRUE(pair.a.transport->emit_short());
  EXPECT_TRUE(pair.b.transport->take_short(pair.now));
  pair.b.send(2, 0, 8);
  EXPECT_TRUE(pair.b.transport->emit_short());
  EXPECT_TRUE(pair.a.transport->take_short(pair.now));
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
  EXPECT_EQ(ids(pair.a.received()), Ids{2});
  pair.run();
  EXPECT_EQ(ids(pair.b.sent()), Ids{2});

  Pair other;
  other.a.receive(2, 0, 8);
  RingProducer to_a(other.ring_to_a().memory());
  ShortSend lie{.length = 8, .acknowledges = true, .acknowledged = 7};
  const std::array<std::uint64_t, 3> words{lie.first_word(), lie.second_word(), 0};
  ASSERT_TRUE(to_a.try_put(static_cast<std::uint16_t>(RecordKind::Send), 24, words));
  EXPECT_FALSE(other.a.transport->take_short(other.now));
  other.a.transport->handle_records(other.now);
  EXPECT_EQ(other.a.happened(), Events{AsyncEventType::QpFatal});
  EXPECT_EQ(statuses(other.a.received()), Statuses{Status::Flushed});
}

TEST(LocalTransport, what_a_taken_message_acknowledges_waits_and_counts_whatever_comes_next) {
  enum Next { CatchUp, Turn, NextShort, Timeout, HangUp, Drain, Failure };
  for (const Next next : {CatchUp, Turn, NextShort, Timeout, HangUp, Drain, Failure}) {
    Pair pair;
    pair.b.receive(1, 0, 8);
    pair.a.receive(2, 0, 8);
    pair.a.send(1, 0, 8, SendFlags::None);
    ASSERT_TRUE(pair.a.transport->emit_short());
    pair.a.transport->follow_short(pair.now);
    ASSERT_TRUE(pair.b.transport->take_short(pair.now));
    pair.b.send(2, 0, 8);
    ASSERT_TRUE(pair.b.transport->emit_short());
    ASSERT_TRUE(pair.a.transport->take_short(pair.now));
    EXPECT_EQ(pair.a.qp->send_queue().retired(), 0u);
    pair.now = pair.a.transport->deadline();
    switch (next) {
      case CatchUp: pair.a.transport->catch_up(pair.now); break;
      case Turn: pair.a.transport->handle_records(pair.now); break;
      case NextShort: EXPECT_FALSE(pair.a.transport->take_short(pair.now)); break;
      case Timeout: pair.a.transport->handle_timeout(pair.now); break;
      case HangUp: pair.a.transport->handle_hang_up(pair.now); break;
      case Drain:
        ASSERT_TRUE(pair.a.go(QueuePairState::Sqd));
        pair.a.transport->catch_up(pair.now);
        EXPECT_EQ(pair.a.happened(), Events{AsyncEventType::SqDrained});
        break;
      case Failure:
        pair.a.transport->fail(AsyncEventType::QpFatal);
        pair.a.transport->catch_up(pair.now);
        EXPECT_EQ(pair.a.happened(), Events{AsyncEventType::QpFatal}) << "once";
        break;
    }
    EXPECT_EQ(statuses(pair.a.sent()), next == Failure ? Statuses{Status::Flushed} : Statuses{}) << next;
    EXPECT_EQ(pair.a.qp->send_queue().retired(), 1u);
    EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
    EXPECT_EQ(ids(pair.a.received()), Ids{2});
  }
}

// Somebody waits for it, or counts what is under way, or finds no room.
TEST(LocalTransport, what_a_taken_message_acknowledges_counts_at_once_where_it_is_told_of_or_there_is_more) {
  enum Reason { Signaled, Several, FullQueue };
  for (const Reason reason : {Signaled, Several, FullQueue}) {
    Given given;
    given.requests = reason == FullQueue ? 1 : 8;
    Pair pair(given);
    const std::uint32_t requests = reason == Several ? 2 : 1;
    for (std::uint32_t i = 0; i < requests; ++i) {
      pair.b.receive(1, 0, 8);
      pair.a.send(1, 0, 8, reason == Signaled ? SendFlags::Signaled : SendFlags::None);
      ASSERT_TRUE(pair.a.transport->emit_short());
      pair.a.transport->follow_short(pair.now);
      ASSERT_TRUE(pair.b.transport->take_short(pair.now));
    }
    pair.a.receive(9, 0, 8);
    pair.b.send(9, 0, 8);
    ASSERT_TRUE(pair.b.transport->emit_short());
    ASSERT_TRUE(pair.a.transport->take_short(pair.now));
    EXPECT_EQ(pair.a.qp->send_queue().retired(), requests) << reason;
    EXPECT_EQ(pair.a.sent().size(), reason == Signaled ? 1u : 0u);
    EXPECT_EQ(ids(pair.a.received()), Ids{9});
  }
}

TEST(LocalTransport, what_is_owed_is_said_though_the_request_that_would_have_said_it_fails) {
  for (const bool is_short : {false, true}) {
    const Given given;
    Pair pair(given);
    pair.b.receive(1, 0, 8);
    pair.a.send(1, 0, 8);
    EXPECT_TRUE(pair.a.transport->emit(pair.now));
    EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
    pair.b.send(2, given.memory_bytes, 8);  // not registered
    if (is_short) {
      EXPECT_TRUE(pair.b.transport->emit_short());
      pair.b.transport->follow_short(pair.now);
    } else {
      EXPECT_TRUE(pair.b.transport->emit(pair.now));
    }
    EXPECT_EQ(statuses(pair.b.sent()), Statuses{Status::LocalProtectionError});
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success}) << is_short;
  }
}

TEST(LocalTransport, q031_a_fenced_send_behind_a_read_does_not_go_the_short_way) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  const ScatterGather local = pair.a.sge(0, 8);
  SendRequest request;
  request.id = 2;
  request.flags = SendFlags::Signaled | SendFlags::Fence;
  request.local = {&local, 1};
  pair.a.post(request);
  EXPECT_FALSE(pair.a.transport->emit_short());
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
}

TEST(LocalTransport, o2_writes_lie_where_they_should_and_an_immediate_says_so) {
  for (const std::uint32_t capacity : {512u, 4096u}) {
    Given given;
    given.capacity = capacity;
    Pair pair(given);
    for (const std::size_t length : {0u, 1u, 8u, 24u, 25u, 1024u, 20'000u}) {
      const Bytes bytes = pattern(length, 3);
      pair.a.put(0, bytes);
      pair.b.receive(7, 0, 0);
      pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, length, pair.b, 1000);
      pair.a.fetch_or_write(Op::RdmaWriteWithImmediate, 2, 0, length, pair.b, 30'000);
      pair.run();
      EXPECT_TRUE(pair.b.holds(1000, bytes) && pair.b.holds(30'000, bytes));
      EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
      const auto received = pair.b.received();
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].opcode, CompletionOpcode::ReceiveRdmaWithImmediate);
      EXPECT_EQ(received[0].byte_count, length);
      EXPECT_TRUE(received[0].with_immediate);
      EXPECT_EQ(received[0].immediate[3], std::byte{4});
    }
    EXPECT_EQ(pair.b.counters.served_writes, 14u);
    EXPECT_EQ(pair.a.counters.rdma_writes, 14u);
  }
}

TEST(LocalTransport, r086_reads_of_every_length_bring_what_is_there) {
  for (const std::uint32_t capacity : {512u, 4096u}) {
    Given given;
    given.capacity = capacity;
    Pair pair(given);
    const Bytes bytes = pattern(30'000);
    pair.b.put(0, bytes);
    for (const std::size_t length : {0u, 1u, 8u, 40u, 1000u, 30'000u}) {
      std::memset(pair.a.data(), 0, 30'000);
      pair.a.fetch_or_write(Op::RdmaRead, 1, 0, length, pair.b, 0);
      pair.run();
      const auto sent = pair.a.sent();
      ASSERT_EQ(sent.size(), 1u) << length;
      EXPECT_EQ(sent[0].status, Status::Success);
      EXPECT_EQ(sent[0].byte_count, length);
      EXPECT_TRUE(pair.a.holds(0, Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length))));
      EXPECT_TRUE(pair.a.holds(length, Bytes(8)));
    }
  }
}

TEST(LocalTransport, r083_r084_r085_atomics_change_memory_once_and_bring_what_was_there) {
  Pair pair;
  pair.b.word(64) = 5;
  pair.a.fetch_or_write(Op::CompareAndSwap, 1, 0, 8, pair.b, 64);  // 5 becomes 9
  pair.a.fetch_or_write(Op::CompareAndSwap, 2, 8, 8, pair.b, 64);  // no longer 5
  pair.a.fetch_or_write(Op::FetchAndAdd, 3, 16, 8, pair.b, 64);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3}));
  EXPECT_EQ(pair.a.word(0), 5u);
  EXPECT_EQ(pair.a.word(8), 9u);
  EXPECT_EQ(pair.a.word(16), 9u);
  EXPECT_EQ(pair.b.word(64), 18u);
}

TEST(LocalTransport, q006_r078_several_pieces_here_and_there_with_empty_ones_between) {
  Pair pair;
  const Bytes bytes = pattern(700);
  pair.a.put(0, bytes);
  const ScatterGather from[] = {pair.a.sge(0, 3), pair.a.sge(3, 0), pair.a.sge(3, 600), pair.a.sge(603, 97)};
  const ScatterGather to[] = {pair.b.sge(5000, 1), pair.b.sge(0, 0), pair.b.sge(5001, 499), pair.b.sge(5500, 300)};
  const ReceiveRequest receive{4, to};
  ASSERT_TRUE(pair.b.qp->post_receive({&receive, 1}));
  SendRequest request;
  request.local = from;
  pair.a.post(request);
  pair.run();
  EXPECT_TRUE(pair.b.holds(5000, bytes));
  EXPECT_EQ(pair.b.received()[0].byte_count, 700u);
}

TEST(LocalTransport, q033_inline_bytes_are_those_of_the_post) {
  Pair pair;
  std::uint64_t word = 0x1122334455667788;
  const ScatterGather own{reinterpret_cast<std::uint64_t>(&word), 8, {}};
  SendRequest request;
  request.flags = SendFlags::Inline | SendFlags::Signaled;
  request.local = {&own, 1};
  pair.b.receive(1, 0, 8);
  pair.a.post(request);
  word = 0;
  pair.run();
  EXPECT_EQ(pair.b.word(0), 0x1122334455667788u);
}

TEST(LocalTransport, q034_what_is_not_signaled_completes_silently_and_r130_solicited_wakes) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.b.receive(2, 0, 8);
  pair.b.receive_cq.arm(true);
  pair.a.send(1, 0, 8, SendFlags::None);
  pair.run();
  EXPECT_TRUE(pair.a.sent().empty());
  EXPECT_FALSE(pair.b.events.poll().has_value());
  pair.a.send(2, 0, 8, SendFlags::Signaled | SendFlags::Solicited);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{2});
  EXPECT_EQ(pair.b.events.poll()->kind, core::Event::Kind::Completion);
}

TEST(LocalTransport, posts_before_the_rings_are_there_leave_afterwards) {
  Pair pair;
  Side a({}, 1), b({}, 2);
  a.to(QueuePairState::Rts);
  b.to(QueuePairState::Rts);
  b.receive(1, 0, 8);
  a.send(1, 0, 8);
  EXPECT_FALSE(a.transport->ready(pair.now));
  EXPECT_FALSE(a.transport->emit(pair.now));
  EXPECT_TRUE(a.transport->deadline().is_never());
  RingStorage to_b(1024), to_a(1024);
  a.transport->attach(pair.now, {RingProducer(to_b.memory()), RingConsumer(to_a.memory())});
  b.transport->attach(pair.now, {RingProducer(to_a.memory()), RingConsumer(to_b.memory())});
  EXPECT_TRUE(a.transport->emit(pair.now));
  EXPECT_TRUE(b.transport->handle_records(pair.now));
  EXPECT_EQ(ids(b.received()), Ids{1});
}

TEST(LocalTransport, r133_the_first_request_in_RTR_is_told_once) {
  Given given;
  Side a(given, 1), b(given, 2);
  RingStorage to_b(1024), to_a(1024);
  a.to(QueuePairState::Rts);
  b.to(QueuePairState::Rtr);
  a.transport->attach(Instant{}, {RingProducer(to_b.memory()), RingConsumer(to_a.memory())});
  b.transport->attach(Instant{}, {RingProducer(to_a.memory()), RingConsumer(to_b.memory())});
  for (int i = 0; i < 2; ++i) {
    b.receive(1, 0, 8);
    a.send(1, 0, 8);
    a.transport->emit(Instant{});
    b.transport->handle_records(Instant{});
  }
  EXPECT_EQ(b.happened(), Events{AsyncEventType::CommEstablished});
  EXPECT_FALSE(b.transport->handle_records(Instant{}));
  EXPECT_TRUE(b.transport->emit(Instant{})) << "answers leave in RTR";
  EXPECT_TRUE(a.transport->handle_records(Instant{}));
  EXPECT_EQ(a.sent().size(), 2u);
}

// ---- Acknowledgements

TEST(LocalTransport, r090_one_acknowledgement_leaves_with_the_reply_or_after_a_turn_that_found_nothing) {
  Pair pair;
  for (std::uint64_t i = 0; i < 3; ++i) {
    pair.b.receive(i, 0, 8);
    pair.a.send(i, 0, 8);
  }
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
  EXPECT_FALSE(pair.b.transport->ready(pair.now)) << "owed, not prompt";
  EXPECT_EQ(pair.b.transport->deadline(), pair.now + Config{}.max_owed_time);
  EXPECT_TRUE(pair.b.transport->ready(pair.b.transport->deadline()));
  pair.a.receive(9, 0, 8);
  pair.b.send(9, 0, 8);
  EXPECT_TRUE(pair.b.transport->emit(pair.now));
  EXPECT_TRUE(pair.a.transport->handle_records(pair.now));
  EXPECT_EQ(pair.a.sent().size(), 3u);
  EXPECT_EQ(ids(pair.a.received()), Ids{9});
  EXPECT_EQ(pair.b.counters.ack_deferred, 2u);
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  EXPECT_FALSE(pair.a.transport->handle_records(pair.now));
  EXPECT_TRUE(pair.a.transport->ready(pair.now)) << "nobody answered";
}

TEST(LocalTransport, r090_a_request_carries_the_acknowledgement_that_is_owed) {
  Pair pair;
  for (std::uint64_t i = 0; i < 70'000; ++i) {  // the lower half of the number comes round
    pair.b.receive(i, 0, 8);
    pair.a.receive(i, 0, 8);
    pair.a.send(i, 0, 8);
    ASSERT_TRUE(pair.a.transport->emit(pair.now));
    ASSERT_TRUE(pair.b.transport->handle_records(pair.now));
    pair.b.send(i, 0, 8);
    const std::uint64_t before = pair.a.counters.rdma_recvs;
    ASSERT_TRUE(pair.b.transport->emit(pair.now));
    ASSERT_TRUE(pair.a.transport->handle_records(pair.now));
    ASSERT_EQ(pair.a.counters.rdma_recvs, before + 1);
    ASSERT_EQ(ids(pair.a.sent()), Ids{i});
    ASSERT_EQ(pair.b.sent().size(), i == 0 ? 0u : 1u) << "acknowledged by the next request";
    pair.a.received();
    pair.b.received();
  }
}

TEST(LocalTransport, r090_one_record_is_a_request_and_an_acknowledgement) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.receive(2, 0, 8);
  pair.a.send(1, 0, 8);
  pair.a.transport->emit(pair.now);
  pair.b.transport->handle_records(pair.now);
  pair.b.send(2, 0, 8);
  RingConsumer in(pair.ring_to_a().memory());
  pair.b.transport->emit(pair.now);
  const Record* const record = in.peek();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->kind, static_cast<std::uint16_t>(RecordKind::Send));
  Request request;
  ASSERT_TRUE(parse(record->kind, {in.memory().data() + record->offset, record->payload_bytes}, request));
  EXPECT_TRUE(request.acknowledges);
  EXPECT_EQ(request.acknowledged, 0u);
  in.pop();
  EXPECT_EQ(in.peek(), nullptr);
}

TEST(LocalTransport, r093_many_requests_in_a_row_are_acknowledged_on_the_way) {
  Pair pair;
  const std::uint32_t most = Config{}.max_owed_requests;
  for (std::uint64_t i = 0; i < most; ++i) pair.a.fetch_or_write(Op::RdmaWrite, i, 0, 8, pair.b, 0);
  while (pair.a.transport->emit(pair.now)) {
  }
  while (!pair.b.transport->ready(pair.now)) ASSERT_TRUE(pair.b.transport->handle_records(pair.now));
  EXPECT_TRUE(pair.b.transport->emit(pair.now));
  pair.a.transport->handle_records(pair.now);
  EXPECT_EQ(pair.a.sent().size(), most);
}

TEST(LocalTransport, r081_o1_answers_leave_in_the_order_of_the_requests) {
  Pair pair;
  pair.b.put(0, pattern(9000));
  pair.b.receive(1, 20'000, 8);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 9000, pair.b, 0);
  pair.a.send(2, 0, 8);
  pair.a.fetch_or_write(Op::FetchAndAdd, 3, 16, 8, pair.b, 16'000);
  pair.a.fetch_or_write(Op::RdmaWrite, 4, 0, 8, pair.b, 24'000);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(pair.a.holds(0, Bytes(8)) || pair.a.holds(0, pattern(8)));
}

// ---- Order and limits of the requester

TEST(LocalTransport, q030_no_more_reads_than_agreed_are_out_and_those_behind_wait) {
  Given given;
  given.max_rd_atomic = 2;
  Pair pair(given);
  for (std::uint64_t i = 0; i < 5; ++i) pair.a.fetch_or_write(Op::RdmaRead, i, 0, 8, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaWrite, 5, 0, 8, pair.b, 0);
  EXPECT_TRUE(pair.a.transport->emit(pair.now));
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  pair.b.transport->handle_records(pair.now);
  EXPECT_EQ(pair.b.counters.served_reads, 2u);
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{0, 1, 2, 3, 4, 5}));
}

TEST(LocalTransport, r082_more_reads_than_the_responder_takes_are_refused) {
  Given bold, modest;
  modest.max_dest_rd_atomic = 2;
  Pair pair(bold, modest);
  for (std::uint64_t i = 0; i < 4; ++i) pair.a.fetch_or_write(Op::RdmaRead, i, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()),
            (Statuses{Status::Success, Status::Success, Status::RemoteInvalidRequest, Status::Flushed}));
  EXPECT_EQ(pair.b.happened(), Events{AsyncEventType::QpRequestError});
  EXPECT_TRUE(pair.b.transport->finished());
}

TEST(LocalTransport, q031_a_fence_waits_for_reads_before_it) {
  Pair pair;
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8, pair.b, 8, SendFlags::Fence | SendFlags::Signaled);
  pair.b.put(0, pattern(8));
  pair.a.transport->emit(pair.now);
  EXPECT_FALSE(pair.a.transport->ready(pair.now));
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), (Ids{1, 2}));
  EXPECT_TRUE(pair.b.holds(8, pattern(8))) << "the write carried what was read";
}

TEST(LocalTransport, q055_in_SQD_what_was_started_ends_and_the_rest_waits_for_RTS) {
  Given given;
  given.capacity = 512;
  Pair pair(given);
  pair.a.put(0, pattern(1000));
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 1000, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8, pair.b, 2000);
  pair.a.transport->emit(pair.now);
  ASSERT_TRUE(pair.a.go(QueuePairState::Sqd));
  EXPECT_TRUE(pair.a.happened().empty());
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{1});
  EXPECT_TRUE(pair.b.holds(0, pattern(1000)));
  EXPECT_EQ(pair.a.happened(), Events{AsyncEventType::SqDrained});
  ASSERT_TRUE(pair.a.go(QueuePairState::Rts));
  pair.run();
  EXPECT_EQ(ids(pair.a.sent()), Ids{2});
}

TEST(LocalTransport, q050_a_wrong_key_here_fails_in_its_turn_and_nothing_of_it_arrives) {
  for (const Op op : {Op::Send, Op::RdmaWrite, Op::RdmaRead, Op::FetchAndAdd}) {
    Pair pair;
    pair.b.receive(1, 0, 100);
    pair.b.receive(2, 0, 100);
    pair.a.send(1, 0, 8);
    const ScatterGather wrong{pair.a.va(0), 8, LKey{12345}};
    SendRequest request;
    request.id = 2;
    request.opcode = op;
    request.flags = SendFlags::None;
    request.local = {&wrong, 1};
    request.remote_address = pair.b.va(64);
    request.rkey = pair.b.region.rkey;
    pair.a.post(request);
    pair.a.send(3, 0, 8);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::Success, Status::LocalProtectionError, Status::Flushed}));
    EXPECT_EQ(pair.a.qp->state(), QueuePairState::Error);
    EXPECT_TRUE(pair.a.transport->finished());
    EXPECT_EQ(pair.b.received().size(), 1u);
    EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
  }
}

TEST(LocalTransport, q050_memory_that_is_gone_in_the_middle_of_a_message_ends_it_there) {
  Given given;
  given.capacity = 1024;
  Pair pair(given);
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 20'000, pair.b, 0);
  pair.a.transport->emit(pair.now);
  ASSERT_TRUE(pair.a.memory.deregister(pair.a.region.lkey));
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
  EXPECT_EQ(pair.b.counters.served_writes, 0u);
  EXPECT_EQ(pair.b.qp->state(), QueuePairState::Rts);
}

TEST(LocalTransport, reads_need_a_queue_pair_that_may_read) {
  Given given;
  given.max_rd_atomic = 0;
  Pair pair(given);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalQpOperationError});
}

TEST(LocalTransport, q050_a_read_into_memory_that_may_not_be_written_is_not_asked_for) {
  Given given;
  given.memory_access = Access::RemoteRead;
  Pair pair(given, Given{});
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.run();
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::LocalProtectionError});
  EXPECT_EQ(pair.b.counters.served_reads, 0u);
}

TEST(LocalTransport, q031_a_short_send_with_a_fence_does_not_leave_with_its_post_while_a_read_is_out) {
  Pair pair;
  pair.b.receive(1, 0, 8);
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  const ScatterGather local = pair.a.sge(0, 8);
  SendRequest send;
  send.local = {&local, 1};
  send.flags = SendFlags::Signaled | SendFlags::Fence;
  EXPECT_FALSE(pair.a.transport->put_short(send));
  pair.run();
  EXPECT_TRUE(pair.a.transport->put_short(send));
}

TEST(LocalTransport, r065_an_aligned_address_of_bytes_that_lie_misaligned_is_not_touched) {
  for (const Op opcode : {Op::FetchAndAdd, Op::CompareAndSwap}) {
    Pair pair;
    const auto region = pair.b.memory.register_region({}, pair.b.data() + 4, 64, 0x900000, Access::All);
    const ScatterGather local = pair.a.sge(0, 8);
    SendRequest request;
    request.opcode = opcode;
    request.local = {&local, 1};
    request.remote_address = 0x900008;
    request.rkey = region->rkey;
    request.swap_or_add = 9;
    pair.a.post(request);
    pair.run();
    EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::RemoteInvalidRequest});
    EXPECT_TRUE(pair.b.holds(0, Bytes(64)));
  }
}

TEST(LocalTransport, r093_what_is_owed_counts_from_the_first_of_it) {
  Pair pair;
  const auto arrives = [&](std::uint64_t id) {
    pair.b.receive(id, 0, 8);
    pair.a.send(id, 0, 8);
    pair.a.transport->emit(pair.now);
    EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
  };
  arrives(1);
  const Instant due = pair.b.transport->deadline();
  ASSERT_FALSE(due.is_never());
  pair.now = pair.now + Duration::nanoseconds(100);
  arrives(2);
  EXPECT_EQ(pair.b.transport->deadline(), due);
}

TEST(LocalTransport, r130_a_short_send_behind_a_solicited_one_is_not_solicited) {
  Pair pair;
  for (const std::uint64_t id : {1u, 2u}) pair.b.receive(id, 0, 8);
  pair.a.send(1, 0, 8, SendFlags::Signaled | SendFlags::Solicited);
  pair.a.transport->emit(pair.now);
  EXPECT_TRUE(pair.b.transport->handle_records(pair.now));
  pair.b.receive_cq.arm(true);
  pair.a.send(2, 0, 8);
  pair.a.transport->emit(pair.now);
  EXPECT_TRUE(pair.b.transport->take_short(pair.now));
  EXPECT_EQ(ids(pair.b.received()), (Ids{1, 2}));
  EXPECT_FALSE(pair.b.events.poll());
}

TEST(LocalTransport, r133_a_wait_for_the_first_request_in_rts_ends_with_its_life) {
  Pair pair;
  pair.b.transport->await_first_request();
  for (Side* const side : {&pair.a, &pair.b}) {
    ASSERT_TRUE(side->go(QueuePairState::Reset));
    side->to(QueuePairState::Rts);
  }
  pair.attach();
  pair.b.receive(1, 0, 8);
  pair.a.send(1, 0, 8);
  pair.run();
  EXPECT_EQ(ids(pair.b.received()), Ids{1});
  EXPECT_EQ(pair.b.happened(), Events{});
}

}  // namespace
}  // namespace verbena::local
