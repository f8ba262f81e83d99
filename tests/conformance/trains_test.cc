// SPDX-License-Identifier: Apache-2.0
// Datagrams that arrive as one train, and repeat each other but for number and payload: what holds for each of them
// alone holds for the last of them, and behind one that came before.
#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "bench.h"

namespace verbena::conformance {
namespace {

// Hands over packets that are equally long as they came together.
void deliver_train(Rig& rig, std::span<const Packet> packets) {
  Bytes joined;
  std::size_t each = 0;
  for (const Packet& packet : packets) {
    const Bytes datagram = rig.emit(packet);
    each = std::max(each, datagram.size());
    joined.insert(joined.end(), datagram.begin(), datagram.end());
  }
  ASSERT_EQ(joined.size(), each * packets.size());
  rig.nic.handle_datagrams(rig.now, rig.path_in(), 0, joined, each);
  rig.nic.check_invariants();
  rig.pump(soft::Nic::Acks::Owed);
}

// A message of so many packets of the path MTU that is being received.
struct InTrains {
  Rig rig;
  Memory& memory;
  Bytes data;
  std::uint32_t bytes;

  explicit InTrains(std::uint32_t packets)
      : memory(rig.memory(packets * kMtu)), data(pattern(packets * kMtu)), bytes(packets * kMtu) {}
  Packet write(Opcode opcode, std::uint32_t n) const {
    return rig.write(opcode, rig.their(n), {memory.va(), memory.rkey(), bytes}, cut(data, n * kMtu, kMtu), false);
  }
  Packet send(Opcode opcode, std::uint32_t n) const {
    return rig.request(opcode, rig.their(n), cut(data, n * kMtu, kMtu), false);
  }
  void middles(std::initializer_list<std::uint32_t> numbers) {
    std::vector<Packet> train;
    for (const std::uint32_t n : numbers) train.push_back(write(Opcode::RcWriteMiddle, n));
    deliver_train(rig, train);
  }
  void expect_invalid(std::uint32_t n, int line = __builtin_LINE()) {
    rig.expect_nak(NakCode::InvalidRequest, rig.their(n), line);
    EXPECT_EQ(rig.state(), QueuePairState::Error) << line;
    rig.expect_silence(line);
  }
};

TEST(Responder, r022_nak_is_said_again_for_a_gap_behind_middles_that_followed_a_duplicate) {
  InTrains t(8);
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  t.rig.deliver(t.write(Opcode::RcWriteMiddle, 1));
  t.rig.deliver(t.write(Opcode::RcWriteMiddle, 3));
  t.rig.expect_nak(NakCode::SequenceError, t.rig.their(2));
  t.middles({1, 2, 3, 4});
  t.rig.take_all();  // the duplicate was acknowledged
  t.rig.deliver(t.write(Opcode::RcWriteMiddle, 6));
  t.rig.expect_nak(NakCode::SequenceError, t.rig.their(5));
  EXPECT_TRUE(t.memory.holds(0, cut(t.data, 0, 5 * kMtu)));
}

TEST(Responder, r042_middles_of_a_write_behind_a_duplicate_do_not_enter_a_send) {
  InTrains t(4);
  Memory& sink = t.rig.memory(8 * kMtu);
  t.rig.post_receive(1, {sink.sge(0, 8 * kMtu)});
  t.rig.deliver(t.send(Opcode::RcSendFirst, 0));
  t.middles({0, 1, 2});
  t.rig.expect_receive(1, CompletionStatus::Flushed);
  EXPECT_TRUE(t.rig.take_all().back().packet.aeth.syndrome == wire::nak_syndrome(NakCode::InvalidRequest));
  EXPECT_EQ(t.rig.state(), QueuePairState::Error);
  EXPECT_TRUE(sink.holds(kMtu, Bytes(7 * kMtu)));
}

TEST(Responder, r041_sends_behind_a_duplicate_do_not_begin_inside_a_message) {
  InTrains t(4);
  Memory& sink = t.rig.memory(8 * kMtu);
  t.rig.post_receive(1, {sink.sge(0, 4 * kMtu)});
  t.rig.post_receive(2, {sink.sge(4 * kMtu, 4 * kMtu)});
  t.rig.deliver(t.send(Opcode::RcSendFirst, 0));
  deliver_train(t.rig, std::vector{t.send(Opcode::RcSendOnly, 0), t.send(Opcode::RcSendOnly, 1)});
  t.rig.expect_receive(1, CompletionStatus::Flushed);
  t.rig.expect_receive(2, CompletionStatus::Flushed);
  EXPECT_EQ(t.rig.state(), QueuePairState::Error);
}

TEST(Responder, r060_middles_behind_a_duplicate_need_the_right_of_the_queue_pair) {
  InTrains t(6);
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  t.rig.deliver(t.write(Opcode::RcWriteMiddle, 1));
  QueuePairAttributes values;
  values.access = Access::LocalWrite | Access::RemoteRead | Access::RemoteAtomic;
  ASSERT_TRUE(t.rig.modify(values, AttributeMask::Access));
  t.middles({1, 2, 3});
  EXPECT_TRUE(t.rig.take_all().back().packet.aeth.syndrome == wire::nak_syndrome(NakCode::InvalidRequest));
  EXPECT_EQ(t.rig.state(), QueuePairState::Error);
  EXPECT_TRUE(t.memory.holds(2 * kMtu, Bytes(4 * kMtu)));
}

TEST(Responder, r053_a_middle_that_would_end_its_write_is_an_invalid_request_in_a_train_too) {
  InTrains t(4);
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  t.middles({1, 2, 3});
  t.expect_invalid(3);
  EXPECT_TRUE(t.memory.holds(3 * kMtu, Bytes(kMtu)));
}

TEST(Responder, r053_a_middle_beyond_the_end_of_its_send_is_refused_in_a_train_too) {
  InTrains t(5);
  Memory& sink = t.rig.memory(8 * kMtu);
  t.rig.post_receive(1, {sink.sge(0, 3 * kMtu + 10)});
  t.rig.deliver(t.send(Opcode::RcSendFirst, 0));
  deliver_train(t.rig, std::vector{t.send(Opcode::RcSendMiddle, 1), t.send(Opcode::RcSendMiddle, 2),
                                   t.send(Opcode::RcSendMiddle, 3)});
  t.rig.expect_receive(1, CompletionStatus::LocalLengthError);
  EXPECT_TRUE(sink.holds(3 * kMtu, Bytes(5 * kMtu)));
}

TEST(Responder, r090_middles_of_a_train_that_ask_for_an_ack_get_it) {
  InTrains t(6);
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  std::vector<Packet> train;
  for (const std::uint32_t n : {1u, 2u, 3u}) {
    train.push_back(t.write(Opcode::RcWriteMiddle, n));
    train.back().bth.ack_request = true;
  }
  deliver_train(t.rig, train);
  t.rig.expect_ack(t.rig.their(3), 0);
}

TEST(Responder, r050_short_middles_behind_a_duplicate_are_an_invalid_request) {
  InTrains t(6);
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  t.rig.deliver(t.write(Opcode::RcWriteMiddle, 1));
  std::vector<Packet> train;
  for (const std::uint32_t n : {1u, 2u, 3u})
    train.push_back(t.rig.write(Opcode::RcWriteMiddle, t.rig.their(n), {}, cut(t.data, n * kMtu, 64), false));
  deliver_train(t.rig, train);
  EXPECT_EQ(t.rig.take_all().back().packet.aeth.syndrome, wire::nak_syndrome(NakCode::InvalidRequest));
  EXPECT_EQ(t.rig.state(), QueuePairState::Error);
  EXPECT_TRUE(t.memory.holds(2 * kMtu, Bytes(4 * kMtu)));
}

// What is shared goes to those that still run.
TEST(Responder, r132_a_train_takes_no_shared_receive_behind_the_overrun) {
  Given given;
  given.cq_entries = 1;
  Device device(given);
  given.srq = device.nic.create_srq(device.pd, 4, 1).value();
  Line line(device, given);
  Memory& sink = device.memory(1024);
  const ScatterGather local = sink.sge(0, 1024);
  const std::vector<ReceiveRequest> receives(4, ReceiveRequest{1, {&local, 1}});
  ASSERT_TRUE(device.nic.srq(*given.srq)->post(receives));
  const Bytes payload = pattern(16);
  line.deliver(line.request(Opcode::RcSendOnly, line.their(0), payload));
  Bytes joined;
  for (const std::uint32_t n : {1u, 2u, 3u})
    std::ranges::copy(line.emit(line.request(Opcode::RcSendOnly, line.their(n), payload)), std::back_inserter(joined));
  device.nic.handle_datagrams(device.now, line.path_in(), 0, joined, joined.size() / 3);
  EXPECT_EQ(line.state(), QueuePairState::Error);
  EXPECT_EQ(device.nic.srq(*given.srq)->size(), 2u);
}

TEST(Events, r132_an_overrun_leaves_who_is_in_reset_there) {
  Given given;
  given.cq_entries = 1;
  Device device(given);
  Line line(device, given);
  given.state = QueuePairState::Reset;
  given.peer_qpn = Qpn{0xabd};
  Line idle(device, given, line.send_cq_id(), line.receive_cq_id());
  line.post_receive(1);
  line.post_receive(2);
  for (const std::uint32_t n : {0u, 1u}) line.deliver(line.request(Opcode::RcSendOnly, line.their(n)));
  EXPECT_EQ(line.state(), QueuePairState::Error);
  EXPECT_EQ(idle.state(), QueuePairState::Reset);
}

TEST(Ingress, what_comes_in_trains_is_counted_like_what_comes_alone) {
  InTrains t(6);
  const std::size_t first = t.rig.emit(t.write(Opcode::RcWriteFirst, 0)).size();
  const std::size_t middle = t.rig.emit(t.write(Opcode::RcWriteMiddle, 1)).size();
  t.rig.deliver(t.write(Opcode::RcWriteFirst, 0));
  t.middles({1, 2, 3, 4});
  EXPECT_EQ(t.rig.nic.counters().rcvd_pkts, 5u);
  EXPECT_EQ(t.rig.nic.counters().rcvd_bytes, first + 4 * middle);
}

// ---- Answers of a READ.

struct AskedInTrains {
  Rig rig;
  Memory& memory;
  Bytes data;

