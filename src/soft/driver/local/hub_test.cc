// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>

#include "soft/driver/local/test_limited.h"
#include "soft/driver/local/test_side.h"
#include "soft/driver/test_other_user.h"
#include "soft/driver/test_stepped_process.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using verbena::local::Answer;
using verbena::local::Endpoint;
using verbena::local::Hello;
using verbena::local::layout_of;

// A peer that is a socket and no more.
struct Stranger {
  static PeerSocket reach_or_die(const Gid& gid) {
    auto reached = reach({gid, 0});
    EXPECT_TRUE(reached && *reached);
    return std::move(**reached);
  }
  Stranger(const Side& side, const Endpoint& from, const Endpoint& to)
      : socket(reach_or_die(side.nic.config().address)), segment(*Segment::create(layout_of(4096).bytes)) {
    EXPECT_TRUE(socket.send(Hello{4096, from, to}, segment.descriptor()));
  }
  std::optional<Answer> answer() {
    auto answer = socket.try_receive_answer();
    return answer ? *answer : std::nullopt;
  }
  PeerSocket socket;
  Segment segment;
};

TEST(Hub, queue_pairs_of_one_host_share_memory_whoever_comes_first) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  EXPECT_THAT(a.explained(), HasSubstr("has not answered yet"));
  b.connect(a.endpoint());
  EXPECT_TRUE(b.on_rings()) << b.explained();
  a.turn();
  EXPECT_TRUE(a.on_rings()) << a.explained();
  EXPECT_FALSE(a.hub->any_undecided() || b.hub->any_undecided());
  std::memset(a.memory.data(), 7, 100);
  a.write(1, b, 100);
  a.turn(), b.turn(), b.turn(), a.turn();
  const auto done = a.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::Success);
  EXPECT_EQ(std::memcmp(b.memory.data(), a.memory.data(), 100), 0);
}

TEST(Hub, each_process_at_an_address_is_asked_by_its_slot) {
  const auto slot = [](std::uint32_t value) { return IdSlot{6, value}; };
  Side a(1, false, slot(0)), b(1, false, slot(1)), c(1, false, slot(63)), other(2, false, slot(0));
  EXPECT_FALSE(Hub::open({.address = address(1), .ids = slot(63)})) << "that slot is taken";
  b.connect(c.endpoint());
  c.connect(b.endpoint());
  a.connect(other.endpoint());
  other.connect(a.endpoint());
  for (Side* side : {&a, &b, &c, &other}) {
    side->turn();
    EXPECT_TRUE(side->on_rings()) << side->explained();
  }
  EXPECT_THAT(c.explained(), HasSubstr("/63"));
  b.write(1, c, 100);
  for (int i = 0; i < 3; ++i) b.turn(), c.turn();
  EXPECT_EQ(b.completions().size(), 1u);
}

TEST(Hub, waits_for_the_name_of_one_that_is_going) {
  auto going = offer({address(1), 5});
  ASSERT_TRUE(going);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const OwnDescriptor gone = std::move(*going);
  });
  EXPECT_TRUE(Hub::open({.address = address(1), .ids = {6, 5}}));
  end.join();
}

bool is_signalled(const Side& side) {
  pollfd fd{side.hub->fd(), POLLIN, 0};
  return ::poll(&fd, 1, 0) == 1;
}

// ---- What is put off

// Two ends on rings, `b` with receives posted.
class ShortMessages : public ::testing::Test {
 protected:
  ShortMessages() {
    a.connect(b.endpoint());
    b.connect(a.endpoint());
    for (int i = 0; i < 4; ++i) a.turn(), b.turn();
    for (int i = 0; i < 8; ++i) {
      const ScatterGather to{0x10000, 64, b.region.lkey};
      const ReceiveRequest receive{1, {&to, 1}};
      EXPECT_TRUE(b.qp.queues->post_receive({&receive, 1}));
    }
  }
  void send() {
    const ScatterGather from{0x10000, 8, a.region.lkey};
    SendRequest request;
    request.flags = SendFlags::Signaled;
    request.local = {&from, 1};
    ASSERT_TRUE(a.qp.queues->post_send({&request, 1}));
    ASSERT_TRUE(a.nic.emit_post(*a.qp.queues));
    a.nic.follow_post(a.now, *a.qp.queues);
  }
  Side a{1}, b{2};
};

