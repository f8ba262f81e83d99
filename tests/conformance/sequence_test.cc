// SPDX-License-Identifier: Apache-2.0
// Sequence numbers and duplicates at the responder.
#include "bench.h"

namespace verbena::conformance {
namespace {

// A queue pair in a running state with memory, for requests of every kind.
struct ServedInOrder {
  Rig rig;
  Memory& memory;

  explicit ServedInOrder(const Given& given = {}) : rig(given), memory(rig.memory(8192)) {
    memory.put(4096, pattern(4096, 9));
  }
  wire::Reth reth(std::uint64_t at, std::uint32_t length) const {
    return {memory.va(at), memory.rkey(), length};
  }
  void write_only(std::uint32_t n, std::uint64_t at, unsigned seed) {
    const Bytes payload = pattern(16, seed);
    rig.deliver(rig.write(Opcode::RcWriteOnly, rig.their(n), reth(at, 16), payload));
  }
};

TEST(Responder, r020_expected_number_advances_by_what_the_request_takes) {
  ServedInOrder s;
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  s.rig.deliver(s.rig.read(s.rig.their(1), s.reth(4096, 3 * kMtu + 1)));  // takes 4
  EXPECT_EQ(s.rig.take_all().size(), 4u);
  s.write_only(5, 0, 2);
  s.rig.expect_ack(s.rig.their(5), 3);
  s.rig.deliver(s.rig.fetch_add(s.rig.their(6), s.memory.va(64), s.memory.rkey(), 1));  // takes 1
  s.rig.expect_atomic_response(s.rig.their(6), 0);
  s.rig.deliver(s.rig.read(s.rig.their(7), s.reth(4096, 0)));  // takes 1
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(7), {});
  s.write_only(8, 0, 3);
  s.rig.expect_ack(s.rig.their(8), 6);
}

TEST(Responder, r021_first_out_of_sequence_packet_draws_exactly_one_nak) {
  ServedInOrder s;
  s.write_only(2, 0, 1);
  s.rig.expect_nak(NakCode::SequenceError, s.rig.their(0));
  for (std::uint32_t n = 1; n < 20; ++n) {
    s.write_only(n, 0, 1);
    s.rig.expect_silence();
  }
  s.rig.deliver(s.rig.read(s.rig.their(30), s.reth(4096, 10)));
  s.rig.expect_silence();
  EXPECT_TRUE(s.memory.bytes(0, 16)[0] == std::byte{0});
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
}

TEST(Responder, r022_nak_may_be_sent_again_once_the_expected_packet_came) {
  ServedInOrder s;
  s.write_only(1, 0, 1);
  s.rig.expect_nak(NakCode::SequenceError, s.rig.their(0));
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  s.write_only(3, 0, 1);
  s.rig.expect_nak(NakCode::SequenceError, s.rig.their(1));
}

TEST(Responder, r022_duplicate_does_not_reopen_the_nak) {
  ServedInOrder s;
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  s.write_only(2, 0, 1);
  s.rig.expect_nak(NakCode::SequenceError, s.rig.their(1));
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  s.write_only(2, 0, 1);
  s.rig.expect_silence();
}

Given at_wrap(std::uint32_t before) {
  Given given;
  given.theirs = Psn{Psn::kMask - before + 1};
  return given;
}

TEST(Responder, r023_multi_packet_messages_cross_the_wrap) {
  struct Opcodes {
    Opcode first, middle, last;
  };
  const Opcodes kinds[] = {{Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcSendLast},
                           {Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcSendLastWithImmediate},
                           {Opcode::RcWriteFirst, Opcode::RcWriteMiddle, Opcode::RcWriteLast},
                           {Opcode::RcWriteFirst, Opcode::RcWriteMiddle, Opcode::RcWriteLastWithImmediate}};
  for (const Opcodes& kind : kinds)
    for (std::uint32_t before = 0; before <= 3; ++before) {
      ServedInOrder s(at_wrap(before));
      s.rig.post_receive(1, {s.memory.sge(0, 4 * kMtu)});
      const Bytes all = pattern(2 * kMtu + 5, before);
      const wire::Reth reth = s.reth(0, static_cast<std::uint32_t>(all.size()));
      s.rig.deliver(s.rig.write(kind.first, s.rig.their(0), reth, cut(all, 0, kMtu), false));
      s.rig.deliver(s.rig.write(kind.middle, s.rig.their(1), reth, cut(all, kMtu, kMtu), false));
      s.rig.deliver(s.rig.write(kind.last, s.rig.their(2), reth, cut(all, 2 * kMtu, 5)));
      s.rig.expect_ack(s.rig.their(2), 1);
      EXPECT_TRUE(s.memory.holds(0, all));
      s.rig.deliver(s.rig.write(kind.last, s.rig.their(2), reth, cut(all, 2 * kMtu, 5)));
      s.rig.expect_ack(s.rig.their(2), 1);
    }
}

TEST(Responder, r023_single_packet_requests_cross_the_wrap) {
  for (const Opcode opcode : {Opcode::RcSendOnly, Opcode::RcSendOnlyWithImmediate, Opcode::RcWriteOnly,
                              Opcode::RcWriteOnlyWithImmediate}) {
    ServedInOrder s(at_wrap(1));
    s.rig.post_receive(1, {s.memory.sge(0, 64)});
    s.rig.post_receive(2, {s.memory.sge(0, 64)});
    for (std::uint32_t n = 0; n < 2; ++n) {
      const Bytes payload = pattern(16, n);
      s.rig.deliver(s.rig.write(opcode, s.rig.their(n), s.reth(0, 16), payload));
      s.rig.expect_ack(Psn{0xffffff + n}, n + 1);
      EXPECT_TRUE(s.memory.holds(0, payload));
    }
  }
}

TEST(Responder, r023_read_and_atomics_cross_the_wrap) {
  for (std::uint32_t before = 0; before <= 3; ++before) {
    ServedInOrder s(at_wrap(before));
    s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 3 * kMtu)));
    s.rig.expect_read_response(Opcode::RcReadResponseFirst, s.rig.their(0), s.memory.bytes(4096, kMtu));
    s.rig.expect_read_response(Opcode::RcReadResponseMiddle, s.rig.their(1),
                               s.memory.bytes(4096 + kMtu, kMtu));
    s.rig.expect_read_response(Opcode::RcReadResponseLast, s.rig.their(2),
                               s.memory.bytes(4096 + 2 * kMtu, kMtu));
    s.rig.deliver(s.rig.read(s.rig.their(1), s.reth(4096 + kMtu, 2 * kMtu)));
    s.rig.expect_read_response(Opcode::RcReadResponseFirst, s.rig.their(1),
                               s.memory.bytes(4096 + kMtu, kMtu));
    s.rig.expect_read_response(Opcode::RcReadResponseLast, s.rig.their(2),
                               s.memory.bytes(4096 + 2 * kMtu, kMtu));
    s.rig.deliver(s.rig.fetch_add(s.rig.their(3), s.memory.va(0), s.memory.rkey(), 5));
    s.rig.expect_atomic_response(s.rig.their(3), 0);
    s.rig.deliver(s.rig.compare_swap(s.rig.their(4), s.memory.va(0), s.memory.rkey(), 5, 9));
    s.rig.expect_atomic_response(s.rig.their(4), 5);
    EXPECT_EQ(s.memory.word(0), 9u);
  }
}

