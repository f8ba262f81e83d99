// SPDX-License-Identifier: Apache-2.0
// What the requester makes of the peer's answers.
#include "bench.h"

namespace verbena::conformance {
namespace {

struct AnsweredRig {
  Rig rig;
  Memory& memory;

  explicit AnsweredRig(const Given& given = {}) : rig(given), memory(rig.memory(16384)) {}
  void write(std::uint64_t id, std::uint32_t length = 8) {
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(8192, length)}, kRemote, kRkey);
  }
  void read(std::uint64_t id, std::uint32_t length, std::uint64_t at = 0) {
    rig.post(id, SendOpcode::RdmaRead, {memory.sge(at, length)}, kRemote, kRkey);
  }
  void fetch_add(std::uint64_t id, std::uint64_t at = 0) {
    rig.post(id, SendOpcode::FetchAndAdd, {memory.sge(at, 8)}, kRemote, kRkey);
  }
  // What was sent so far, looked at by nobody.
  void forget() { rig.take_all(); }
  void expect_dead(std::uint64_t id, CompletionStatus status, int line = __builtin_LINE()) {
    rig.expect_send(id, status, line);
    EXPECT_EQ(rig.state(), QueuePairState::Error) << line;
    rig.expect_silence(line);
  }
};

TEST(Completer, q010_ack_completes_everything_up_to_its_number) {
  AnsweredRig a;
  for (std::uint64_t id = 1; id <= 5; ++id) a.write(id);
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(2), 3));
  for (std::uint64_t id = 1; id <= 3; ++id) a.rig.expect_send(id);
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.ack(a.rig.our(4), 5));
  a.rig.expect_send(4);
  a.rig.expect_send(5);
  a.rig.expect_silence();
}

TEST(Completer, q010_ack_beyond_a_read_is_an_implied_nak) {
  AnsweredRig a;
  a.write(1);
  a.read(2, 2 * kMtu);  // takes 1 and 2
  a.write(3);           // takes 3
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(3), 3));
  a.rig.expect_send(1);
  a.rig.expect_no_completion();
  const Sent again = a.rig.expect(Opcode::RcReadRequest, a.rig.our(1));
  EXPECT_EQ(again.packet.reth, (wire::Reth{kRemote, kRkey, 2 * kMtu}));
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(3));
  const Bytes data = pattern(2 * kMtu);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(1), cut(data, 0, kMtu)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseLast, a.rig.our(2), cut(data, kMtu, kMtu)));
  EXPECT_EQ(a.rig.expect_send(2).byte_count, 2 * kMtu);
  a.rig.deliver(a.rig.ack(a.rig.our(3), 3));
  a.rig.expect_send(3);
  EXPECT_TRUE(a.memory.holds(0, data));
}

TEST(Completer, q010_ack_beyond_an_atomic_is_an_implied_nak) {
  AnsweredRig a;
  a.fetch_add(1);
  a.write(2);
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
  a.rig.expect_no_completion();
  a.rig.expect(Opcode::RcFetchAdd, a.rig.our(0));
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(1));
  a.rig.deliver(a.rig.atomic_response(a.rig.our(0), 77));
  a.rig.expect_send(1);
  EXPECT_EQ(a.memory.word(0), 77u);
}

TEST(Completer, q010_ack_of_the_number_of_a_read_does_not_complete_it) {
  AnsweredRig a;
  a.read(1, 10);
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_no_completion();
  EXPECT_EQ(a.rig.state(), QueuePairState::Rts);
}

TEST(Completer, q010_response_beyond_a_read_is_an_implied_nak) {
  for (const bool atomic : {true, false}) {
    AnsweredRig a;
    a.read(1, 10);
    if (atomic)
      a.fetch_add(2, 64);
    else
      a.read(2, 10, 64);
    a.forget();
    const Bytes data = pattern(10);
    a.rig.deliver(atomic ? a.rig.atomic_response(a.rig.our(1), 5)
                         : a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(1), data));
    a.rig.expect_no_completion();
    a.rig.expect(Opcode::RcReadRequest, a.rig.our(0));
    a.rig.expect(atomic ? Opcode::RcFetchAdd : Opcode::RcReadRequest, a.rig.our(1));
    EXPECT_TRUE(a.memory.all(std::byte{0})) << "what came too early is not stored";
  }
}

