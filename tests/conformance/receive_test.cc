// SPDX-License-Identifier: Apache-2.0
// The receive queue at the responder, READ and atomics.
#include <atomic>
#include <thread>

#include "bench.h"

namespace verbena::conformance {
namespace {

TEST(Responder, r070_message_without_a_receive_draws_an_rnr_nak_and_is_not_counted) {
  for (const Opcode opcode :
       {Opcode::RcSendOnly, Opcode::RcSendOnlyWithImmediate, Opcode::RcWriteOnlyWithImmediate}) {
    for (const unsigned code : {0u, 1u, 12u, 31u}) {
      Given given;
      given.min_rnr_timer = static_cast<std::uint8_t>(code);
      Rig rig(given);
      Memory& memory = rig.memory(64);
      const Bytes payload = pattern(8);
      const Packet packet = rig.write(opcode, rig.their(0), {memory.va(), memory.rkey(), 8}, payload);
      rig.deliver(packet);
      rig.expect_rnr_nak(given.min_rnr_timer, rig.their(0));
      rig.expect_silence();
      EXPECT_TRUE(memory.all(std::byte{0}));
      rig.deliver(packet);  // still none
      rig.expect_rnr_nak(given.min_rnr_timer, rig.their(0));
      rig.post_receive(1, {memory.sge(0, 64)});
      rig.expect_no_completion();  // nothing takes it by itself
      rig.deliver(packet);
      rig.expect_ack(rig.their(0), 1);
      rig.expect_receive(1);
      EXPECT_TRUE(memory.holds(0, payload));
      rig.expect_no_event();
    }
  }
}

TEST(Responder, r070_first_of_a_long_send_without_a_receive_draws_an_rnr_nak) {
  Rig rig;
  const Bytes payload = pattern(kMtu);
  rig.deliver(rig.request(Opcode::RcSendFirst, rig.their(0), payload, false));
  rig.expect_rnr_nak(12, rig.their(0));
}

TEST(Responder, r071_packets_behind_a_refused_one_are_dropped_until_it_returns) {
  Rig rig;
  Memory& memory = rig.memory(64);
  const Bytes payload = pattern(8);
  const auto send = [&](std::uint32_t n) { return rig.request(Opcode::RcSendOnly, rig.their(n), payload); };
  rig.deliver(send(0));
  rig.expect_rnr_nak(12, rig.their(0));
  rig.post_receive(1, {memory.sge(0, 8)});
  rig.post_receive(2, {memory.sge(8, 8)});
  for (std::uint32_t n = 1; n < 10; ++n) {
    rig.deliver(send(n));
    rig.expect_silence();
  }
  rig.expect_no_completion();
  rig.deliver(send(0));
  rig.expect_ack(rig.their(0), 1);
  rig.deliver(send(2));  // and now gaps are named again
  rig.expect_nak(NakCode::SequenceError, rig.their(1));
  rig.deliver(send(1));
  rig.expect_ack(rig.their(1), 2);
}

TEST(Responder, r072_write_with_immediate_takes_its_receive_at_the_end) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  const Bytes all = pattern(2 * kMtu + 10);
  const wire::Reth reth{memory.va(), memory.rkey(), 2 * kMtu + 10};
  rig.deliver(rig.write(Opcode::RcWriteFirst, rig.their(0), reth, cut(all, 0, kMtu), false));
  rig.deliver(rig.write(Opcode::RcWriteMiddle, rig.their(1), reth, cut(all, kMtu, kMtu), false));
  rig.expect_silence();
  const Packet last = rig.write(Opcode::RcWriteLastWithImmediate, rig.their(2), reth, cut(all, 2 * kMtu, 10));
  rig.deliver(last);
  rig.expect_rnr_nak(12, rig.their(2));
  EXPECT_TRUE(memory.holds(0, cut(all, 0, 2 * kMtu))) << "what was written stays";
  EXPECT_TRUE(memory.holds(2 * kMtu, Bytes(10)));
  rig.post_receive(1);  // without any segment
  rig.deliver(last);
  rig.expect_ack(rig.their(2), 1);
  const Completion done = rig.expect_receive(1);
  EXPECT_EQ(done.byte_count, 2 * kMtu + 10);
  EXPECT_TRUE(memory.holds(0, all));
}

TEST(Responder, r072_receive_posted_before_is_still_there_for_a_send_after_plain_writes) {
  Rig rig;
  Memory& memory = rig.memory(64);
  rig.post_receive(1, {memory.sge(32, 32)});
  const Bytes payload = pattern(8);
  rig.deliver(rig.write(Opcode::RcWriteOnly, rig.their(0), {memory.va(), memory.rkey(), 8}, payload));
  rig.expect_ack(rig.their(0), 1);
  rig.expect_no_completion();
  rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(1), payload));
  rig.expect_receive(1);
}