TEST(Responder, r024_half_of_the_numbers_lies_ahead_and_half_behind) {
  constexpr std::uint32_t kHalf = 1u << 23;
  {
    ServedInOrder s;
    s.write_only(kHalf - 1, 0, 1);
    s.rig.expect_nak(NakCode::SequenceError, s.rig.their(0));
  }
  {
    ServedInOrder s;
    s.write_only(kHalf, 0, 1);  // the same as their(0) - 2^23: long ago
    s.rig.expect_ack(s.rig.their(0) - 1, 0);
  }
  {
    ServedInOrder s;
    s.write_only(Psn::kMask, 0, 1);  // their(0) - 1
    s.rig.expect_ack(s.rig.their(0) - 1, 0);
    EXPECT_TRUE(s.memory.bytes(0, 1)[0] == std::byte{0});
  }
}

TEST(Responder, r030_duplicate_send_is_acknowledged_and_not_delivered_again) {
  ServedInOrder s;
  s.rig.post_receive(1, {s.memory.sge(0, 64)});
  s.rig.post_receive(2, {s.memory.sge(64, 64)});
  const Bytes payload = pattern(20);
  s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(0), payload));
  s.rig.expect_ack(s.rig.their(0), 1);
  s.rig.expect_receive(1);
  s.write_only(1, 1024, 3);
  s.rig.expect_ack(s.rig.their(1), 2);
  s.memory.put(0, Bytes(20, std::byte{0x77}));
  s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(0), payload));
  s.rig.expect_ack(s.rig.their(1), 2);  // the newest acknowledged one
  s.rig.expect_no_completion();
  EXPECT_TRUE(s.memory.holds(0, Bytes(20, std::byte{0x77})));
  EXPECT_TRUE(s.memory.holds(64, Bytes(64, std::byte{0})));
  s.rig.deliver(s.rig.request(Opcode::RcSendOnly, s.rig.their(2), payload));
  s.rig.expect_ack(s.rig.their(2), 3);
  s.rig.expect_receive(2);
}