TEST_F(ShortMessages, one_is_told_at_once_and_acknowledged_when_the_turn_is_caught_up) {
  send();
  EXPECT_FALSE(b.nic.rings_look_empty());
  EXPECT_TRUE(b.nic.take_short(b.now));
  EXPECT_EQ(b.completions().size(), 1u);
  EXPECT_TRUE(b.nic.next_deadline().is_never());
  b.nic.catch_up(b.now);
  EXPECT_FALSE(b.nic.next_deadline().is_never()) << "an acknowledgement is owed";
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  EXPECT_EQ(a.completions().size(), 1u);
}

TEST_F(ShortMessages, a_second_one_waits_until_the_first_is_caught_up) {
  send();
  EXPECT_TRUE(b.nic.take_short(b.now));
  send();
  EXPECT_FALSE(b.nic.take_short(b.now));
  b.turn();
  EXPECT_EQ(b.completions().size(), 2u);
}

TEST_F(ShortMessages, a_queue_pair_that_is_reset_meanwhile_is_not_looked_at_again) {
  send();
  EXPECT_TRUE(b.nic.take_short(b.now));
  b.to(QueuePairState::Reset);
  b.turn();
  EXPECT_TRUE(b.completions().empty()) << "Q-053";
}

TEST_F(ShortMessages, nor_is_one_that_is_destroyed) {
  send();
  EXPECT_TRUE(b.nic.take_short(b.now));
  EXPECT_TRUE(b.nic.destroy_qp(b.qp.qpn));
  b.nic.catch_up(b.now);
  b.nic.handle_records(b.now);
}

TEST_F(ShortMessages, one_that_is_put_into_ERR_says_what_it_owes) {
  send();
  EXPECT_TRUE(b.nic.take_short(b.now));
  b.to(QueuePairState::Error);
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  EXPECT_EQ(b.completions().size(), 8u);
  const auto sent = a.completions();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::Success);
}

TEST(Hub, who_sleeps_is_woken_for_room_when_it_lacks_any) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  a.nic.announce_sleep();
  a.write(1, b, 8);
  a.turn();
  b.nic.handle_records(b.now);
  b.nic.emit_records(b.now);
  EXPECT_FALSE(is_signalled(a)) << "there was room, and nothing was answered";
  for (std::uint64_t id = 2; id < 16; ++id) a.write(id, b, 4096);
  for (int i = 0; i < 8; ++i) a.turn();
  EXPECT_TRUE(a.completions().empty());
  a.nic.announce_sleep();
  while (!is_signalled(a)) {
    ASSERT_TRUE(b.nic.handle_records(b.now)) << "all was read, and nobody woke who wants to write more";
    b.nic.emit_records(b.now);
  }
  for (int i = 0; i < 16; ++i) a.turn(), b.turn();
  EXPECT_EQ(a.completions().size(), 15u);
}

TEST(Hub, a_slot_nobody_has_is_no_other_process) {
  Side a(1, false, {6, 0}), b(2, false, {6, 0});
  a.connect({b.endpoint().gid, Qpn(IdSlot{6, 5}.place(b.qp.qpn.value(), 24))});
  EXPECT_TRUE(a.on_packets()) << a.explained();
}

TEST(Hub, what_is_posted_before_the_peer_answers_waits) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  a.write(1, b, 8);
  a.turn();
  EXPECT_TRUE(a.completions().empty());
  b.connect(a.endpoint());
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  ASSERT_EQ(a.completions().size(), 1u);
}

TEST(Hub, what_waits_for_a_peer_that_never_answers_ends_as_a_silent_one) {
  Side a(1), b(2);  // b's queue pair stays where it is
  a.connect(b.endpoint());
  a.write(1, b, 8);
  a.turn();
  a.now = a.nic.next_deadline();
  a.turn();
  const auto done = a.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::RetryExceeded);
  EXPECT_EQ(a.qp.queues->state(), QueuePairState::Error);
  EXPECT_FALSE(a.hub->any_undecided());
}

