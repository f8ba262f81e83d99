// SPDX-License-Identifier: Apache-2.0
// Shared receive queues and what holds for the queue pairs on them.
#include <array>
#include <map>
#include <set>

#include "both_ways.h"

namespace verbena::conformance {
namespace {

// A device with one shared receive queue and several queue pairs on it, each with a peer of its own.
struct Shared {
  explicit Shared(std::uint32_t lines_wanted = 2, std::uint32_t capacity = 64) : device(given) {
    srq = device.nic.create_srq(device.pd, capacity, 4).value();
    given.srq = srq;
    for (std::uint32_t i = 0; i < lines_wanted; ++i) {
      given.peer_qpn = Qpn{0x100 + i};
      lines.push_back(std::make_unique<Line>(device, given));
    }
  }
  core::SharedReceiveQueue& queue() { return *device.nic.srq(srq); }
  Line& line(std::size_t i) { return *lines[i]; }
  void post(std::uint64_t id, std::vector<ScatterGather> local = {}) {
    const ReceiveRequest request{id, local};
    ASSERT_TRUE(queue().post({&request, 1}));
  }
  void expect_event(AsyncEventType type) {
    const auto event = device.event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->type, type);
    if (type == AsyncEventType::SrqLimitReached) {
      EXPECT_EQ(event->srq, srq);
    }
  }

  Given given;
  Device device;
  core::SrqId srq;
  std::vector<std::unique_ptr<Line>> lines;
};

TEST(SharedReceives, r075_each_receive_is_handed_out_once_to_whoever_gets_a_message_first) {
  constexpr std::uint32_t kLines = 5, kMessages = 40;
  Shared s(kLines, kMessages);
  Memory& memory = s.device.memory(kMessages * 16);
  for (std::uint64_t id = 0; id < kMessages; ++id) s.post(id, {memory.sge(id * 16, 16)});
  std::vector<std::uint32_t> sent(kLines, 0);
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    const std::uint32_t i = (n * 7 + n / 3) % kLines;
    Line& line = s.line(i);
    const Bytes payload = pattern(16, n);
    const Psn psn = line.their(sent[i]++);
    const wire::Reth reth{memory.va(), memory.rkey(), 0};
    if (n % 4 == 3) {
      line.deliver(line.write(Opcode::RcWriteOnlyWithImmediate, psn, reth, {}));
    } else {
      line.deliver(line.request(Opcode::RcSendOnly, psn, payload));
    }
    line.expect_ack(psn, sent[i]);
    const Completion done = line.expect_receive(n);
    EXPECT_EQ(done.qpn, line.qpn());
    if (n % 4 != 3) {
      EXPECT_TRUE(memory.holds(n * 16, payload));
    }
  }
  EXPECT_EQ(s.queue().size(), 0u);
  for (const auto& line : s.lines) line->expect_no_completion();
}

TEST(SharedReceives, r075_long_messages_that_arrive_interleaved_keep_apart) {
  Shared s(3);
  Memory& memory = s.device.memory(3 * 1024);
  for (std::uint64_t id = 0; id < 3; ++id) s.post(id, {memory.sge(id * 1024, 1024)});
  const Bytes all[3] = {pattern(3 * kMtu, 1), pattern(3 * kMtu, 2), pattern(3 * kMtu, 3)};
  const Opcode opcodes[3] = {Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcSendLast};
  for (std::uint32_t n = 0; n < 3; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      s.line(i).deliver(
          s.line(i).request(opcodes[n], s.line(i).their(n), cut(all[i], n * kMtu, kMtu), n == 2));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(s.line(i).expect_receive(i).byte_count, 3 * kMtu);
    EXPECT_TRUE(memory.holds(i * 1024, all[i]));
  }
}

TEST(SharedReceives, r075_empty_queue_is_an_rnr_nak_for_the_queue_pair_that_asked) {
  Shared s;
  Memory& memory = s.device.memory(64);
  const Bytes payload = pattern(8);
  const auto send = [&](std::size_t i) {
    return s.line(i).request(Opcode::RcSendOnly, s.line(i).their(0), payload);
  };
  s.line(0).deliver(send(0));
  s.line(0).expect_rnr_nak(12, s.line(0).their(0));
  s.line(1).expect_silence();
  s.post(1, {memory.sge(0, 64)});
  s.line(1).deliver(send(1));  // takes what the first one waits for
  s.line(1).expect_ack(s.line(1).their(0), 1);
  s.line(1).expect_receive(1);
  s.line(0).deliver(send(0));
  s.line(0).expect_rnr_nak(12, s.line(0).their(0));
  s.post(2, {memory.sge(0, 64)});
  s.line(0).deliver(send(0));
  s.line(0).expect_ack(s.line(0).their(0), 1);
  s.line(0).expect_receive(2);
}

