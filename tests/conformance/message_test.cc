// SPDX-License-Identifier: Apache-2.0
// Order of opcodes and lengths of packets within a message.
#include "bench.h"

namespace verbena::conformance {
namespace {

struct ServedPackets {
  Rig rig;
  Memory& memory;
  Memory& receives;

  explicit ServedPackets(const Given& given = {})
      : rig(given), memory(rig.memory(4096)), receives(rig.memory(4096)) {
    for (std::uint64_t id = 1; id <= 4; ++id) rig.post_receive(id, {receives.sge((id - 1) * 1024, 1024)});
  }
  wire::Reth reth(std::uint32_t length, std::uint64_t at = 0) const {
    return {memory.va(at), memory.rkey(), length};
  }
  // A packet of that kind with a payload of that size, otherwise right for a message of three packets.
  void deliver(Opcode opcode, std::uint32_t n, std::size_t size, std::uint32_t length = 3 * kMtu) {
    const Bytes payload = pattern(size);
    rig.deliver(rig.write(opcode, rig.their(n), reth(length), payload, false));
  }
  void expect_untouched(int line = __builtin_LINE()) const {
    EXPECT_TRUE(memory.all(std::byte{0})) << line;
    EXPECT_TRUE(receives.all(std::byte{0})) << line;
  }
  // The packet drew NAK 0x61, the queue pair is gone, the event says why.
  void expect_refused(std::uint32_t n, int line = __builtin_LINE()) {
    rig.expect_nak(NakCode::InvalidRequest, rig.their(n), line);
    rig.expect_silence(line);
    EXPECT_EQ(rig.state(), QueuePairState::Error) << line;
    rig.expect_event(AsyncEventType::QpRequestError, line);
    rig.expect_no_event(line);
  }
};

// After a refusal the receives from `first` on are flushed, and nothing else completes.
void expect_flushed(ServedPackets& s, std::uint64_t first = 1, int line = __builtin_LINE()) {
  for (std::uint64_t id = first; id <= 4; ++id) s.rig.expect_receive(id, CompletionStatus::Flushed, line);
  s.rig.expect_no_completion(line);
}

constexpr Opcode kMiddles[] = {Opcode::RcSendMiddle, Opcode::RcWriteMiddle};
constexpr Opcode kLasts[] = {Opcode::RcSendLast, Opcode::RcSendLastWithImmediate, Opcode::RcWriteLast,
                             Opcode::RcWriteLastWithImmediate};
constexpr Opcode kOnlys[] = {Opcode::RcSendOnly, Opcode::RcSendOnlyWithImmediate, Opcode::RcWriteOnly,
                             Opcode::RcWriteOnlyWithImmediate};

TEST(Responder, r040_middle_or_last_without_first_is_an_invalid_request) {
  for (const Opcode opcode : kMiddles) {
    ServedPackets s;
    s.deliver(opcode, 0, kMtu);
    s.expect_refused(0);
    s.expect_untouched();
    expect_flushed(s);
  }
  for (const Opcode opcode : kLasts) {
    ServedPackets s;
    s.deliver(opcode, 0, 10);
    s.expect_refused(0);
    s.expect_untouched();
    expect_flushed(s);
  }
}

TEST(Responder, r040_last_after_a_finished_message_is_an_invalid_request) {
  ServedPackets s;
  s.deliver(Opcode::RcWriteFirst, 0, kMtu, kMtu + 10);
  s.deliver(Opcode::RcWriteLast, 1, 10);
  s.rig.expect_ack(s.rig.their(1), 1);
  s.deliver(Opcode::RcWriteLast, 2, 10);
  s.expect_refused(2);
}

TEST(Responder, r041_first_or_only_while_a_message_is_open_is_an_invalid_request) {
  for (const Opcode open : {Opcode::RcSendFirst, Opcode::RcWriteFirst}) {
    for (const Opcode next : {Opcode::RcSendFirst, Opcode::RcWriteFirst}) {
      ServedPackets s;
      s.deliver(open, 0, kMtu);
      s.deliver(next, 1, kMtu);
      s.expect_refused(1);
    }
    for (const Opcode next : kOnlys) {
      ServedPackets s;
      s.deliver(open, 0, kMtu);
      s.deliver(next, 1, 10, 10);
      s.expect_refused(1);
    }
  }
}

TEST(Responder, r042_send_inside_write_and_write_inside_send_are_invalid_requests) {
  for (const bool send_first : {true, false}) {
    const Opcode first = send_first ? Opcode::RcSendFirst : Opcode::RcWriteFirst;
    {
      ServedPackets s;
      s.deliver(first, 0, kMtu);
      s.deliver(send_first ? Opcode::RcWriteMiddle : Opcode::RcSendMiddle, 1, kMtu);
      s.expect_refused(1);
      expect_flushed(s);
    }
    for (const Opcode last : kLasts) {
      const bool is_send = last == Opcode::RcSendLast || last == Opcode::RcSendLastWithImmediate;
      if (is_send == send_first) continue;
      ServedPackets s;
      s.deliver(first, 0, kMtu, kMtu + 10);
      s.deliver(last, 1, 10);
      s.expect_refused(1);
      expect_flushed(s);
    }
  }
}

// What an earlier message left behind lends nothing to a packet out of order.
TEST(Responder, r042_send_inside_write_does_not_reach_into_an_earlier_receive) {
  for (const bool write_is_open : {true, false}) {
    ServedPackets s;
    s.deliver(Opcode::RcSendOnly, 0, 8);
    s.rig.expect_ack(s.rig.their(0), 1);
    s.rig.expect_receive(1);
    if (write_is_open) s.deliver(Opcode::RcWriteFirst, 1, kMtu);
    const std::uint32_t n = write_is_open ? 2 : 1;
    s.deliver(Opcode::RcSendMiddle, n, kMtu);
    s.expect_refused(n);
    expect_flushed(s, 2);
    EXPECT_TRUE(s.receives.holds(8, Bytes(4096 - 8)));
  }
}

TEST(Responder, r043_read_and_atomics_stand_between_messages_and_not_inside) {
  for (const Opcode open : {Opcode::RcSendFirst, Opcode::RcWriteFirst})
    for (int kind = 0; kind < 3; ++kind) {
      ServedPackets s;
      const auto fetch = [&](std::uint32_t n) {
        if (kind == 0) return s.rig.read(s.rig.their(n), s.reth(8));
        if (kind == 1) return s.rig.fetch_add(s.rig.their(n), s.memory.va(), s.memory.rkey(), 1);
        return s.rig.compare_swap(s.rig.their(n), s.memory.va(), s.memory.rkey(), 0, 1);
      };
      s.rig.deliver(fetch(0));
      EXPECT_EQ(s.rig.take_all().size(), 1u);
      const std::uint64_t before = s.memory.word(0);
      s.deliver(open, 1, kMtu);
      s.rig.take_all();
      if (open == Opcode::RcSendFirst) {
        EXPECT_EQ(s.memory.word(0), before);
      }
      s.rig.deliver(fetch(2));
      s.expect_refused(2);
    }
}

TEST(Responder, r044_reserved_opcodes_are_dropped_without_an_answer) {
  ServedPackets s;
  for (const unsigned opcode : {0x15u, 0x18u, 0x19u, 0x1au, 0x1bu, 0x1eu, 0x1fu}) {
    Bytes bytes = s.rig.emit(s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), s.reth(0), {}));
    bytes[0] = static_cast<std::byte>(opcode);
    Line::seal(s.rig.path_in(), bytes);
    s.rig.deliver_raw(bytes);
    s.rig.expect_silence();
  }
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
  s.deliver(Opcode::RcWriteOnly, 0, 8, 8);
  s.rig.expect_ack(s.rig.their(0), 1);
}