TEST(Hub, where_nobody_offers_packets_go) {
  Side a(1);
  a.connect({address(9), Qpn{77}});
  EXPECT_THAT(a.explained(), HasSubstr("RoCE, because nobody offers shared memory"));
  EXPECT_FALSE(a.hub->any_undecided());
}

TEST(Hub, memory_that_is_required_and_not_offered_is_an_error_of_the_step_to_rtr) {
  Side a(1, true);
  const auto entered = a.to_rtr({address(9), Qpn{77}});
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code(), ErrorCode::NotSupported);
  EXPECT_THAT(entered.error().to_string(), HasSubstr("nobody offers shared memory"));
  EXPECT_EQ(a.qp.queues->state(), QueuePairState::Error);
}

TEST(Hub, memory_that_is_required_and_refused_puts_the_queue_pair_into_error) {
  Side a(1, true), b(2);
  a.connect({b.endpoint().gid, Qpn{77}});
  b.turn(), a.turn();
  EXPECT_EQ(a.qp.queues->state(), QueuePairState::Error);
  const auto event = a.nic.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::PathRefused);
}

TEST(Hub, an_unknown_queue_pair_and_a_stranger_are_refused) {
  Side a(1), b(2);
  const Endpoint stranger{address(3), Qpn{50}};
  Stranger nowhere(a, stranger, {a.endpoint().gid, Qpn{a.qp.qpn.value() ^ 1}});
  a.turn();
  EXPECT_EQ(nowhere.answer(), Answer::Unknown);
  Stranger early(a, stranger, a.endpoint());
  a.turn();
  EXPECT_EQ(early.answer(), std::nullopt);  // held: it may be the peer yet
  a.connect(b.endpoint());
  EXPECT_EQ(early.answer(), Answer::Unknown);
  EXPECT_TRUE(a.hub->any_undecided());
}

TEST(Hub, a_held_ask_for_a_queue_pair_that_is_destroyed_is_refused) {
  Side a(1);
  Stranger early(a, {address(3), Qpn{50}}, a.endpoint());
  a.turn();
  EXPECT_TRUE(a.nic.destroy_qp(a.qp.qpn));
  EXPECT_EQ(early.answer(), Answer::Unknown);
}

TEST(Hub, asks_that_cross_leave_that_of_the_lower) {
  for (const std::uint8_t number : {std::uint8_t{1}, std::uint8_t{9}}) {
    Side side(number);
    const Endpoint peer{address(5), Qpn{50}};
    auto peer_listens = offer({peer.gid, 0});
    ASSERT_TRUE(peer_listens);
    side.connect(peer);
    Stranger crossing(side, peer, side.endpoint());
    side.turn();
    EXPECT_EQ(crossing.answer(), side.endpoint() < peer ? Answer::Crossed : Answer::Accept);
    EXPECT_EQ(side.on_rings(), peer < side.endpoint());
  }
}

TEST(Hub, who_goes_by_packets_says_so_to_every_ask) {
  Side a(1);
  const Endpoint peer{address(5), Qpn{50}};
  a.connect(peer);  // where nobody offers
  Stranger late(a, peer, a.endpoint());
  a.turn();
  EXPECT_EQ(late.answer(), Answer::Roce);
}

TEST(Hub, a_refusal_and_a_peer_that_ends_mean_packets) {
  Side a(1);
  const Endpoint peer{address(5), Qpn{50}};
  auto listener = offer({peer.gid, 0});
  ASSERT_TRUE(listener);
  for (const bool answers : {true, false}) {
    a.connect(peer);
    {
      auto asked = accept_one(listener->get());
      ASSERT_TRUE(asked && *asked);
      auto socket = PeerSocket::adopt(std::move(**asked));
      ASSERT_TRUE(socket);
      if (answers) {
        EXPECT_TRUE(socket->send(Answer::Roce));
      }
    }
    EXPECT_FALSE(a.on_packets());
    a.turn();
    EXPECT_TRUE(a.on_packets()) << a.explained();
    a.to(QueuePairState::Reset);
    QueuePairAttributes again;
    again.state = QueuePairState::Init;
    using M = AttributeMask;
    EXPECT_TRUE(a.nic.modify_qp(a.now, a.qp.qpn, again, M::State | M::PkeyIndex | M::Port | M::Access));
  }
}