TEST(SharedReceives, r075_taken_receive_belongs_to_its_queue_pair_and_is_flushed_with_it) {
  Shared s;
  Memory& memory = s.device.memory(2048);
  s.post(1, {memory.sge(0, 1024)});
  s.post(2, {memory.sge(1024, 1024)});
  const Bytes payload = pattern(kMtu);
  s.line(0).deliver(s.line(0).request(Opcode::RcSendFirst, s.line(0).their(0), payload, false));
  EXPECT_FALSE(s.queue().withdraw(1)) << "a message has begun to fill it";
  s.line(0).move_to(QueuePairState::Error);
  s.line(0).expect_receive(1, CompletionStatus::Flushed);
  s.line(0).expect_no_completion();
  EXPECT_EQ(s.queue().size(), 1u) << "what nobody took stays";
  s.line(1).deliver(s.line(1).request(Opcode::RcSendOnly, s.line(1).their(0), payload));
  s.line(1).expect_receive(2);
}

TEST(SharedReceives, r079_keys_of_a_receive_count_in_the_domain_of_its_queue) {
  Given given;
  Device device(given);
  const core::PdId other = device.nic.create_pd().value();
  given.srq = device.nic.create_srq(other, 4, 1).value();
  Line line(device, given);
  Memory& theirs = device.memory_of(other, 64);
  Memory& ours = device.memory(64);
  const ScatterGather sges[2] = {theirs.sge(0, 64), ours.sge(0, 64)};
  const ReceiveRequest requests[2] = {{1, {&sges[0], 1}}, {2, {&sges[1], 1}}};
  ASSERT_TRUE(device.nic.srq(*given.srq)->post(requests));
  const Bytes payload = pattern(8);
  line.deliver(line.request(Opcode::RcSendOnly, line.their(0), payload));
  line.expect_receive(1);
  EXPECT_TRUE(theirs.holds(0, payload));
  line.expect_ack(line.their(0), 1);
  line.deliver(line.request(Opcode::RcSendOnly, line.their(1), payload));
  line.expect_receive(2, CompletionStatus::LocalProtectionError);
  line.expect_nak(NakCode::RemoteOperation, line.their(1));
  EXPECT_TRUE(ours.all(std::byte{0}));
}

TEST(SharedReceives, r076_limit_event_comes_once_and_must_be_armed_again) {
  Shared s;
  for (std::uint64_t id = 1; id <= 8; ++id) s.post(id);
  ASSERT_TRUE(s.device.nic.modify_srq(s.srq, 7));
  auto take = [&, n = 0u]() mutable {
    s.line(0).deliver(s.line(0).request(Opcode::RcSendOnly, s.line(0).their(n)));
    ++n;
  };
  take();
  EXPECT_FALSE(s.device.event()) << "seven are left";
  EXPECT_EQ(s.device.nic.query_srq(s.srq)->limit, 7u);
  take();
  s.expect_event(AsyncEventType::SrqLimitReached);
  EXPECT_EQ(s.device.nic.query_srq(s.srq)->limit, 0u);
  take();
  EXPECT_FALSE(s.device.event());
  ASSERT_TRUE(s.device.nic.modify_srq(s.srq, 5));  // five are left
  EXPECT_FALSE(s.device.event());
  take();
  s.expect_event(AsyncEventType::SrqLimitReached);
  ASSERT_TRUE(s.device.nic.modify_srq(s.srq, 5));  // fewer are left already
  s.expect_event(AsyncEventType::SrqLimitReached);
  ASSERT_TRUE(s.device.nic.modify_srq(s.srq, 4));
  ASSERT_TRUE(s.device.nic.modify_srq(s.srq, 0));  // and back
  take();
  EXPECT_FALSE(s.device.event());
}