TEST(Responder, r044_operations_that_are_not_enabled_are_invalid_requests) {
  for (const Opcode opcode : {Opcode::RcSendOnlyWithInvalidate, Opcode::RcFlush, Opcode::RcAtomicWrite}) {
    ServedPackets s;
    s.deliver(opcode, 0, opcode == Opcode::RcFlush ? 0 : 8, 8);
    s.expect_refused(0);
    s.expect_untouched();
  }
  ServedPackets s;
  s.deliver(Opcode::RcSendFirst, 0, kMtu);
  s.deliver(Opcode::RcSendLastWithInvalidate, 1, 8);
  s.expect_refused(1);
}

TEST(Responder, r044_operations_that_are_not_enabled_do_no_harm_out_of_sequence) {
  ServedPackets s;
  s.deliver(Opcode::RcFlush, 3, 0, 8);
  s.rig.expect_nak(NakCode::SequenceError, s.rig.their(0));
  s.deliver(Opcode::RcAtomicWrite, Psn::kMask, 8, 8);  // long ago
  EXPECT_EQ(s.rig.state(), QueuePairState::Rts);
  s.expect_untouched();
}

TEST(Responder, r050_first_and_middle_are_as_long_as_the_path_mtu) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{4}, std::size_t{255}, std::size_t{257}, std::size_t{512}}) {
    for (const Opcode opcode : {Opcode::RcSendFirst, Opcode::RcWriteFirst}) {
      ServedPackets s;
      s.deliver(opcode, 0, size, 2048);
      s.expect_refused(0);
      s.expect_untouched();
    }
    for (const bool send : {true, false}) {
      ServedPackets s;
      s.deliver(send ? Opcode::RcSendFirst : Opcode::RcWriteFirst, 0, kMtu, 1024);
      s.deliver(send ? Opcode::RcSendMiddle : Opcode::RcWriteMiddle, 1, size);
      s.expect_refused(1);
      EXPECT_TRUE(s.memory.holds(kMtu, Bytes(kMtu)));
      EXPECT_TRUE(s.receives.holds(kMtu, Bytes(kMtu)));
    }
  }
}