TEST(Completer, q010_response_acknowledges_the_writes_before_it) {
  AnsweredRig a;
  a.write(1);
  a.write(2, 3 * kMtu);
  a.read(3, 10);
  a.forget();
  const Bytes data = pattern(10);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(4), data));
  for (std::uint64_t id = 1; id <= 3; ++id) a.rig.expect_send(id);
  EXPECT_TRUE(a.memory.holds(0, data));
}

TEST(Completer, q011_stale_and_repeated_acks_are_ignored) {
  AnsweredRig a;
  for (std::uint64_t id = 1; id <= 3; ++id) a.write(id);
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
  a.rig.expect_send(1);
  a.rig.expect_send(2);
  for (const std::uint32_t n : {1u, 0u, Psn::kMask, Psn::kMask - 5}) {
    a.rig.deliver(a.rig.ack(a.rig.our(n), 1));
    a.rig.deliver(a.rig.nak(NakCode::RemoteAccess, a.rig.our(n)));
    a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(n)));
    a.rig.expect_no_completion();
    a.rig.expect_silence();
  }
  EXPECT_EQ(a.rig.state(), QueuePairState::Rts);
  a.rig.deliver(a.rig.ack(a.rig.our(2), 3));
  a.rig.expect_send(3);
}

TEST(Completer, q012_answers_to_what_was_never_sent_are_ignored) {
  AnsweredRig a;
  a.write(1);
  a.forget();
  for (const std::uint32_t n : {1u, 2u, 1000u, (1u << 23) - 1}) {
    a.rig.deliver(a.rig.ack(a.rig.our(n), 1));
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(n)));
    a.rig.deliver(a.rig.nak(NakCode::RemoteAccess, a.rig.our(n)));
    a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(n)));
    a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(n), pattern(4)));
    a.rig.deliver(a.rig.atomic_response(a.rig.our(n), 1));
    a.rig.expect_no_completion();
    a.rig.expect_silence();
  }
  EXPECT_EQ(a.rig.state(), QueuePairState::Rts);
  EXPECT_EQ(a.rig.nic.counters().ghost_acks, 4u);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Completer, q012_answers_on_an_idle_queue_pair_are_ignored) {
  AnsweredRig a;
  for (const std::uint32_t n : {0u, 1u, Psn::kMask}) {
    a.rig.deliver(a.rig.ack(a.rig.our(n), 0));
    a.rig.deliver(a.rig.nak(NakCode::InvalidRequest, a.rig.our(n)));
    a.rig.deliver(a.rig.rnr_nak(0, a.rig.our(n)));
    a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(n), pattern(kMtu)));
    a.rig.deliver(a.rig.atomic_response(a.rig.our(n), 0));
  }
  a.rig.expect_no_completion();
  a.rig.expect_silence();
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
}

TEST(Completer, q013_ack_of_a_part_moves_the_window_and_completes_nothing) {
  Given given;
  given.transport.initial_window_packets = 4;
  AnsweredRig a(given);
  a.write(1, 10 * kMtu);
  EXPECT_EQ(a.rig.take_all().size(), 4u);
  a.rig.deliver(a.rig.ack(a.rig.our(1)));
  a.rig.expect_no_completion();
  const std::vector<Sent> more = a.rig.take_all();
  ASSERT_GE(more.size(), 2u);
  EXPECT_EQ(more[0].psn(), a.rig.our(4)) << "nothing is sent twice";
  a.rig.deliver(a.rig.ack(more.back().psn()));
  a.rig.expect_no_completion();
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(9)));
  a.rig.expect_send(1);
}

