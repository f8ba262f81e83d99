// SPDX-License-Identifier: Apache-2.0
// A peer that writes what none should harms its own connection and nothing else.
#include <gtest/gtest.h>

#include "soft/local/test_pair.h"
#include "soft/local/transport.h"

namespace verbena::local {
namespace {

using namespace testing;

class HostilePeer : public ::testing::Test {
 protected:
  HostilePeer() : out(pair.ring_to_a().memory()), in(pair.ring_to_b().memory()) {}

  std::byte* reserve(RecordKind kind, std::uint32_t bytes) {
    const auto at = out.try_reserve(static_cast<std::uint16_t>(kind), bytes);
    return at ? out.memory().data() + *at : nullptr;
  }
  void say(const Response& response, std::uint32_t more = 0) {
    std::byte* to = reserve(response.kind, head_bytes(response) + more);
    ASSERT_NE(to, nullptr);
    emit(response, to);
  }
  void ask(const Request& request, std::uint32_t payload) {
    std::byte* to = reserve(kind_of(request), head_bytes(request) + payload);
    ASSERT_NE(to, nullptr);
    emit(request, to);
  }
  void go_on(std::uint32_t number, std::uint32_t payload) {
    std::byte* to = reserve(RecordKind::Continuation, kContinuationHeadBytes + payload);
    ASSERT_NE(to, nullptr);
    emit(Continuation{number, payload, kContinuationHeadBytes}, to);
  }
  static Response response(RecordKind kind, std::uint32_t number) {
    Response made;
    made.kind = kind;
    made.number = number;
    if (kind == RecordKind::Refuse) made.code = 1;
    return made;
  }
  void deliver() {
    out.publish();
    while (pair.a.transport->handle_records(pair.now)) pair.a.transport->emit(pair.now);
    pair.a.transport->check_invariants();
  }
  void expect_broken(const char* what) {
    deliver();
    EXPECT_EQ(pair.a.qp->state(), QueuePairState::Error) << what;
    EXPECT_EQ(pair.a.happened(), Events{AsyncEventType::QpFatal}) << what;
    EXPECT_TRUE(pair.a.transport->finished()) << what;
    EXPECT_FALSE(pair.a.transport->ready(pair.now) || pair.a.transport->emit(pair.now)) << what;
  }
  void expect_bad_response(const char* what) {
    deliver();
    const auto sent = pair.a.sent();
    ASSERT_FALSE(sent.empty()) << what;
    EXPECT_EQ(sent.back().status, Status::BadResponse) << what;
    EXPECT_EQ(pair.a.qp->state(), QueuePairState::Error) << what;
  }

  Pair pair;
  RingProducer out;
  RingConsumer in;
};

TEST_F(HostilePeer, q012_answers_to_what_was_never_asked_break_the_connection) {
  say(response(RecordKind::Acknowledge, 0));
  expect_broken("acknowledge");
}

TEST_F(HostilePeer, q012_an_acknowledgement_of_what_is_not_whole_yet_breaks_the_connection) {
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 20'000, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::Acknowledge, 0));
  expect_broken("acknowledge");
}

TEST_F(HostilePeer, q011_an_acknowledgement_that_comes_twice_breaks_the_connection) {
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::Acknowledge, 0));
  say(response(RecordKind::Acknowledge, 0));
  expect_broken("twice");
  EXPECT_EQ(statuses(pair.a.sent()), Statuses{Status::Success});
}

TEST_F(HostilePeer, q012_a_request_that_acknowledges_what_was_never_asked_breaks_the_connection) {
  for (const std::uint16_t acknowledged : std::initializer_list<std::uint16_t>{0, 1, 0x8000, 0xffff}) {
    SCOPED_TRACE(acknowledged);
    Pair fresh;
    RingProducer to_a(fresh.ring_to_a().memory());
    fresh.a.receive(1, 0, 64);
    Request request;
    request.acknowledges = true;
    request.acknowledged = acknowledged;
    const auto at = to_a.try_reserve(static_cast<std::uint16_t>(kind_of(request)), head_bytes(request));
    ASSERT_TRUE(at);
    emit(request, to_a.memory().data() + *at);
    to_a.publish();
    EXPECT_TRUE(fresh.a.transport->handle_records(fresh.now));
    EXPECT_EQ(fresh.a.qp->state(), QueuePairState::Error);
    EXPECT_EQ(fresh.a.happened(), Events{AsyncEventType::QpFatal});
  }
}