TEST(Hub, a_peer_that_goes_ends_what_is_outstanding) {
  Side a(1);
  auto b = std::make_unique<Side>(2);
  a.connect(b->endpoint());
  b->connect(a.endpoint());
  a.turn();
  a.write(1, *b, 8);
  a.turn();
  b.reset();
  a.turn();
  const auto done = a.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, CompletionStatus::RetryExceeded);
  EXPECT_EQ(a.qp.queues->state(), QueuePairState::Error);
}

TEST(Hub, a_peer_that_goes_may_say_farewell_first) {
  constexpr Duration kFarewell = Duration::milliseconds(100);
  Side a(1, false, {}, kFarewell);
  auto b = std::make_unique<Side>(2);
  EXPECT_TRUE(a.to_rtr(b->endpoint()));
  a.to_rts(0);  // no period of its own
  b->connect(a.endpoint());
  a.turn();
  a.write(1, *b, 8);
  a.turn();
  b.reset();
  a.turn();
  EXPECT_TRUE(a.completions().empty()) << "connection management is first";
  EXPECT_EQ(a.nic.settle_deadlines(), a.now + kFarewell);
  a.now = a.now + kFarewell;
  a.turn();
  const auto done = a.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].vendor_error, core::kVendorPeerEnded);
  EXPECT_TRUE(a.nic.settle_deadlines().is_never());
}

TEST(Hub, a_peer_that_goes_unused_is_said_once) {
  Side a(1, false, {}, Duration::milliseconds(100));
  auto b = std::make_unique<Side>(2);
  a.connect(b->endpoint());
  b->connect(a.endpoint());
  a.turn();
  b.reset();
  a.turn();
  a.now = a.now + Duration::milliseconds(100);
  a.turn();
  EXPECT_TRUE(a.nic.settle_deadlines().is_never()) << "nothing comes any more";
}

TEST(Hub, the_reason_of_a_path_says_once_that_its_peer_went) {
  Side a(1, false, {}, Duration::milliseconds(100));
  auto b = std::make_unique<Side>(2);
  a.connect(b->endpoint());
  b->connect(a.endpoint());
  a.turn();
  const std::string before = a.hub->explain(a.qp.qpn), reason = before.substr(0, before.find(';'));
  b.reset();
  for (int i = 0; i < 4; ++i) a.turn();
  EXPECT_THAT(a.hub->explain(a.qp.qpn), StartsWith(reason + ", which has ended or closed it;"));
}

TEST(Hub, who_lets_go_of_a_peer_that_goes_does_not_wait_for_its_farewell) {
  constexpr Duration kFarewell = Duration::milliseconds(100);
  Side a(1, false, {}, kFarewell);
  auto b = std::make_unique<Side>(2);
  a.connect(b->endpoint());
  b->connect(a.endpoint());
  a.turn();
  b.reset();
  a.turn();
  a.to(QueuePairState::Error);
  a.turn();
  EXPECT_FALSE(a.on_rings());
  a.now = a.now + kFarewell;
  a.turn();  // there is nobody left to ask about
  EXPECT_TRUE(a.nic.settle_deadlines().is_never());
}

TEST(Hub, a_queue_pair_in_error_or_reset_lets_go_of_its_peer) {
  for (const QueuePairState state : {QueuePairState::Error, QueuePairState::Reset}) {
    Side a(1), b(2);
    a.connect(b.endpoint());
    b.connect(a.endpoint());
    a.turn();
    a.to(state);
    a.turn();
    EXPECT_FALSE(a.on_rings());
    EXPECT_TRUE(b.hub->handle_events(b.now, false));
    EXPECT_TRUE(b.hub->any_hung_up());
    b.turn();
  }
}

TEST(Hub, what_came_is_acknowledged_before_a_queue_pair_stops) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  constexpr std::uint64_t kLong = 6;  // two are a turn's
  a.write(0, b, 8);
  for (std::uint64_t id = 1; id <= kLong; ++id) a.turn(), a.write(id, b, 4096);
  a.turn();
  b.to(QueuePairState::Error);
  for (int i = 0; i < 4; ++i) a.turn();
  const auto done = a.completions();
  EXPECT_EQ(done.size(), kLong + 1);
  for (const Completion& one : done) EXPECT_EQ(one.status, CompletionStatus::Success) << one.id;
}