TEST(Completer, q014_requests_complete_in_the_order_of_posting) {
  AnsweredRig a;
  a.write(1);
  a.read(2, 10);
  a.write(3);
  a.fetch_add(4, 64);
  a.rig.post(5, SendOpcode::Send, {a.memory.sge(0, 0)});
  a.forget();
  a.rig.deliver(a.rig.ack(a.rig.our(4), 5));  // everything arrived, the answers were lost
  a.rig.expect_send(1);
  a.rig.expect_no_completion();
  a.forget();
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(1), pattern(10)));
  a.rig.deliver(a.rig.atomic_response(a.rig.our(3), 9));
  a.rig.deliver(a.rig.ack(a.rig.our(4), 5));
  for (std::uint64_t id = 2; id <= 5; ++id) a.rig.expect_send(id);
  a.rig.expect_no_completion();
}

TEST(Completer, q015_lost_first_answer_is_asked_for_again_at_once) {
  AnsweredRig a;
  a.read(1, 4 * kMtu);
  a.forget();
  const Bytes data = pattern(4 * kMtu);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(1), cut(data, kMtu, kMtu)));
  EXPECT_EQ(a.rig.expect(Opcode::RcReadRequest, a.rig.our(0)).packet.reth,
            (wire::Reth{kRemote, kRkey, 4 * kMtu}));
  EXPECT_TRUE(a.memory.all(std::byte{0}));
}

TEST(Completer, q015_lost_answer_is_asked_for_from_the_first_missing_byte) {
  AnsweredRig a;
  a.read(1, 4 * kMtu + 9);
  a.forget();
  const Bytes data = pattern(4 * kMtu + 9);
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(0), cut(data, 0, kMtu)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(2), cut(data, 2 * kMtu, kMtu)));
  EXPECT_EQ(a.rig.expect(Opcode::RcReadRequest, a.rig.our(1)).packet.reth,
            (wire::Reth{kRemote + kMtu, kRkey, 3 * kMtu + 9}));
  // The rest of the first answer is of no use and asks for nothing more.
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(3), cut(data, 3 * kMtu, kMtu)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseLast, a.rig.our(4), cut(data, 4 * kMtu, 9)));
  a.rig.expect_silence();
  EXPECT_TRUE(a.memory.holds(kMtu, Bytes(3 * kMtu + 9)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(1), cut(data, kMtu, kMtu)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(2), cut(data, 2 * kMtu, kMtu)));
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(3), cut(data, 3 * kMtu, kMtu)));
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseLast, a.rig.our(4), cut(data, 4 * kMtu, 9)));
  EXPECT_EQ(a.rig.expect_send(1).byte_count, 4 * kMtu + 9);
  EXPECT_TRUE(a.memory.holds(0, data));
}

TEST(Completer, q015_second_loss_in_one_read_is_found_too) {
  AnsweredRig a;
  a.read(1, 6 * kMtu);
  a.forget();
  const Bytes data = pattern(6 * kMtu);
  const auto middle = [&](std::uint32_t n) {
    return a.rig.read_response(Opcode::RcReadResponseMiddle, a.rig.our(n), cut(data, n * kMtu, kMtu));
  };
  const auto first = [&](std::uint32_t n) {
    return a.rig.read_response(Opcode::RcReadResponseFirst, a.rig.our(n), cut(data, n * kMtu, kMtu));
  };
  a.rig.deliver(first(0));
  a.rig.deliver(middle(2));
  a.rig.expect(Opcode::RcReadRequest, a.rig.our(1));
  a.rig.deliver(first(1));
  a.rig.deliver(middle(3));
  EXPECT_EQ(a.rig.expect(Opcode::RcReadRequest, a.rig.our(2)).packet.reth,
            (wire::Reth{kRemote + 2 * kMtu, kRkey, 4 * kMtu}));
}