TEST(Responder, r051_last_carries_between_one_byte_and_the_path_mtu) {
  for (const Opcode last : kLasts) {
    const bool send = last == Opcode::RcSendLast || last == Opcode::RcSendLastWithImmediate;
    for (const std::size_t size : {0u, 1u, 2u, 3u, 255u, 256u, 257u}) {
      ServedPackets s;
      const auto length = static_cast<std::uint32_t>(kMtu + size);
      s.deliver(send ? Opcode::RcSendFirst : Opcode::RcWriteFirst, 0, kMtu, std::max(length, kMtu + 1));
      s.deliver(last, 1, size);
      if (size >= 1 && size <= kMtu)
        s.rig.expect_ack(s.rig.their(1), 1);
      else
        s.expect_refused(1);
    }
  }
}

TEST(Responder, r052_only_carries_anything_up_to_the_path_mtu) {
  for (const Opcode only : kOnlys)
    for (const std::uint32_t size : {0u, 1u, 3u, 4u, 255u, 256u, 257u, 300u}) {
      ServedPackets s;
      s.deliver(only, 0, size, size);
      if (size <= kMtu)
        s.rig.expect_ack(s.rig.their(0), 1);
      else
        s.expect_refused(0);
    }
}

TEST(Responder, r053_write_that_is_shorter_or_longer_than_announced_is_an_invalid_request) {
  for (const std::uint32_t announced : {kMtu + 9, kMtu + 11, 2 * kMtu + 10}) {
    ServedPackets s;
    s.deliver(Opcode::RcWriteFirst, 0, kMtu, announced);
    s.deliver(Opcode::RcWriteLast, 1, 10);
    s.expect_refused(1);
    EXPECT_TRUE(s.memory.holds(kMtu, Bytes(10)));
  }
  for (const std::uint32_t announced :
       {1u, kMtu - 1, kMtu}) {  // more packets than the length leaves room for
    ServedPackets s;
    s.deliver(Opcode::RcWriteFirst, 0, kMtu, announced);
    s.expect_refused(0);
    s.expect_untouched();
  }
  {
    ServedPackets s;
    s.deliver(Opcode::RcWriteFirst, 0, kMtu, 2 * kMtu);
    s.deliver(Opcode::RcWriteMiddle, 1, kMtu);
    s.expect_refused(1);
    EXPECT_TRUE(s.memory.holds(kMtu, Bytes(kMtu)));
  }
  for (const Opcode only : {Opcode::RcWriteOnly, Opcode::RcWriteOnlyWithImmediate})
    for (const std::uint32_t announced : {0u, 9u, 11u, kMtu}) {
      ServedPackets s;
      s.deliver(only, 0, 10, announced);
      s.expect_refused(0);
      s.expect_untouched();
    }
}

TEST(Responder, r054_more_than_2_to_the_31_is_an_invalid_request) {
  for (const std::uint32_t length : {0x80000001u, 0xffffffffu}) {
    {
      ServedPackets s;
      s.deliver(Opcode::RcWriteFirst, 0, kMtu, length);
      s.expect_refused(0);
      s.expect_untouched();
    }
    {
      ServedPackets s;
      s.rig.deliver(s.rig.read(s.rig.their(0), s.reth(length)));
      s.expect_refused(0);
    }
  }
}