TEST(SharedReceives, r077_last_receive_is_told_once_when_a_queue_pair_goes_to_error) {
  Shared s;
  Memory& memory = s.device.memory(8, Access::None);
  s.post(1);
  s.line(0).deliver(
      s.line(0).write(Opcode::RcWriteOnly, s.line(0).their(0), {memory.va(), memory.rkey(), 8}, pattern(8)));
  s.line(0).expect_nak(NakCode::RemoteAccess, s.line(0).their(0));
  s.expect_event(AsyncEventType::QpAccessError);
  const auto event = s.device.event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::LastWqeReached);
  EXPECT_EQ(event->qpn, s.line(0).qpn());
  s.line(0).move_to(QueuePairState::Error);
  EXPECT_FALSE(s.device.event());
  EXPECT_EQ(s.line(1).state(), QueuePairState::Rts);
  s.line(1).move_to(QueuePairState::Error);
  s.expect_event(AsyncEventType::LastWqeReached);
  EXPECT_FALSE(s.device.event());
  EXPECT_EQ(s.queue().size(), 1u);
}

TEST(SharedReceives, r077_queue_pair_with_receives_of_its_own_does_not_speak_of_a_last_one) {
  Rig rig;
  rig.move_to(QueuePairState::Error);
  EXPECT_FALSE(rig.event());
}

TEST(SharedReceives, queue_pair_has_no_room_for_receives_and_promises_no_credits) {
  Shared s;
  const ReceiveRequest request{1, {}};
  EXPECT_EQ(s.line(0).queues().post_receive({&request, 1}).status, PostStatus::SharedReceives);
  EXPECT_EQ(s.line(0).queues().init().capabilities.max_receive_requests, 0u);
  s.post(1);
  s.line(0).deliver(s.line(0).request(Opcode::RcSendOnly, s.line(0).their(0)));
  EXPECT_EQ(s.line(0).expect(Opcode::RcAcknowledge, s.line(0).their(0)).packet.aeth.syndrome, 0x1f);
}

TEST(SharedReceives, queue_is_busy_while_queue_pairs_use_it) {
  Shared s;
  EXPECT_EQ(s.device.nic.destroy_srq(s.srq).error().native(), EBUSY);
  ASSERT_TRUE(s.device.nic.destroy_qp(s.line(0).qpn()));
  EXPECT_EQ(s.device.nic.destroy_srq(s.srq).error().code(), ErrorCode::Busy);
  ASSERT_TRUE(s.device.nic.destroy_qp(s.line(1).qpn()));
  EXPECT_EQ(s.device.nic.destroy_pd(s.device.pd).error().code(), ErrorCode::Busy);
  ASSERT_TRUE(s.device.nic.destroy_srq(s.srq));
  EXPECT_TRUE(s.device.nic.destroy_pd(s.device.pd));
  EXPECT_EQ(s.device.nic.destroy_srq(s.srq).error().code(), ErrorCode::NotFound);
}

TEST(SharedReceives, wrong_sizes_limits_and_numbers_are_refused) {
  Given given;
  Device device(given);
  soft::Nic& nic = device.nic;
  EXPECT_EQ(nic.create_srq(device.pd, 0, 1).error().native(), EINVAL);
  EXPECT_EQ(nic.create_srq(device.pd, nic.config().max_requests + 1, 1).error().native(), EINVAL);
  EXPECT_EQ(nic.create_srq(device.pd, 1, core::kMaxSegments + 1).error().native(), EINVAL);
  EXPECT_EQ(nic.create_srq({777}, 1, 1).error().code(), ErrorCode::NotFound);
  const core::SrqId srq = nic.create_srq(device.pd, 5, 2).value();
  const auto made = nic.query_srq(srq);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->max_requests, 8u);
  EXPECT_EQ(made->max_segments, 2u);
  EXPECT_EQ(nic.modify_srq(srq, 9).error().native(), EINVAL);
  EXPECT_FALSE(nic.modify_srq({777}, 1));
  EXPECT_FALSE(nic.query_srq({777}));
  soft::Nic::QpInit init;
  init.pd = device.pd;
  init.send_cq = init.receive_cq = nic.create_cq(1).value();
  init.srq = core::SrqId{777};
  EXPECT_EQ(nic.create_qp(init).error().code(), ErrorCode::NotFound);
}

// ---- Many queue pairs, faults on the wire, and a pool that runs dry now and then.

constexpr std::uint32_t kLines = 6, kMessages = 40, kReceives = 8, kBytes = 600;

// The place of message n of line i at the sender: no two look alike.
std::uint64_t place_of(std::uint32_t i, std::uint32_t n) {
  return std::uint64_t{i * kMessages + n} * kBytes % (Pair::kMemoryBytes - kBytes);
}