// ---- More than one turn should look at.

// Connected, and nothing was said for a while.
struct Many {
  static constexpr std::size_t kQuiet = 4;

  Many() {
    for (std::size_t i = 0; i < Nic::kMostWatched + kQuiet; ++i) {
      if (i != 0) a.use_another(), b.use_another();
      a.connect(b.endpoint());
      b.connect(a.endpoint());
      ends.emplace_back(a.qp, b.qp);
    }
    for (int i = 0; i < 4; ++i) a.turn(), b.turn();
    pass_time();
  }
  void pass_time() {
    for (Side* side : {&a, &b}) side->now = side->now + Nic::kUsedLately + Duration::milliseconds(1);
    for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  }
  void use(std::size_t index) { std::tie(a.qp, b.qp) = ends[index]; }
  std::vector<std::size_t> quiet() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (b.nic.is_quiet(ends[i].second.qpn)) all.push_back(i);
    return all;
  }

  Side a{1}, b{2};
  std::vector<std::pair<Nic::CreatedQp, Nic::CreatedQp>> ends;
};

TEST(HubOfMany, those_that_nobody_uses_are_quiet_but_for_a_few) {
  Many many;
  EXPECT_EQ(many.quiet().size(), Many::kQuiet);
  for (std::size_t i = 0; i < many.ends.size(); ++i) {
    many.use(i);
    many.a.write(i, many.b, 8);
    for (int turn = 0; turn < 4; ++turn) many.a.turn(), many.b.turn();
    EXPECT_EQ(many.a.completions().size(), 1u);
  }
  EXPECT_TRUE(many.quiet().empty()) << "all were used a moment ago";
  many.pass_time();
  EXPECT_EQ(many.quiet().size(), Many::kQuiet);
}

TEST(HubOfMany, what_comes_to_a_quiet_one_is_heard_of_by_who_polls_and_not_kept_from_who_sleeps) {
  Many many;
  const std::size_t index = many.quiet().front();
  many.use(index);
  Side& b = many.b;
  ASSERT_FALSE(is_signalled(b));
  many.a.write(1, b, 8);
  many.a.turn();
  EXPECT_FALSE(b.nic.handle_records(b.now)) << "nobody looks there";
  EXPECT_TRUE(is_signalled(b));
  b.hub->handle_events(b.now, false);
  EXPECT_FALSE(is_signalled(b));
  EXPECT_TRUE(b.nic.handle_records(b.now));
  EXPECT_FALSE(b.nic.is_quiet(b.qp.qpn));
  many.a.write(2, b, 8);
  many.a.turn();
  EXPECT_TRUE(is_signalled(b)) << "somebody may sleep on it";
  b.hub->handle_events(b.now, true);  // now nobody does
  EXPECT_TRUE(b.nic.handle_records(b.now));
  many.a.write(3, b, 8);
  many.a.turn();
  EXPECT_FALSE(is_signalled(b));
}

TEST(HubOfMany, one_that_waits_for_an_answer_is_not_quiet) {
  Many many;
  many.use(many.quiet().front());
  many.a.write(1, many.b, 8);
  many.a.turn();
  many.a.now = many.a.now + Nic::kUsedLately + Duration::milliseconds(1);
  for (int i = 0; i < 4; ++i) many.a.turn();
  EXPECT_FALSE(many.a.nic.is_quiet(many.a.qp.qpn));
  EXPECT_TRUE(many.a.completions().empty());
  for (int i = 0; i < 4; ++i) many.b.turn(), many.a.turn();
  EXPECT_EQ(many.a.completions().size(), 1u);
}