TEST(Responder, r055_requests_and_answers_that_carry_nothing_are_refused_with_a_payload) {
  const Bytes payload = pattern(8);
  for (int kind = 0; kind < 3; ++kind) {
    ServedPackets s;
    Packet packet = kind == 0   ? s.rig.read(s.rig.their(0), s.reth(8))
                    : kind == 1 ? s.rig.fetch_add(s.rig.their(0), s.memory.va(), s.memory.rkey(), 1)
                                : s.rig.compare_swap(s.rig.their(0), s.memory.va(), s.memory.rkey(), 0, 1);
    packet.payload = payload;
    s.rig.deliver(packet);
    s.expect_refused(0);
    s.expect_untouched();
  }
  ServedPackets s;
  s.rig.post(7, SendOpcode::RdmaWrite, {s.memory.sge(0, 8)}, 0x1000, RKey{1});
  s.rig.expect(Opcode::RcWriteOnly, s.rig.our(0));
  Packet ack = s.rig.ack(s.rig.our(0), 1);
  ack.payload = payload;
  s.rig.deliver(ack);
  s.rig.expect_no_completion();
  EXPECT_EQ(s.rig.dropped(wire::DropReason::BadLength), 1u);
  s.rig.deliver(s.rig.ack(s.rig.our(0), 1));
  s.rig.expect_send(7);
}

TEST(Responder, r056_pad_is_what_the_length_asks_for) {
  const Bytes whole = pattern(kMtu);
  const auto only = [&](std::size_t size, unsigned pad) {
    ServedPackets s;
    // The bytes are there for any pad: the announced length is that of the payload that remains.
    const Bytes payload = pattern(size);
    Packet packet =
        s.rig.write(Opcode::RcWriteOnly, s.rig.their(0), s.reth(static_cast<std::uint32_t>(size)), payload);
    packet.bth.pad_count = static_cast<std::uint8_t>(pad);
    s.rig.deliver(packet);
    if (pad == ((4 - size % 4) & 3))
      s.rig.expect_ack(s.rig.their(0), 1);
    else
      s.expect_refused(0);
  };
  for (const std::size_t size : {0u, 1u, 2u, 3u, 4u, 7u, 252u, 253u, 256u})
    for (unsigned pad = 0; pad < 4; ++pad) only(size, pad);
  for (const Opcode opcode : {Opcode::RcSendFirst, Opcode::RcWriteFirst})
    for (std::uint8_t pad = 1; pad < 4; ++pad) {
      ServedPackets s;
      Packet packet = s.rig.write(opcode, s.rig.their(0), s.reth(1024), whole);
      packet.bth.pad_count = pad;
      s.rig.deliver(packet);
      s.expect_refused(0);
      s.expect_untouched();
    }
}

TEST(Responder, r057_atomic_write_of_any_shape_touches_nothing) {
  for (const std::size_t size : {0u, 4u, 7u, 8u, 12u})
    for (const std::uint64_t at : {0u, 1u, 4u}) {
      ServedPackets s;
      const Bytes payload = pattern(size);
      s.rig.deliver(s.rig.write(Opcode::RcAtomicWrite, s.rig.their(0),
                                s.reth(static_cast<std::uint32_t>(size), at), payload));
      s.expect_refused(0);
      s.expect_untouched();
    }
}

TEST(Responder, r058_send_longer_than_its_receive_fails_both_sides) {
  for (const std::uint32_t room : {0u, 1u, 9u, 10u, 11u}) {
    Rig rig;
    Memory& memory = rig.memory(64);
    rig.post_receive(1, {memory.sge(0, room / 2), memory.sge(32, room - room / 2)});
    rig.post_receive(2);
    const Bytes payload = pattern(10);
    rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(0), payload));
    if (room >= 10) {
      rig.expect_ack(rig.their(0), 1);
      EXPECT_EQ(rig.expect_receive(1).byte_count, 10u);
      continue;
    }
    rig.expect_nak(NakCode::InvalidRequest, rig.their(0));
    rig.expect_receive(1, CompletionStatus::LocalLengthError);
    rig.expect_receive(2, CompletionStatus::Flushed);
    rig.expect_no_completion();
    EXPECT_EQ(rig.state(), QueuePairState::Error);
    EXPECT_TRUE(memory.all(std::byte{0}));
  }
}

TEST(Responder, r058_send_that_outgrows_its_receive_in_a_later_packet_fails_there) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  rig.post_receive(1, {memory.sge(0, kMtu + 9)});
  const Bytes all = pattern(kMtu + 10);
  rig.deliver(rig.request(Opcode::RcSendFirst, rig.their(0), cut(all, 0, kMtu), false));
  rig.expect_silence();
  rig.deliver(rig.request(Opcode::RcSendLast, rig.their(1), cut(all, kMtu, 10)));
  rig.expect_nak(NakCode::InvalidRequest, rig.their(1));
  rig.expect_receive(1, CompletionStatus::LocalLengthError);
  EXPECT_TRUE(memory.holds(kMtu, Bytes(1024 - kMtu)));
}

}  // namespace
}  // namespace verbena::conformance