TEST(Responder, r073_completion_of_a_receive_tells_length_kind_and_immediate) {
  const std::array<std::byte, 4> immediate{std::byte{0xde}, std::byte{0xad}, std::byte{0xbe},
                                           std::byte{0xef}};
  for (const std::uint32_t size : {0u, 1u, 256u}) {
    Rig rig;
    Memory& memory = rig.memory(1024);
    const Bytes payload = pattern(size);
    for (std::uint64_t id = 1; id <= 3; ++id) rig.post_receive(id, {memory.sge(0, 1024)});
    rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(0), payload));
    Completion done = rig.expect_receive(1);
    EXPECT_EQ(done.opcode, CompletionOpcode::Receive);
    EXPECT_EQ(done.byte_count, size);
    EXPECT_FALSE(done.with_immediate);
    rig.deliver(rig.request(Opcode::RcSendOnlyWithImmediate, rig.their(1), payload));
    done = rig.expect_receive(2);
    EXPECT_EQ(done.opcode, CompletionOpcode::Receive);
    EXPECT_EQ(done.byte_count, size);
    EXPECT_TRUE(done.with_immediate);
    EXPECT_EQ(done.immediate, immediate);
    rig.deliver(rig.write(Opcode::RcWriteOnlyWithImmediate, rig.their(2), {memory.va(), memory.rkey(), size},
                          payload));
    done = rig.expect_receive(3);
    EXPECT_EQ(done.opcode, CompletionOpcode::ReceiveRdmaWithImmediate);
    EXPECT_EQ(done.byte_count, size);
    EXPECT_TRUE(done.with_immediate);
    EXPECT_EQ(done.immediate, immediate);
  }
}

TEST(Responder, r073_length_of_a_long_message_is_that_of_all_its_packets) {
  Rig rig;
  Memory& memory = rig.memory(4096);
  rig.post_receive(1, {memory.sge(0, 4096)});
  const Bytes all = pattern(3 * kMtu + 1);
  rig.deliver(rig.request(Opcode::RcSendFirst, rig.their(0), cut(all, 0, kMtu), false));
  rig.deliver(rig.request(Opcode::RcSendMiddle, rig.their(1), cut(all, kMtu, kMtu), false));
  rig.deliver(rig.request(Opcode::RcSendMiddle, rig.their(2), cut(all, 2 * kMtu, kMtu), false));
  rig.expect_no_completion();
  rig.deliver(rig.request(Opcode::RcSendLastWithImmediate, rig.their(3), cut(all, 3 * kMtu, 1)));
  const Completion done = rig.expect_receive(1);
  EXPECT_EQ(done.byte_count, 3 * kMtu + 1);
  EXPECT_TRUE(done.with_immediate);
  EXPECT_TRUE(memory.holds(0, all));
}

TEST(Responder, r074_receives_complete_in_the_order_in_which_they_are_taken) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  for (std::uint64_t id = 1; id <= 32; ++id) rig.post_receive(id, {memory.sge(0, 16)});
  const Bytes payload = pattern(8);
  for (std::uint32_t n = 0; n < 32; ++n)
    rig.deliver(n % 3 == 1 ? rig.write(Opcode::RcWriteOnlyWithImmediate, rig.their(n),
                                       {memory.va(), memory.rkey(), 8}, payload)
                           : rig.request(Opcode::RcSendOnly, rig.their(n), payload));
  for (std::uint64_t id = 1; id <= 32; ++id) rig.expect_receive(id);
}