// A READ of length bytes, `right` good answers, then one that breaks the rules.
void expect_bad_response(std::uint32_t length, std::uint32_t right, Opcode opcode, std::size_t size) {
  AnsweredRig a;
  a.read(1, length);
  a.write(2);
  a.forget();
  const Bytes data = pattern(8 * kMtu);
  for (std::uint32_t n = 0; n < right; ++n)
    a.rig.deliver(a.rig.read_response(n == 0 ? Opcode::RcReadResponseFirst : Opcode::RcReadResponseMiddle,
                                      a.rig.our(n), cut(data, n * kMtu, kMtu)));
  a.rig.deliver(a.rig.read_response(opcode, a.rig.our(right), cut(data, 0, size)));
  a.rig.expect_send(1, CompletionStatus::BadResponse);
  a.rig.expect_send(2, CompletionStatus::Flushed);
  EXPECT_EQ(a.rig.state(), QueuePairState::Error);
  a.rig.expect_silence();
  EXPECT_TRUE(a.memory.holds(right * kMtu, Bytes(1024))) << "nothing of it is stored";
}

TEST(Completer, q016_answers_in_the_wrong_order_are_a_bad_response) {
  expect_bad_response(3 * kMtu, 0, Opcode::RcReadResponseMiddle, kMtu);
  expect_bad_response(3 * kMtu, 0, Opcode::RcReadResponseLast, kMtu);
  expect_bad_response(3 * kMtu, 0, Opcode::RcReadResponseOnly, kMtu);
  expect_bad_response(3 * kMtu, 1, Opcode::RcReadResponseFirst, kMtu);
  expect_bad_response(3 * kMtu, 1, Opcode::RcReadResponseLast, kMtu);
  expect_bad_response(3 * kMtu, 2, Opcode::RcReadResponseMiddle, kMtu);
  expect_bad_response(3 * kMtu, 2, Opcode::RcReadResponseOnly, kMtu);
  expect_bad_response(kMtu, 0, Opcode::RcReadResponseFirst, kMtu);
  expect_bad_response(kMtu, 0, Opcode::RcReadResponseLast, kMtu);
}

TEST(Completer, q016_answers_of_the_wrong_length_are_a_bad_response) {
  for (const std::size_t size : {0u, 1u, 9u, 11u, 256u})
    expect_bad_response(10, 0, Opcode::RcReadResponseOnly, size);
  for (const std::size_t size : {1u, 9u, 11u, 256u})
    expect_bad_response(kMtu + 10, 1, Opcode::RcReadResponseLast, size);
  expect_bad_response(0, 0, Opcode::RcReadResponseOnly, 1);
  for (const std::size_t size : {std::size_t{4}, std::size_t{252}, std::size_t{512}})
    expect_bad_response(3 * kMtu, 0, Opcode::RcReadResponseFirst, size);
  for (const std::size_t size : {std::size_t{4}, std::size_t{512}})
    expect_bad_response(3 * kMtu, 1, Opcode::RcReadResponseMiddle, size);
}

TEST(Completer, q016_refusals_of_the_peer_complete_with_their_reason) {
  struct Case {
    NakCode code;
    CompletionStatus status;
  };
  for (const Case& c : {Case{NakCode::InvalidRequest, CompletionStatus::RemoteInvalidRequest},
                        Case{NakCode::RemoteAccess, CompletionStatus::RemoteAccessError},
                        Case{NakCode::RemoteOperation, CompletionStatus::RemoteOperationError},
                        Case{NakCode::InvalidRdRequest, CompletionStatus::BadResponse}}) {
    AnsweredRig a;
    for (std::uint64_t id = 1; id <= 3; ++id) a.write(id);
    a.forget();
    a.rig.deliver(a.rig.nak(c.code, a.rig.our(1)));
    a.rig.expect_send(1);
    a.rig.expect_send(2, c.status);
    a.rig.expect_send(3, CompletionStatus::Flushed);
    EXPECT_EQ(a.rig.state(), QueuePairState::Error);
  }
}