  explicit AskedInTrains(std::uint32_t packets)
      : memory(rig.memory(packets * kMtu)), data(pattern(packets * kMtu)) {
    rig.post(1, SendOpcode::RdmaRead, {memory.sge(0, packets * kMtu)}, kRemote, kRkey);
    rig.take_all();
    rig.deliver(rig.read_response(Opcode::RcReadResponseFirst, rig.our(0), cut(data, 0, kMtu)));
  }
  void middles(std::uint32_t from, std::uint32_t to) {
    std::vector<Packet> train;
    for (std::uint32_t n = from; n < to; ++n)
      train.push_back(rig.read_response(Opcode::RcReadResponseMiddle, rig.our(n), cut(data, n * kMtu, kMtu)));
    deliver_train(rig, train);
  }
};

TEST(Completer, q016_a_middle_where_the_answer_ends_is_a_bad_response_in_a_train_too) {
  AskedInTrains a(6);
  a.middles(1, 6);
  a.rig.expect_send(1, CompletionStatus::BadResponse);
  EXPECT_TRUE(a.memory.holds(0, cut(a.data, 0, 5 * kMtu)));
  EXPECT_TRUE(a.memory.holds(5 * kMtu, Bytes(kMtu)));
}

// Each request of a READ has an answer with an end of its own.
TEST(Completer, q016_a_middle_where_the_first_of_several_answers_ends_is_a_bad_response_in_a_train_too) {
  constexpr std::uint32_t kOfOneRequest = 127;
  AskedInTrains a(kOfOneRequest + 10);
  a.middles(1, kOfOneRequest - 1);
  a.rig.expect_no_completion();
  a.middles(kOfOneRequest - 2, kOfOneRequest);  // the first of them once more
  a.middles(kOfOneRequest - 1, kOfOneRequest);
  a.rig.expect_send(1, CompletionStatus::BadResponse);

  AskedInTrains b(kOfOneRequest + 10);
  b.middles(1, kOfOneRequest);
  b.rig.expect_send(1, CompletionStatus::BadResponse);
  EXPECT_TRUE(b.memory.holds((kOfOneRequest - 1) * kMtu, Bytes(kMtu)));
}

}  // namespace
}  // namespace verbena::conformance