TEST(Responder, r078_message_is_scattered_over_all_segments_exactly) {
  for (const std::size_t size : {1u, 10u, 255u, 256u, 257u, 300u, 700u}) {
    Rig rig;
    Memory& memory = rig.memory(4096);
    memory.fill(std::byte{0xee});
    // Segments of 0, 10, 0 and 1014 bytes, apart from each other and out of order.
    rig.post_receive(1, {memory.sge(0, 0), memory.sge(2000, 10), memory.sge(5, 0), memory.sge(100, 1014)});
    const Bytes all = pattern(size, 3);
    const std::size_t packets = (size + kMtu - 1) / kMtu;
    for (std::uint32_t n = 0; n < packets; ++n) {
      const std::size_t at = n * kMtu;
      const bool last = n + 1 == packets;
      const Opcode opcode = packets == 1 ? Opcode::RcSendOnly
                            : n == 0     ? Opcode::RcSendFirst
                            : last       ? Opcode::RcSendLast
                                         : Opcode::RcSendMiddle;
      rig.deliver(rig.request(opcode, rig.their(n), cut(all, at, last ? size - at : kMtu)));
    }
    EXPECT_EQ(rig.expect_receive(1).byte_count, size);
    Bytes expected(4096, std::byte{0xee});
    for (std::size_t i = 0; i < size; ++i) expected[i < 10 ? 2000 + i : 90 + i] = all[i];
    EXPECT_TRUE(memory.holds(0, expected)) << size;
  }
}

TEST(Responder, r079_receive_into_bad_memory_fails_both_sides) {
  for (int kind = 0; kind < 5; ++kind) {
    Rig rig;
    Memory& memory = rig.memory(64);
    Memory& readonly = rig.memory(64, Access::RemoteRead);
    Memory& foreign = rig.memory_of(rig.nic.create_pd().value(), 64);
    const ScatterGather sges[] = {{memory.va(), 64, LKey{12345}},
                                  readonly.sge(0, 64),
                                  foreign.sge(0, 64),
                                  {memory.va(1), 64, memory.lkey()},
                                  memory.sge(0, 64)};
    rig.post_receive(1, {sges[kind]});
    rig.post_receive(2);
    if (kind == 4) {
      ASSERT_TRUE(rig.nic.deregister_memory(memory.lkey()));
    }
    const Bytes payload = pattern(16);
    rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(0), payload));
    rig.expect_nak(NakCode::RemoteOperation, rig.their(0));
    rig.expect_receive(1, CompletionStatus::LocalProtectionError);
    rig.expect_receive(2, CompletionStatus::Flushed);
    rig.expect_no_completion();
    EXPECT_EQ(rig.state(), QueuePairState::Error);
    for (const Memory* m : {&memory, &readonly, &foreign}) EXPECT_TRUE(m->all(std::byte{0})) << kind;
  }
}

// ---- READ and atomics

struct ServedReads {
  Rig rig;
  Memory& memory;
  explicit ServedReads(const Given& given = {}) : rig(given), memory(rig.memory(16384)) {
    memory.put(0, pattern(16384, 5));
  }
  wire::Reth reth(std::uint64_t at, std::uint32_t length) const {
    return {memory.va(at), memory.rkey(), length};
  }
};

TEST(Responder, r080_answers_of_a_read_are_first_middles_and_last_with_contiguous_numbers) {
  for (const std::uint32_t length : {1u, 255u, 256u, 257u, 512u, 513u, 2000u, 16384u}) {
    ServedReads s;
    s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(0, length)));
    const std::uint32_t packets = (length + kMtu - 1) / kMtu;
    for (std::uint32_t n = 0; n < packets; ++n) {
      const bool first = n == 0, last = n + 1 == packets;
      const Opcode opcode = first && last ? Opcode::RcReadResponseOnly
                            : first       ? Opcode::RcReadResponseFirst
                            : last        ? Opcode::RcReadResponseLast
                                          : Opcode::RcReadResponseMiddle;
      const Sent sent = s.rig.expect_read_response(opcode, s.rig.their(n),
                                                   s.memory.bytes(n * kMtu, last ? length - n * kMtu : kMtu));
      if (sent.packet.info().has(wire::kAeth)) {
        EXPECT_EQ(sent.packet.aeth.msn, 1u);
      }
    }
    s.rig.expect_silence();
  }
}

TEST(Responder, r080_middle_answers_have_no_acknowledge_header) {
  ServedReads s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(0, 3 * kMtu)));
  const std::vector<Sent> sent = s.rig.take_all();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].bytes.size(), 12 + 4 + kMtu + 4);
  EXPECT_EQ(sent[1].bytes.size(), 12 + kMtu + 4);
  EXPECT_EQ(sent[2].bytes.size(), 12 + 4 + kMtu + 4);
}