// An acknowledgement that reaches a READ or atomic before its response does passes for the response at some peers.
TEST(Responder, r030_r081_duplicate_is_not_acknowledged_past_a_read_or_atomic_behind_it) {
  for (const bool atomic : {false, true}) {
    ServedInOrder s;
    s.write_only(0, 0, 1);
    s.write_only(1, 0, 1);
    s.rig.expect_ack(s.rig.their(1), 2);
    const Packet fetch = atomic ? s.rig.fetch_add(s.rig.their(2), s.memory.va(64), s.memory.rkey(), 1)
                                : s.rig.read(s.rig.their(2), s.reth(4096, 10));
    const Opcode response = atomic ? Opcode::RcAtomicAcknowledge : Opcode::RcReadResponseOnly;
    s.rig.deliver(fetch);
    s.rig.expect(response, s.rig.their(2));
    s.write_only(3, 0, 1);
    s.rig.expect_ack(s.rig.their(3), 4);

    // The requester has none of the answers and asks again for everything.
    s.write_only(0, 0, 1);
    s.rig.expect_ack(s.rig.their(1), 2);
    s.rig.deliver(fetch);
    s.rig.expect(response, s.rig.their(2));
    s.write_only(3, 0, 1);
    s.rig.expect_ack(s.rig.their(3), 4);
  }
}

TEST(Responder, r030_duplicate_does_not_take_back_what_is_owed) {
  ServedInOrder s;
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  s.rig.deliver(s.rig.read(s.rig.their(1), s.reth(4096, 10)));
  s.rig.expect(Opcode::RcReadResponseOnly, s.rig.their(1));
  s.write_only(2, 0, 1);  // its acknowledgement may still wait
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(2), 3);
  s.rig.expect_silence();
}

TEST(Responder, r030_duplicate_write_changes_nothing) {
  for (const Opcode opcode : {Opcode::RcWriteOnly, Opcode::RcWriteOnlyWithImmediate}) {
    ServedInOrder s;
    s.rig.post_receive(1);
    s.rig.post_receive(2);
    const Bytes payload = pattern(16, 5);
    const Packet packet = s.rig.write(opcode, s.rig.their(0), s.reth(0, 16), payload);
    s.rig.deliver(packet);
    s.rig.expect_ack(s.rig.their(0), 1);
    s.memory.put(0, Bytes(16, std::byte{0x77}));
    if (opcode == Opcode::RcWriteOnlyWithImmediate) s.rig.expect_receive(1);
    s.rig.deliver(packet);
    s.rig.expect_ack(s.rig.their(0), 1);
    EXPECT_TRUE(s.memory.holds(0, Bytes(16, std::byte{0x77})));
    s.rig.expect_no_completion();
  }
}