TEST(Completer, q016_reserved_syndromes_are_dropped) {
  AnsweredRig a;
  a.write(1);
  a.forget();
  for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
    if (wire::aeth_kind(static_cast<std::uint8_t>(syndrome)) != wire::AethKind::Reserved) continue;
    Packet packet = a.rig.ack(a.rig.our(0), 1);
    packet.aeth.syndrome = static_cast<std::uint8_t>(syndrome);
    a.rig.deliver(packet);
    a.rig.expect_no_completion();
    a.rig.expect_silence();
  }
  EXPECT_EQ(a.rig.dropped(wire::DropReason::BadSyndrome), 32u + 27u + 128u);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Completer, q016_every_credit_code_is_an_acknowledgement) {
  for (unsigned credits = 0; credits < 32; ++credits) {
    AnsweredRig a;
    a.write(1);
    a.forget();
    Packet packet = a.rig.ack(a.rig.our(0), 1);
    packet.aeth.syndrome = static_cast<std::uint8_t>(credits);
    a.rig.deliver(packet);
    a.rig.expect_send(1);
  }
}

TEST(Completer, q017_answers_from_elsewhere_or_damaged_are_ignored) {
  AnsweredRig a;
  a.read(1, 10);
  a.write(2);
  a.forget();
  const Bytes data = pattern(10);
  for (const Packet& packet : {a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(0), data),
                               a.rig.nak(NakCode::RemoteAccess, a.rig.our(0)), a.rig.ack(a.rig.our(1), 2)}) {
    Bytes bytes = a.rig.emit(packet);
    bytes[9] ^= std::byte{0x40};
    a.rig.deliver_raw(bytes);
    bytes = a.rig.emit(packet);
    wire::Path path = a.rig.path_in();
    path.source = Gid::from_ipv4(192, 0, 2, 99);
    Line::seal(path, bytes);
    a.rig.Device::deliver(path, bytes);
  }
  a.rig.expect_no_completion();
  a.rig.expect_silence();
  EXPECT_EQ(a.rig.dropped(wire::DropReason::BadIcrc), 3u);
  EXPECT_EQ(a.rig.dropped(wire::DropReason::WrongAddress), 3u);
  EXPECT_TRUE(a.memory.all(std::byte{0}));
}

TEST(Completer, q018_no_answer_reaches_beyond_the_scatter_list) {
  const Bytes data = pattern(8 * kMtu, 7);
  for (const std::uint32_t length : {10u, kMtu, kMtu + 10, 3 * kMtu}) {
    const std::uint32_t packets = (length + kMtu - 1) / kMtu;
    for (const Opcode opcode : {Opcode::RcReadResponseMiddle, Opcode::RcReadResponseLast,
                                Opcode::RcReadResponseFirst, Opcode::RcReadResponseOnly})
      for (std::uint32_t at = 0; at <= packets + 1; ++at) {
        Rig rig;
        Memory& memory = rig.memory(length);  // guards on both sides are checked by the bench
        rig.post(1, SendOpcode::RdmaRead,
                 {memory.sge(0, length / 2), memory.sge(length / 2, length - length / 2)}, kRemote, kRkey);
        rig.take_all();
        for (std::uint32_t n = 0; n < at && n < packets; ++n) {
          const bool last = n + 1 == packets;
          rig.deliver(
              rig.read_response(n == 0 ? (last ? Opcode::RcReadResponseOnly : Opcode::RcReadResponseFirst)
                                       : (last ? Opcode::RcReadResponseLast : Opcode::RcReadResponseMiddle),
                                rig.our(n), cut(data, n * kMtu, last ? length - n * kMtu : kMtu)));
        }
        rig.deliver(rig.read_response(opcode, rig.our(at), cut(data, 0, kMtu)));
        if (at >= packets) {
          EXPECT_TRUE(memory.holds(0, cut(data, 0, length)));
          EXPECT_EQ(rig.state(), QueuePairState::Rts);
        }
      }
  }
}