TEST(Responder, r081_answers_leave_in_the_order_of_their_requests) {
  ServedReads s;
  s.rig.post_receive(1, {s.memory.sge(8192, 64)});
  const Bytes payload = pattern(16);
  // All arrive before anything leaves.
  const Bytes datagrams[] = {
      s.rig.emit(s.rig.read(s.rig.their(0), s.reth(0, 3 * kMtu))),
      s.rig.emit(s.rig.request(Opcode::RcSendOnly, s.rig.their(3), payload)),
      s.rig.emit(s.rig.fetch_add(s.rig.their(4), s.memory.va(4096), s.memory.rkey(), 1)),
      s.rig.emit(s.rig.write(Opcode::RcWriteOnly, s.rig.their(5), s.reth(9000, 16), payload)),
      s.rig.emit(s.rig.read(s.rig.their(6), s.reth(0, 10))),
      s.rig.emit(s.rig.write(Opcode::RcWriteOnly, s.rig.their(7), s.reth(9000, 16), payload)),
  };
  for (const Bytes& datagram : datagrams) s.rig.nic.handle_datagram(s.rig.now, s.rig.path_in(), 0, datagram);
  const std::vector<Sent> sent = s.rig.take_all();
  ASSERT_GE(sent.size(), 6u);
  for (std::size_t i = 1; i < sent.size(); ++i) EXPECT_TRUE(sent[i - 1].psn().is_before(sent[i].psn())) << i;
  EXPECT_EQ(sent[0].opcode(), Opcode::RcReadResponseFirst);
  EXPECT_EQ(sent[2].opcode(), Opcode::RcReadResponseLast);
  EXPECT_EQ(sent.back().opcode(), Opcode::RcAcknowledge);
  EXPECT_EQ(sent.back().psn(), s.rig.their(7));
}

TEST(Responder, r081_nak_does_not_overtake_the_answers_before_it) {
  ServedReads s;
  const Bytes payload = pattern(16);
  const Bytes datagrams[] = {
      s.rig.emit(s.rig.read(s.rig.their(0), s.reth(0, 3 * kMtu))),
      s.rig.emit(s.rig.request(Opcode::RcSendOnly, s.rig.their(3), payload)),  // nobody waits for it
  };
  for (const Bytes& datagram : datagrams) s.rig.nic.handle_datagram(s.rig.now, s.rig.path_in(), 0, datagram);
  s.rig.expect(Opcode::RcReadResponseFirst, s.rig.their(0));
  s.rig.expect(Opcode::RcReadResponseMiddle, s.rig.their(1));
  s.rig.expect(Opcode::RcReadResponseLast, s.rig.their(2));
  s.rig.expect_rnr_nak(12, s.rig.their(3));
}

TEST(Responder, r082_read_and_atomics_without_resources_are_invalid_requests) {
  for (int kind = 0; kind < 3; ++kind) {
    Given given;
    given.max_dest_rd_atomic = 0;
    ServedReads s(given);
    const std::uint64_t before = s.memory.word(0);
    s.rig.deliver(kind == 0 ? s.rig.read(s.rig.their(0), s.reth(0, 8))
                  : kind == 1
                      ? s.rig.fetch_add(s.rig.their(0), s.memory.va(0), s.memory.rkey(), 1)
                      : s.rig.compare_swap(s.rig.their(0), s.memory.va(0), s.memory.rkey(), before, 1));
    s.rig.expect_nak(NakCode::InvalidRequest, s.rig.their(0));
    EXPECT_EQ(s.rig.state(), QueuePairState::Error);
    EXPECT_EQ(s.memory.word(0), before);
  }
}

TEST(Responder, r082_more_at_once_than_allowed_are_an_invalid_request) {
  Given given;
  given.max_dest_rd_atomic = 2;
  ServedReads s(given);
  s.memory.put_word(0, 0);
  for (std::uint32_t n = 0; n < 3; ++n) {  // nothing leaves meanwhile
    const Bytes datagram = s.rig.emit(s.rig.fetch_add(s.rig.their(n), s.memory.va(0), s.memory.rkey(), 1));
    s.rig.nic.handle_datagram(s.rig.now, s.rig.path_in(), 0, datagram);
  }
  s.rig.expect_atomic_response(s.rig.their(0), 0);
  s.rig.expect_atomic_response(s.rig.their(1), 1);
  s.rig.expect_nak(NakCode::InvalidRequest, s.rig.their(2));
  EXPECT_EQ(s.memory.word(0), 2u);
}