TEST(Responder, r030_duplicate_is_acknowledged_even_if_it_breaks_other_rules) {
  ServedInOrder s;
  s.write_only(0, 0, 1);
  s.rig.expect_ack(s.rig.their(0), 1);
  const Bytes payload = pattern(16);
  s.rig.deliver(s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), {1, RKey{2}, 3}, payload));
  s.rig.expect_ack(s.rig.their(0), 1);
  s.rig.deliver(s.rig.request(Opcode::RcSendMiddle, s.rig.their(0), payload));
  s.rig.expect_ack(s.rig.their(0), 1);
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
}

TEST(Responder, r031_duplicate_read_is_executed_anew_from_memory) {
  ServedInOrder s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 100)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(0), s.memory.bytes(4096, 100));
  s.memory.put(4096, pattern(100, 44));
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 100)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(0), pattern(100, 44));
}

TEST(Responder, r031_tail_of_a_read_may_be_asked_for_alone) {
  ServedInOrder s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 3 * kMtu + 7)));
  EXPECT_EQ(s.rig.take_all().size(), 4u);
  s.rig.deliver(s.rig.read(s.rig.their(2), s.reth(4096 + 2 * kMtu, kMtu + 7)));
  s.rig.expect_read_response(Opcode::RcReadResponseFirst, s.rig.their(2),
                             s.memory.bytes(4096 + 2 * kMtu, kMtu));
  s.rig.expect_read_response(Opcode::RcReadResponseLast, s.rig.their(3), s.memory.bytes(4096 + 3 * kMtu, 7));
  s.rig.deliver(s.rig.read(s.rig.their(1), s.reth(4096 + kMtu, kMtu)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(1), s.memory.bytes(4096 + kMtu, kMtu));
  s.write_only(4, 0, 1);
  s.rig.expect_ack(s.rig.their(4), 2);
}

TEST(Responder, r031_duplicate_read_that_does_not_fit_the_original_is_dropped) {
  ServedInOrder s;
  const std::uint32_t length = 2 * kMtu + 7;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, length)));
  EXPECT_EQ(s.rig.take_all().size(), 3u);
  Memory& other = s.rig.memory(4096);
  const Packet wrong[] = {
      s.rig.read(s.rig.their(0), s.reth(4096 + 1, length - 1)),
      s.rig.read(s.rig.their(0), s.reth(4096 - 1, length)),
      s.rig.read(s.rig.their(0), s.reth(4096, length + 1)),
      s.rig.read(s.rig.their(1), s.reth(4096, kMtu)),
      s.rig.read(s.rig.their(1), s.reth(4096 + kMtu, kMtu + 8)),
      s.rig.read(s.rig.their(2), s.reth(4096 + 2 * kMtu, 8)),
      s.rig.read(s.rig.their(0), {s.memory.va(4096), other.rkey(), length}),
      s.rig.read(s.rig.their(0) - 1, s.reth(4096, 10)),
  };
  for (const Packet& packet : wrong) {
    s.rig.deliver(packet);
    s.rig.expect_silence();
  }
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
}

TEST(Responder, r032_repeated_read_starts_with_first_or_only) {
  ServedInOrder s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 4 * kMtu)));
  EXPECT_EQ(s.rig.take_all().size(), 4u);
  for (std::uint32_t from = 0; from < 4; ++from) {
    s.rig.deliver(s.rig.read(s.rig.their(from), s.reth(4096 + from * kMtu, (4 - from) * kMtu)));
    const std::vector<Sent> again = s.rig.take_all();
    ASSERT_EQ(again.size(), 4 - from);
    EXPECT_EQ(again[0].opcode(), from == 3 ? Opcode::RcReadResponseOnly : Opcode::RcReadResponseFirst);
    EXPECT_EQ(again[0].psn(), s.rig.their(from));
    for (std::size_t i = 1; i < again.size(); ++i)
      EXPECT_EQ(again[i].opcode(),
                i + 1 == again.size() ? Opcode::RcReadResponseLast : Opcode::RcReadResponseMiddle);
  }
}