TEST(HubOfMany, a_peer_that_goes_is_noticed_by_quiet_ones_too) {
  Side a(1);
  auto b = std::make_unique<Side>(2);
  std::vector<Nic::CreatedQp> ends;
  for (std::size_t i = 0; i < Nic::kMostWatched + 2; ++i) {
    if (i != 0) a.use_another(), b->use_another();
    a.connect(b->endpoint());
    b->connect(a.endpoint());
    ends.push_back(a.qp);
  }
  for (int i = 0; i < 4; ++i) a.turn(), b->turn();
  a.now = a.now + Nic::kUsedLately + Duration::milliseconds(1);
  a.turn();
  EXPECT_TRUE(a.nic.is_quiet(ends.front().qpn));
  b.reset();
  a.turn();
  for (const Nic::CreatedQp& end : ends) {
    a.qp = end;
    a.write(1, a, 8);
    a.turn();
    const auto done = a.completions();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, CompletionStatus::RetryExceeded);
    EXPECT_EQ(done[0].vendor_error, core::kVendorPeerEnded);
  }
}

// ---- What a process may have.

TEST(Hub, a_connection_takes_no_more_shared_memory_than_it_should) {
  EXPECT_LE(layout_of(Hub::kRingCapacity).bytes, 256u << 10);
}

TEST(Hub, the_last_descriptors_are_left_to_the_program) {
  Side asks(1), asked(2), insists(3, true), other(4, true);
  Limited limited;
  limited.leave_the_last_quarter();
  asks.connect(asked.endpoint());
  EXPECT_TRUE(asks.on_packets());
  EXPECT_THAT(asks.explained(), HasSubstr("raise ulimit -n"));
  EXPECT_EQ(asks.fallbacks(), 1u);
  insists.connect(other.endpoint());
  EXPECT_THAT(insists.explained(), HasSubstr("has not answered yet")) << "memory was asked for, whatever it takes";
}

TEST(Hub, who_is_asked_with_its_last_descriptors_says_packets) {
  Side asks(1), asked(2);
  asks.connect(asked.endpoint());
  Limited limited;
  limited.leave_the_last_quarter();
  asked.connect(asks.endpoint());
  EXPECT_TRUE(asked.on_packets());
  EXPECT_THAT(asked.explained(), HasSubstr("raise ulimit -n"));
  asks.turn();
  EXPECT_THAT(asks.explained(), HasSubstr("RoCE, because the peer goes by packets"));
  EXPECT_THAT(asks.explained(), HasSubstr("connections that share memory: 0, by RoCE: 1"));
  EXPECT_EQ(asks.fallbacks() + asked.fallbacks(), 2u);
}

TEST(Hub, without_any_descriptor_packets_go_or_the_error_says_why) {
  Side asks(1), asked(2), insists(3, true);
  Limited limited;
  limited.leave_none();
  asks.connect(asked.endpoint());
  EXPECT_TRUE(asks.on_packets());
  EXPECT_THAT(asks.explained(), HasSubstr("socket for @verbena"));
  EXPECT_EQ(asks.fallbacks(), 1u);
  const auto entered = insists.to_rtr(asked.endpoint());
  ASSERT_FALSE(entered);
  EXPECT_THAT(entered.error().to_string(), HasSubstr("socket for @verbena"));
}

// A limit of the process that the system reports like a full one.
TEST(Hub, without_shared_memory_packets_go_or_the_error_says_why) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{4096, before.rlim_max};
  Side asks(1), asked(2), insists(3, true);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  asks.connect(asked.endpoint());
  const auto entered = insists.to_rtr(asked.endpoint());
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(asks.on_packets());
  EXPECT_THAT(asks.explained(), HasSubstr("shared memory of"));
  EXPECT_EQ(asks.fallbacks(), 1u);
  ASSERT_FALSE(entered);
  EXPECT_THAT(entered.error().to_string(), HasSubstr("shared memory of"));
}

TEST(Hub, one_address_is_offered_once) {
  Side a(1);
  const auto second = Hub::open({.address = a.nic.config().address});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::AddressInUse);
}

TEST(Hub, what_is_no_hello_is_turned_away) {
  Side a(1);
  PeerSocket socket = Stranger::reach_or_die(a.endpoint().gid);
  EXPECT_TRUE(socket.send(Answer::Accept));
  a.turn();
  EXPECT_TRUE(socket.has_hung_up());
  Stranger elsewhere(a, {address(3), Qpn{50}}, {address(4), a.qp.qpn});
  a.turn();
  EXPECT_TRUE(elsewhere.socket.has_hung_up());
}