TEST(Responder, r083_atomics_of_several_queue_pairs_do_not_lose_updates) {
  Given given;
  Device device(given);
  Memory& memory = device.memory(64);
  std::vector<std::unique_ptr<Line>> lines;
  for (std::uint32_t i = 0; i < 4; ++i) {
    given.peer_qpn = Qpn{0x100 + i};
    lines.push_back(std::make_unique<Line>(device, given));
  }
  std::uint64_t expected = 0;
  for (std::uint32_t n = 0; n < 50; ++n)
    for (const auto& line : lines) {
      line->deliver(n % 2 == 0 ? line->fetch_add(line->their(n), memory.va(), memory.rkey(), 3)
                               : line->compare_swap(line->their(n), memory.va(), memory.rkey(), expected,
                                                    expected + 3));
      line->expect_atomic_response(line->their(n), expected);
      expected += 3;
    }
  EXPECT_EQ(memory.word(0), expected);
}

TEST(Responder, r083_atomics_do_not_lose_updates_of_the_processor) {
  Rig rig;
  Memory& memory = rig.memory(64);
  auto& word = *reinterpret_cast<std::uint64_t*>(memory.data());
  constexpr std::uint32_t kOurs = 30000;
  std::atomic<bool> done{false};
  std::uint64_t theirs = 0;
  std::thread processor([&] {
    for (; !done.load(std::memory_order_relaxed); ++theirs) std::atomic_ref(word).fetch_add(1);
  });
  for (std::uint32_t n = 0; n < kOurs; ++n) {
    rig.deliver(rig.fetch_add(rig.their(n), memory.va(), memory.rkey(), 1));
    rig.expect(Opcode::RcAtomicAcknowledge, rig.their(n));
  }
  done = true;
  processor.join();
  EXPECT_EQ(memory.word(0), kOurs + theirs);
}

TEST(Responder, r084_operands_are_big_endian_on_the_wire_and_the_hosts_in_memory) {
  Rig rig;
  Memory& memory = rig.memory(64);
  memory.put_word(0, 0x0102030405060708);
  Bytes bytes = rig.emit(rig.fetch_add(rig.their(0), memory.va(), memory.rkey(), 0x1122334455667788));
  const Bytes operand{bytes.begin() + 24, bytes.begin() + 32};
  EXPECT_EQ(operand.front(), std::byte{0x11});
  EXPECT_EQ(operand.back(), std::byte{0x88});
  rig.deliver_raw(bytes);
  const Sent sent = rig.expect_atomic_response(rig.their(0), 0x0102030405060708);
  EXPECT_EQ(sent.bytes[16], std::byte{0x01});
  EXPECT_EQ(sent.bytes[23], std::byte{0x08});
  EXPECT_EQ(memory.word(0), 0x0102030405060708u + 0x1122334455667788u);
}

TEST(Responder, r085_answer_of_an_atomic_carries_the_original_value) {
  Rig rig;
  Memory& memory = rig.memory(64);
  memory.put_word(8, 10);
  rig.deliver(rig.compare_swap(rig.their(0), memory.va(8), memory.rkey(), 11, 99));
  rig.expect_atomic_response(rig.their(0), 10);
  EXPECT_EQ(memory.word(8), 10u);
  rig.deliver(rig.compare_swap(rig.their(1), memory.va(8), memory.rkey(), 10, 99));
  rig.expect_atomic_response(rig.their(1), 10);
  EXPECT_EQ(memory.word(8), 99u);
  rig.deliver(rig.fetch_add(rig.their(2), memory.va(8), memory.rkey(), ~std::uint64_t{0}));
  rig.expect_atomic_response(rig.their(2), 99);
  EXPECT_EQ(memory.word(8), 98u);
  EXPECT_EQ(memory.word(0), 0u);
  EXPECT_EQ(memory.word(16), 0u);
}

TEST(Responder, r086_read_of_no_bytes_is_answered_by_one_empty_packet) {
  ServedReads s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(0, 0)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(0), {});
  s.rig.expect_silence();
}

}  // namespace
}  // namespace verbena::conformance