TEST(Responder, r033_duplicate_atomic_gets_the_saved_result_and_leaves_memory_alone) {
  ServedInOrder s;
  const Packet add = s.rig.fetch_add(s.rig.their(0), s.memory.va(0), s.memory.rkey(), 5);
  const Packet swap = s.rig.compare_swap(s.rig.their(1), s.memory.va(8), s.memory.rkey(), 0, 7);
  s.memory.put_word(0, 100);
  s.rig.deliver(add);
  s.rig.expect_atomic_response(s.rig.their(0), 100);
  s.rig.deliver(swap);
  s.rig.expect_atomic_response(s.rig.their(1), 0);
  s.memory.put_word(8, 0);
  for (int i = 0; i < 3; ++i) {
    s.rig.deliver(add);
    s.rig.expect_atomic_response(s.rig.their(0), 100);
    s.rig.deliver(swap);
    s.rig.expect_atomic_response(s.rig.their(1), 0);
  }
  EXPECT_EQ(s.memory.word(0), 105u);
  EXPECT_EQ(s.memory.word(8), 0u);
}

TEST(Responder, r033_replayed_atomic_carries_the_message_count_of_its_time) {
  ServedInOrder s;
  const Packet add = s.rig.fetch_add(s.rig.their(0), s.memory.va(0), s.memory.rkey(), 5);
  s.rig.deliver(add);
  const std::uint32_t then = s.rig.expect_atomic_response(s.rig.their(0), 0).packet.aeth.msn;
  s.write_only(1, 64, 1);
  s.rig.expect_ack(s.rig.their(1), 2);
  s.rig.deliver(add);
  EXPECT_EQ(s.rig.expect_atomic_response(s.rig.their(0), 0).packet.aeth.msn, then);
}

TEST(Responder, r033_replay_does_not_swallow_an_acknowledgement_that_is_owed) {
  ServedInOrder s;
  const Packet add = s.rig.fetch_add(s.rig.their(0), s.memory.va(0), s.memory.rkey(), 5);
  const Packet read = s.rig.read(s.rig.their(1), s.reth(4096, 10));
  s.rig.deliver(add);
  s.rig.deliver(read);
  EXPECT_EQ(s.rig.take_all().size(), 2u);
  s.write_only(2, 64, 1);
  s.rig.expect_nothing_yet();
  s.rig.deliver(add);
  s.rig.expect_atomic_response(s.rig.their(0), 0);
  s.rig.expect_ack(s.rig.their(2), 3);
  s.write_only(3, 64, 1);
  s.rig.expect_nothing_yet();
  s.rig.deliver(read);
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(1), s.memory.bytes(4096, 10));
  s.rig.expect_ack(s.rig.their(3), 4);
}

TEST(Responder, r034_duplicate_atomic_that_is_no_longer_saved_is_dropped) {
  Given given;
  given.max_dest_rd_atomic = 1;
  ServedInOrder s(given);
  const Packet first = s.rig.fetch_add(s.rig.their(0), s.memory.va(0), s.memory.rkey(), 1);
  s.rig.deliver(first);
  s.rig.expect_atomic_response(s.rig.their(0), 0);
  s.rig.deliver(s.rig.fetch_add(s.rig.their(1), s.memory.va(0), s.memory.rkey(), 1));
  s.rig.expect_atomic_response(s.rig.their(1), 1);
  s.rig.deliver(first);
  s.rig.expect_silence();
  EXPECT_EQ(s.memory.word(0), 2u);
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
}