Given between_lines(Way way) {
  Given given;
  given.way = way;
  given.path_mtu = kMtu;
  given.min_rnr_timer = 13;
  given.timeout = 8;  // shorter than a turn: time goes on in each
  return given;
}

struct Flood {
  explicit Flood(Way way) : pair(between_lines(way)), srq(far.nic.create_srq(far.pd, kReceives, 1).value()) {
    near.memory->put(0, pattern(Pair::kMemoryBytes));
    for (std::uint32_t i = 0; i < kLines; ++i) open(i);
  }
  void open(std::uint32_t i) {
    soft::Nic::QpInit init;
    init.capabilities = {kMessages, 1, 1, 1, 0};
    init.pd = near.pd;
    init.send_cq = near.send_cq;
    init.receive_cq = near.receive_cq;
    lines.push_back(near.nic.create_qp(init).value().queues);
    init.pd = far.pd;
    init.send_cq = far.send_cq;
    init.receive_cq = far.receive_cq;
    init.srq = srq;
    const Qpn peer = far.nic.create_qp(init).value().qpn;
    line_of[peer.value()] = i;
    pair.join(lines[i]->qpn(), peer);
  }
  void post_all() {
    for (std::uint32_t n = 0; n < kMessages; ++n)
      for (std::uint32_t i = 0; i < kLines; ++i) {
        const ScatterGather piece = near.memory->sge(place_of(i, n), kBytes);
        SendRequest request;
        request.local = {&piece, 1};
        ASSERT_TRUE(lines[i]->post_send({&request, 1}));
        near.nic.ring_doorbell(*lines[i]);
      }
  }
  void refill() {
    for (std::uint64_t id = 0; id < kReceives; ++id) {
      if (!waiting.insert(id).second) continue;
      const ScatterGather place = far.memory->sge(id * kBytes, kBytes);
      const ReceiveRequest request{id, {&place, 1}};
      ASSERT_TRUE(far.nic.srq(srq)->post({&request, 1}));
    }
    ASSERT_TRUE(far.nic.modify_srq(srq, 3));
  }
  void take(const Completion& done) {
    ASSERT_EQ(done.status, CompletionStatus::Success);
    ASSERT_EQ(waiting.erase(done.id), 1u) << "handed out twice";
    const std::uint32_t line = line_of.at(done.qpn.value());
    const std::uint64_t at = place_of(line, heard[line]++);
    EXPECT_TRUE(far.memory->holds(done.id * kBytes, near.memory->bytes(at, kBytes)));
  }

  Pair pair;
  Pair::Side& near = pair.side(0);
  Pair::Side& far = pair.side(1);
  core::SrqId srq;
  std::vector<core::QueuePair*> lines;
  std::map<std::uint32_t, std::uint32_t> line_of;  // by QPN
  std::set<std::uint64_t> waiting;                 // ids of receives, which are places
  std::array<std::uint32_t, kLines> heard{};
};

class SharedReceivesBothWays : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(, SharedReceivesBothWays, kWays);

TEST_P(SharedReceivesBothWays, r075_r076_nothing_is_lost_or_doubled_while_the_limit_event_refills) {
  Flood flood(GetParam());
  SeededRandom dice(7);
  flood.pair.hook = [&](int, Bytes&) {
    const auto n = dice.below(100);
    return n < 5 ? Fate::Drop : n < 10 ? Fate::Twice : n < 15 ? Fate::Later : Fate::Deliver;
  };
  flood.post_all();
  flood.refill();
  const std::vector<Completion>& received = flood.far.receives;
  std::size_t taken = 0;
  for (int turn = 0; turn < 2000 && taken < kLines * kMessages; ++turn) {
    flood.pair.run(Duration::milliseconds(2));
    while (taken < received.size()) flood.take(received[taken++]);
    ASSERT_FALSE(HasFatalFailure());
    while (const auto event = flood.far.nic.poll_event()) {
      if (event->type == AsyncEventType::SrqLimitReached) flood.refill();
    }
  }
  EXPECT_EQ(taken, kLines * kMessages);
  flood.pair.hook = nullptr;
  flood.pair.run();
  EXPECT_EQ(received.size(), kLines * kMessages);
  EXPECT_EQ(flood.near.sends.size(), kLines * kMessages);
}

}  // namespace
}  // namespace verbena::conformance