TEST(Completer, q018_answer_is_scattered_over_all_segments) {
  Rig rig;
  Memory& memory = rig.memory(4096);
  memory.fill(std::byte{0xee});
  rig.post(1, SendOpcode::RdmaRead,
           {memory.sge(0, 0), memory.sge(3000, 100), memory.sge(50, 300), memory.sge(9, 0)}, kRemote, kRkey);
  rig.take_all();
  const Bytes data = pattern(400);
  rig.deliver(rig.read_response(Opcode::RcReadResponseFirst, rig.our(0), cut(data, 0, kMtu)));
  rig.deliver(rig.read_response(Opcode::RcReadResponseLast, rig.our(1), cut(data, kMtu, 400 - kMtu)));
  rig.expect_send(1);
  Bytes expected(4096, std::byte{0xee});
  for (std::size_t i = 0; i < 400; ++i) expected[i < 100 ? 3000 + i : 50 + i - 100] = data[i];
  EXPECT_TRUE(memory.holds(0, expected));
}

TEST(Completer, q018_read_in_several_requests_is_put_together) {
  Given given;
  given.transport.read_chunk_bytes = 2 * kMtu;
  AnsweredRig a(given);
  const std::uint32_t length = 5 * kMtu - 3;
  a.read(1, length);
  EXPECT_EQ(a.rig.take_all().size(), 3u);
  const Bytes data = pattern(length);
  for (std::uint32_t n = 0; n < 5; ++n) {
    const bool first = n % 2 == 0, last = n == 4 || !first;
    const Opcode opcode = first && last ? Opcode::RcReadResponseOnly
                          : first       ? Opcode::RcReadResponseFirst
                                        : Opcode::RcReadResponseLast;
    a.rig.expect_no_completion();
    a.rig.deliver(a.rig.read_response(opcode, a.rig.our(n), cut(data, n * kMtu, n == 4 ? kMtu - 3 : kMtu)));
  }
  EXPECT_EQ(a.rig.expect_send(1).byte_count, length);
  EXPECT_TRUE(a.memory.holds(0, data));
}

TEST(Completer, q019_answer_of_another_kind_is_a_bad_response) {
  for (int kind = 0; kind < 4; ++kind) {
    AnsweredRig a;
    if (kind == 0)
      a.write(1);
    else if (kind == 1)
      a.read(1, 8);
    else if (kind == 2)
      a.fetch_add(1);
    else
      a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
    a.forget();
    if (kind == 2)
      a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(0), pattern(8)));
    else
      a.rig.deliver(a.rig.atomic_response(a.rig.our(0), 5));
    a.expect_dead(1, CompletionStatus::BadResponse);
    EXPECT_TRUE(a.memory.all(std::byte{0}));
  }
}

TEST(Completer, q019_read_answer_to_a_write_is_a_bad_response) {
  AnsweredRig a;
  a.write(1);
  a.forget();
  a.rig.deliver(a.rig.read_response(Opcode::RcReadResponseOnly, a.rig.our(0), pattern(8)));
  a.expect_dead(1, CompletionStatus::BadResponse);
}

TEST(Completer, q019_result_of_an_atomic_is_stored_in_host_order_and_completes_it) {
  AnsweredRig a;
  a.fetch_add(1, 8);
  a.forget();
  a.rig.deliver(a.rig.atomic_response(a.rig.our(0), 0x0102030405060708));
  const Completion done = a.rig.expect_send(1);
  EXPECT_EQ(done.opcode, CompletionOpcode::FetchAndAdd);
  EXPECT_EQ(a.memory.word(8), 0x0102030405060708u);
  EXPECT_EQ(a.memory.word(0), 0u);
  EXPECT_EQ(a.memory.word(16), 0u);
}

}  // namespace
}  // namespace verbena::conformance