TEST(Responder, r035_as_many_results_are_saved_as_the_peer_may_have_outstanding) {
  for (const unsigned depth : {1u, 2u, 4u, 16u}) {
    Given given;
    given.max_dest_rd_atomic = static_cast<std::uint8_t>(depth);
    ServedInOrder s(given);
    constexpr std::uint32_t kDone = 20;
    for (std::uint32_t n = 0; n < kDone; ++n) {
      s.rig.deliver(s.rig.fetch_add(s.rig.their(n), s.memory.va(0), s.memory.rkey(), 1));
      s.rig.expect_atomic_response(s.rig.their(n), n);
    }
    for (std::uint32_t n = 0; n < kDone; ++n) {
      s.rig.deliver(s.rig.fetch_add(s.rig.their(n), s.memory.va(0), s.memory.rkey(), 1));
      if (n + depth < kDone)
        s.rig.expect_silence();
      else
        s.rig.expect_atomic_response(s.rig.their(n), n);
    }
    EXPECT_EQ(s.memory.word(0), kDone);
  }
}

TEST(Responder, r036_duplicate_in_the_middle_of_a_message_does_not_disturb_it) {
  ServedInOrder s;
  s.rig.post_receive(1, {s.memory.sge(0, 4 * kMtu)});
  const Bytes all = pattern(3 * kMtu, 8);
  const Packet before = s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), s.reth(2048, 16), cut(all, 0, 16));
  const Packet add = s.rig.fetch_add(s.rig.their(1), s.memory.va(3000 / 8 * 8), s.memory.rkey(), 1);
  const Packet first = s.rig.request(Opcode::RcSendFirst, s.rig.their(2), cut(all, 0, kMtu), false);
  const Packet middle = s.rig.request(Opcode::RcSendMiddle, s.rig.their(3), cut(all, kMtu, kMtu), false);
  s.rig.deliver(before);
  s.rig.deliver(add);
  s.rig.deliver(first);
  s.rig.take_all();
  s.rig.deliver(before);
  s.rig.expect_ack(s.rig.their(0), 1);  // short of the atomic
  s.rig.deliver(first);
  s.rig.expect_ack(s.rig.their(2), 2);
  s.rig.deliver(middle);
  s.rig.deliver(add);
  s.rig.expect_atomic_response(s.rig.their(1), 0);
  s.rig.deliver(middle);
  s.rig.take_all();
  s.rig.deliver(s.rig.request(Opcode::RcSendLast, s.rig.their(4), cut(all, 2 * kMtu, kMtu)));
  s.rig.expect_ack(s.rig.their(4), 3);
  EXPECT_EQ(s.rig.expect_receive(1).byte_count, 3 * kMtu);
  EXPECT_TRUE(s.memory.holds(0, all));
}

TEST(Responder, r037_duplicate_read_with_a_dead_key_is_an_access_error) {
  ServedInOrder s;
  Memory& doomed = s.rig.memory(256);
  const Packet read = s.rig.read(s.rig.their(0), {doomed.va(), doomed.rkey(), 100});
  s.rig.deliver(read);
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(0), doomed.bytes(0, 100));
  ASSERT_TRUE(s.rig.nic.deregister_memory(doomed.lkey()));
  s.rig.deliver(read);
  s.rig.expect_nak(NakCode::RemoteAccess, s.rig.their(0));
  EXPECT_EQ(s.rig.state(), QueuePairState::Error);
  s.rig.expect_event(AsyncEventType::QpAccessError);
}

TEST(Responder, r037_duplicate_read_needs_the_right_that_the_queue_pair_has_then) {
  ServedInOrder s;
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 100)));
  s.rig.expect_read_response(Opcode::RcReadResponseOnly, s.rig.their(0), s.memory.bytes(4096, 100));
  QueuePairAttributes values;
  values.access = Access::LocalWrite | Access::RemoteWrite | Access::RemoteAtomic;
  ASSERT_TRUE(s.rig.modify(values, AttributeMask::Access));
  s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(4096, 100)));
  s.rig.expect_nak(NakCode::InvalidRequest, s.rig.their(0));
  s.rig.expect_silence();
  EXPECT_EQ(s.rig.state(), QueuePairState::Error);
  s.rig.expect_event(AsyncEventType::QpRequestError);
}

}  // namespace
}  // namespace verbena::conformance