// What the owner of a region says to whoever asks for it.
Result<std::optional<Loan>> asked(Side& owner, const verbena::local::Want& want) {
  PeerSocket socket = Stranger::reach_or_die(owner.endpoint().gid);
  EXPECT_TRUE(socket.send(want));
  owner.turn();
  return socket.try_receive_loan();
}

TEST(Hub, a_region_is_lent_to_the_peer_of_its_connection_and_to_nobody_else) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  a.turn(), b.turn();
  const auto honest = asked(b, {a.endpoint(), b.endpoint(), b.region.rkey});
  ASSERT_TRUE(honest && *honest);
  EXPECT_EQ((**honest).lend.access, Access::RemoteRead) << "it stands in no file";
  EXPECT_EQ((**honest).lend.address, reinterpret_cast<std::uintptr_t>(b.memory.data()));
  EXPECT_FALSE((**honest).file);
  const Endpoint nobody{address(9), Qpn{77}};
  for (const verbena::local::Want& want :
       {verbena::local::Want{a.endpoint(), b.endpoint(), RKey{b.region.rkey.value() ^ 1}},
        verbena::local::Want{nobody, b.endpoint(), b.region.rkey},
        verbena::local::Want{a.endpoint(), nobody, b.region.rkey},
        verbena::local::Want{a.endpoint(), {b.endpoint().gid, nobody.qpn}, b.region.rkey}}) {
    const auto refused = asked(b, want);
    ASSERT_TRUE(refused && *refused);
    EXPECT_EQ((**refused).lend.access, Access::None);
    EXPECT_EQ((**refused).lend.address, 0u) << "a stranger learns nothing";
  }
  a.to(QueuePairState::Error);
  a.turn(), b.turn(), b.turn();
  const auto late = asked(b, {a.endpoint(), b.endpoint(), b.region.rkey});
  ASSERT_TRUE(late && *late);
  EXPECT_EQ((**late).lend.access, Access::None) << "the connection has ended";
}

TEST(Hub, who_asks_for_a_region_and_gets_no_answer_goes_on_through_the_ring) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  a.turn(), b.turn();
  for (std::uint64_t id = 1; id < 8; ++id) {
    a.write(id, b, 64);
    // The owner looks at its ring alone, as one does that is busy.
    a.turn();
    b.nic.handle_records(b.now), b.nic.handle_records(b.now);
    while (b.nic.emit_records(b.now)) continue;
    a.turn();
    EXPECT_EQ(a.completions().size(), 1u) << id;
  }
  a.to(QueuePairState::Error);  // with the wish still open
  a.turn(), b.turn(), a.turn();
}

TEST(Hub, of_those_who_wait_too_long_the_oldest_goes) {
  Side a(1);
  Stranger first(a, {address(3), Qpn{50}}, a.endpoint());
  a.turn();
  std::vector<PeerSocket> many;
  for (std::size_t i = 0; i < Hub::kMostWaiting; ++i) {
    auto reached = reach({a.endpoint().gid, 0});
    if (!reached || !*reached) GTEST_SKIP() << "too few descriptors here";
    many.push_back(std::move(**reached));
    a.hub->handle_events(a.now, false);
  }
  EXPECT_TRUE(first.socket.has_hung_up());
  EXPECT_FALSE(many.back().has_hung_up());
}