TEST_F(HostilePeer, q010_a_request_that_acknowledges_beyond_an_open_read_is_a_bad_response_and_not_executed) {
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8, pair.b, 0);
  pair.a.receive(3, 0, 64);
  pair.a.transport->emit(pair.now);
  Request request;
  request.acknowledges = true;
  request.acknowledged = 1;
  ask(request, 0);
  deliver();
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::BadResponse, Status::Flushed}));
  EXPECT_EQ(statuses(pair.a.received()), Statuses{Status::Flushed});
}

TEST_F(HostilePeer, q010_an_acknowledgement_beyond_an_open_read_is_a_bad_response) {
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.fetch_or_write(Op::RdmaWrite, 2, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::Acknowledge, 1));
  deliver();
  EXPECT_EQ(statuses(pair.a.sent()), (Statuses{Status::BadResponse, Status::Flushed}));
}

TEST_F(HostilePeer, q016_q018_more_than_was_asked_for_is_a_bad_response_and_is_not_stored) {
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::ReadData, 0), 9);
  expect_bad_response("too long");
  EXPECT_TRUE(pair.a.holds(0, Bytes(16)));
}

TEST_F(HostilePeer, q016_nothing_in_answer_to_a_read_of_something_is_a_bad_response) {
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::ReadData, 0), 0);
  expect_bad_response("empty");
}

TEST_F(HostilePeer, q019_data_for_an_atomic_is_a_bad_response) {
  pair.a.fetch_or_write(Op::FetchAndAdd, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::ReadData, 0), 8);
  expect_bad_response("data");
}

TEST_F(HostilePeer, q019_an_atomic_result_for_a_write_is_a_bad_response) {
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::AtomicResult, 0));
  expect_bad_response("result");
}

TEST_F(HostilePeer, no_receive_for_what_takes_none_is_a_bad_response) {
  pair.a.fetch_or_write(Op::RdmaWrite, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::NotReady, 0));
  expect_bad_response("not ready");
}

TEST_F(HostilePeer, r040_r041_r053_records_that_do_not_follow_each_other_break_the_connection) {
  struct Case {
    const char* what;
    std::vector<int> records;  // >= 0: a WRITE of 16 with so many bytes; < 0: a continuation with so many
    std::uint32_t number;      // of the last
  };
  const Case all[] = {{"a continuation of nothing", {-8}, 0},
                      {"a request inside another", {8, 8}, 1},
                      {"the same number again", {16, 16}, 0},
                      {"a number left out", {16}, 1},
                      {"a continuation of another", {8, -8}, 1},
                      {"more than the length", {8, -9}, 0}};
  for (const Case& one : all) {
    Pair fresh;
    RingProducer to_a(fresh.ring_to_a().memory());
    for (std::size_t i = 0; i < one.records.size(); ++i) {
      const bool last = i + 1 == one.records.size();
      const auto payload = static_cast<std::uint32_t>(std::abs(one.records[i]));
      Request request;
      request.opcode = Op::RdmaWrite;
      request.length = 16;
      request.number = last ? one.number : 0;
      request.remote_address = fresh.a.va(0);
      request.rkey = fresh.a.region.rkey;
      const bool begins = one.records[i] >= 0;
      const auto kind = begins ? RecordKind::RdmaWrite : RecordKind::Continuation;
      const std::uint32_t head = begins ? head_bytes(request) : kContinuationHeadBytes;
      const auto at = to_a.try_reserve(static_cast<std::uint16_t>(kind), head + payload);
      ASSERT_TRUE(at);
      if (begins)
        emit(request, to_a.memory().data() + *at);
      else
        emit(Continuation{request.number, payload, head}, to_a.memory().data() + *at);
    }
    to_a.publish();
    fresh.a.transport->handle_records(fresh.now);
    EXPECT_EQ(fresh.a.happened(), Events{AsyncEventType::QpFatal}) << one.what;
  }
}

TEST_F(HostilePeer, records_of_unknown_kind_or_wrong_shape_break_the_connection) {
  reserve(static_cast<RecordKind>(99), 8);
  expect_broken("unknown kind");
}