TEST(Hub, who_sleeps_is_signalled_once_and_who_is_awake_not_at_all) {
  Side a(1), b(2);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  a.turn(), b.turn();
  b.nic.withdraw_sleep();
  const auto signalled = [&] {
    pollfd look{b.hub->fd(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  };
  b.hub->handle_events(b.now, true);
  a.write(1, b, 8);
  a.turn();
  EXPECT_FALSE(signalled());
  b.turn(), b.turn(), a.turn();
  b.nic.announce_sleep();
  a.write(2, b, 8);
  a.turn();
  EXPECT_TRUE(signalled());
  b.hub->handle_events(b.now, true);
  EXPECT_FALSE(signalled());
  b.nic.withdraw_sleep();
}

// ---- Another user

TEST(Hub, a_process_of_another_user_is_refused_and_told_so) {
  Side keeper(1);
  const Endpoint endpoint = keeper.endpoint();
  for (const bool required : {true, false}) {
    const auto said = said_by_another_user([&] {
      Side foreign(2, required);
      const auto entered = foreign.to_rtr(endpoint);
      return entered ? foreign.explained() : entered.error().to_string();
    });
    if (!said) GTEST_SKIP() << kNoOtherUser;
    EXPECT_THAT(*said, HasSubstr(required ? "NotSupported" : ": RoCE, because the "));
    EXPECT_THAT(*said, HasSubstr("is of another user"));
    EXPECT_THAT(*said, HasSubstr("process " + std::to_string(::getpid())));
  }
}

TEST(Hub, who_asks_as_another_user_gets_no_answer_and_no_path) {
  Side keeper(1);
  const Endpoint endpoint = keeper.endpoint(), foreign{address(2), Qpn{77}};
  const auto said = said_by_another_user(
      [&] {
        auto reached = reach({endpoint.gid, 0});
        if (!reached || !*reached) return std::string("not reached");
        const auto segment = Segment::create(layout_of(4096).bytes);
        if (!segment) return std::string("no memory");
        // Who asks is known when it comes, before it has said anything.
        const auto sent = (**reached).send(Hello{4096, foreign, endpoint}, segment->descriptor());
        if (!sent) return std::string(sent.error().code() == ErrorCode::ConnectionLost ? "shown out" : "not asked");
        pollfd answer{(**reached).descriptor(), POLLIN, 0};
        if (::poll(&answer, 1, 60'000) != 1) return std::string("left to wait");
        return std::string((**reached).try_receive_answer() ? "answered" : "shown out");
      },
      [&keeper] { keeper.turn(); });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "shown out");
  EXPECT_TRUE(keeper.to_rtr(foreign));
  keeper.turn();
  EXPECT_FALSE(keeper.on_rings());
}

// ---- A peer that dies at any moment of the handshake.

int shake_hands(const Endpoint& peer) {
  Side side(2);
  side.connect(peer);
  for (;;) side.turn();
}

// After its peer died: it knows how it goes on, and the next at that address meets no hindrance.
void expect_survival(Side& keeper, bool entered, const Endpoint& dead) {
  if (!entered) keeper.connect(dead);
  turn_until([&] { return keeper.on_rings() || keeper.on_packets(); }, {&keeper});
  if (keeper.on_rings()) {
    keeper.write(7, keeper, 8);
    keeper.turn();
    const std::vector<Completion> all = keeper.completions();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].status, CompletionStatus::RetryExceeded);
    EXPECT_EQ(all[0].vendor_error, kVendorPeerEnded);
  }
  Side heir(2), other(3);
  ASSERT_EQ(heir.endpoint(), dead);
  EXPECT_TRUE(heir.to_rtr(other.endpoint()) && other.to_rtr(heir.endpoint()));
  turn_until([&] { return heir.on_rings() && other.on_rings(); }, {&heir, &other});
}

TEST(HubKillSweep, F16_at_any_call_of_a_handshake_the_peer_goes_on_and_the_next_takes_the_place) {
  const auto descriptors = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const Endpoint victim = Side(2).endpoint();
  const auto before = descriptors();
  int by_rings = 0;
  constexpr int kMostCalls = 160;
  for (int kill_at = 0; kill_at < kMostCalls; ++kill_at) {
    Side keeper(1);
    SteppedProcess child([&keeper] { return shake_hands(keeper.endpoint()); });
    if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
    const int enters_at = kill_at * 2 / 3;
    for (int call = 0; call < kill_at; ++call) {
      if (call == enters_at) keeper.connect(victim);
      ASSERT_TRUE(child.step_call()) << call;
      keeper.turn();
    }
    by_rings += keeper.on_rings() ? 1 : 0;
    child.kill_and_wait();
    expect_survival(keeper, kill_at != 0, victim);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "killed at call " << kill_at;
  }
  std::printf("[          ] %d kill points in a handshake, %d on rings\n", kMostCalls, by_rings);
  EXPECT_GT(by_rings, 10) << "it died also when both were on rings";
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace verbena::soft::local