TEST_F(HostilePeer, payload_that_was_not_agreed_to_lie_elsewhere_breaks_the_connection) {
  Request request;
  request.placement = Placement::InMemory;
  request.length = 8;
  request.pieces.count = 1;
  request.pieces.pieces[0] = {0, 8, reinterpret_cast<std::uint64_t>(this)};
  ask(request, 0);
  expect_broken("pieces");
}

TEST_F(HostilePeer, who_asks_again_before_it_heard_that_there_is_no_receive_breaks_the_connection) {
  Request request;
  request.length = 8;
  for (int i = 0; i < 2; ++i) ask(request, 8);
  out.publish();
  pair.a.transport->handle_records(pair.now);
  EXPECT_EQ(pair.a.happened(), Events{AsyncEventType::QpFatal});
}

TEST_F(HostilePeer, r012_an_answer_in_RTR_breaks_the_connection) {
  Side fresh({}, 1);
  fresh.to(QueuePairState::Rtr);
  RingStorage to_fresh(1024), from_fresh(1024);
  fresh.transport->attach(pair.now, {RingProducer(from_fresh.memory()), RingConsumer(to_fresh.memory())});
  RingProducer producer(to_fresh.memory());
  const auto at = producer.try_reserve(static_cast<std::uint16_t>(RecordKind::Acknowledge), 8);
  emit(response(RecordKind::Acknowledge, 0), producer.memory().data() + *at);
  producer.publish();
  fresh.transport->handle_records(pair.now);
  EXPECT_EQ(fresh.happened(), Events{AsyncEventType::QpFatal});
}

TEST_F(HostilePeer, F21_words_that_no_ring_has_break_the_connection_at_either_side) {
  for (const bool head : {false, true}) {
    Pair fresh;
    RingStorage& ring = head ? fresh.ring_to_b() : fresh.ring_to_a();
    *reinterpret_cast<std::uint64_t*>(ring.base() + (head ? 0 : kWriterBytes)) = 12345;
    for (int i = 0; i < 60; ++i) fresh.a.fetch_or_write(Op::RdmaWrite, 1, 0, 500, fresh.b, 0);
    while (fresh.a.transport->ready(fresh.now)) fresh.a.transport->emit(fresh.now);
    fresh.a.transport->handle_records(fresh.now);
    EXPECT_EQ(fresh.a.happened(), Events{AsyncEventType::QpFatal}) << head;
  }
}

TEST_F(HostilePeer, two_full_rings_do_not_wait_for_each_other) {
  Given given;
  given.capacity = 512;
  Pair full(given);
  full.a.put(0, pattern(20'000, 1));
  full.b.put(0, pattern(20'000, 2));
  for (auto* side : {&full.a, &full.b}) {
    Side& other = side == &full.a ? full.b : full.a;
    side->fetch_or_write(Op::RdmaRead, 1, 20'000, 20'000, other, 0);
    side->fetch_or_write(Op::RdmaWrite, 2, 0, 20'000, other, 40'000);
    while (side->transport->emit(full.now)) {
    }
  }
  full.run();
  EXPECT_EQ(ids(full.a.sent()), (Ids{1, 2}));
  EXPECT_EQ(ids(full.b.sent()), (Ids{1, 2}));
  EXPECT_TRUE(full.a.holds(20'000, pattern(20'000, 2)) && full.a.holds(40'000, pattern(20'000, 2)));
  EXPECT_TRUE(full.b.holds(20'000, pattern(20'000, 1)) && full.b.holds(40'000, pattern(20'000, 1)));
}

TEST_F(HostilePeer, a_read_that_is_refused_for_want_of_a_receive_is_a_bad_response) {
  pair.a.fetch_or_write(Op::RdmaRead, 1, 0, 8, pair.b, 0);
  pair.a.transport->emit(pair.now);
  say(response(RecordKind::NotReady, 0));
  expect_bad_response("a READ needs none");
}

// Looked for by the short way, too.
TEST_F(HostilePeer, r041_a_short_send_inside_a_message_breaks_the_connection) {
  pair.a.receive(1, 0, 1000);
  Request request;
  request.length = 100;
  ask(request, 8);
  deliver();
  request.length = 8;
  ask(request, 8);
  out.publish();
  EXPECT_FALSE(pair.a.transport->take_short(pair.now));
  expect_broken("a message is open");
}

}  // namespace
}  // namespace verbena::local
