// SPDX-License-Identifier: Apache-2.0
// What users may rely on in the order of things (O-1 to O-5), with packets moved by hand and over a bad wire.
#include <algorithm>

#include "pair.h"

namespace verbena::conformance {
namespace {

// Over a wire that drops, repeats and delays, seed by seed.
std::function<Fate(int, Bytes&)> bad_wire(SeededRandom& random) {
  return [&random](int, Bytes& datagram) {
    if (random.chance(0.1)) return Fate::Drop;
    if (random.chance(0.05)) return Fate::Twice;
    if (random.chance(0.05)) return Fate::Later;
    if (random.chance(0.03)) datagram[random.below(datagram.size())] ^= std::byte{0x10};
    return Fate::Deliver;
  };
}

TEST(Ordering, o1_messages_are_executed_in_the_order_of_posting) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Given given;
    given.seed = seed;
    given.ours = Psn{static_cast<std::uint32_t>(0xfffff0 + seed)};  // near the wrap
    Pair pair(given);
    SeededRandom random(seed * 77);
    pair.hook = bad_wire(random);
    Memory& target = *pair.side(1).memory;
    Memory& source = *pair.side(0).memory;
    constexpr std::uint64_t kMessages = 40;
    for (std::uint64_t id = 0; id < kMessages; ++id) {
      pair.post_receive(1, id, {target.sge(32768, 4096)});
      source.put_word(id * 8, id + 1);
      const auto length = static_cast<std::uint32_t>(random.below(3 * kMtu));
      if (id % 3 == 2)
        pair.post(0, id, SendOpcode::RdmaWrite, {source.sge(id * 8, 8)}, target.va(0), target.rkey());
      else
        pair.post(0, id, SendOpcode::Send, {source.sge(4096, length)});
    }
    pair.run();
    ASSERT_EQ(pair.side(0).sends.size(), kMessages) << seed;
    for (std::uint64_t id = 0; id < kMessages; ++id) {
      EXPECT_EQ(pair.side(0).sends[id].id, id);
      EXPECT_EQ(pair.side(0).sends[id].status, CompletionStatus::Success) << seed;
    }
    const auto& receives = pair.side(1).receives;
    ASSERT_EQ(receives.size(), kMessages - kMessages / 3) << seed;
    for (std::uint64_t i = 0; i < receives.size(); ++i) EXPECT_EQ(receives[i].id, i);
    EXPECT_EQ(target.word(0), 39u) << "the last WRITE was the last to be executed";
  }
}

TEST(Ordering, o2_completed_receive_means_that_all_earlier_writes_are_there) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Given given;
    given.seed = seed;
    Pair pair(given);
    Memory& source = *pair.side(0).memory;
    Memory& target = *pair.side(1).memory;
    source.put(0, pattern(8192, static_cast<unsigned>(seed)));
    SeededRandom random(seed);
    auto wire = bad_wire(random);
    std::size_t seen = 0;
    pair.hook = [&](int from, Bytes& datagram) {
      // Whenever anything moves: every receive that completed has its WRITEs in memory.
      for (; seen < pair.side(1).receives.size(); ++seen)
        EXPECT_TRUE(target.holds(seen * 1000, source.bytes(seen * 1000, 1000))) << seed << " " << seen;
      return wire(from, datagram);
    };
    for (std::uint64_t id = 0; id < 8; ++id) {
      pair.post_receive(1, id);
      pair.post(0, id, SendOpcode::RdmaWrite, {source.sge(id * 1000, 700)}, target.va(id * 1000),
                target.rkey());
      pair.post(0, id, SendOpcode::RdmaWrite, {source.sge(id * 1000 + 700, 300)}, target.va(id * 1000 + 700),
                target.rkey());
      pair.post(0, id, SendOpcode::Send, {});
    }
    pair.run();
    EXPECT_EQ(pair.side(1).receives.size(), 8u);
    EXPECT_TRUE(target.holds(0, source.bytes(0, 8000)));
  }
}

TEST(Ordering, o2_receive_does_not_complete_before_a_lost_write_came) {
  Rig rig;
  Memory& memory = rig.memory(64);
  rig.post_receive(1);
  const Bytes payload = pattern(8);
  rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(1)));
  rig.expect_no_completion();
  rig.deliver(rig.write(Opcode::RcWriteOnly, rig.their(0), {memory.va(), memory.rkey(), 8}, payload));
  rig.expect_no_completion();
  rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(1)));
  rig.expect_receive(1);
  EXPECT_TRUE(memory.holds(0, payload));
}

TEST(Ordering, o3_write_overtakes_the_answer_of_a_read_unless_fenced) {
  for (const bool fenced : {true, false}) {
    Pair pair;
    Memory& near = *pair.side(0).memory;
    Memory& far = *pair.side(1).memory;
    far.put_word(0, 1);
    near.put_word(8, 2);
    bool written_before_answer = false;
    int reads_to_lose = 1;
    pair.hook = [&](int from, Bytes& datagram) {
      Packet packet;
      EXPECT_EQ(wire::parse(datagram, packet), wire::DropReason::None);
      if (from == 1 && packet.bth.opcode == Opcode::RcReadResponseOnly) {
        if (reads_to_lose-- > 0) return Fate::Drop;
        written_before_answer = far.word(0) == 2;
      }
      return Fate::Deliver;
    };
    pair.post(0, 1, SendOpcode::RdmaRead, {near.sge(0, 8)}, far.va(0), far.rkey());
    pair.post(0, 2, SendOpcode::RdmaWrite, {near.sge(8, 8)}, far.va(0), far.rkey(),
              fenced ? SendFlags::Signaled | SendFlags::Fence : SendFlags::Signaled);
    pair.run();
    ASSERT_EQ(pair.side(0).sends.size(), 2u);
    EXPECT_EQ(written_before_answer, !fenced) << "the answer is read from memory anew";
    EXPECT_EQ(near.word(0), fenced ? 1u : 2u);
    EXPECT_EQ(far.word(0), 2u);
  }
}

// A WRITE of three packets, delivered in every order, each packet possibly twice: the last byte never comes
// first.
TEST(Ordering, o4_no_byte_of_the_last_packet_is_placed_before_all_others) {
  const Bytes all = pattern(2 * kMtu + 64, 3);
  std::vector<std::uint32_t> order{0, 1, 2, 0, 1, 2};
  do {
    Rig rig;
    Memory& memory = rig.memory(1024);
    const wire::Reth reth{memory.va(), memory.rkey(), static_cast<std::uint32_t>(all.size())};
    constexpr Opcode kOpcodes[] = {Opcode::RcWriteFirst, Opcode::RcWriteMiddle, Opcode::RcWriteLast};
    for (const std::uint32_t n : order) {
      rig.deliver(rig.write(kOpcodes[n], rig.their(n), reth, cut(all, n * kMtu, n == 2 ? 64 : kMtu), n == 2));
      const bool first = memory.holds(0, cut(all, 0, kMtu));
      const bool middle = memory.holds(kMtu, cut(all, kMtu, kMtu));
      const Bytes empty(kMtu);
      EXPECT_TRUE(first || memory.holds(kMtu, empty));
      EXPECT_TRUE((first && middle) || memory.holds(2 * kMtu, cut(empty, 0, 64)));
    }
    rig.take_all();
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Ordering, o4_nothing_of_the_next_message_is_placed_before_all_of_this_one) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  const Bytes all = pattern(kMtu + 8);
  const wire::Reth reth{memory.va(), memory.rkey(), kMtu + 8};
  const Packet first = rig.write(Opcode::RcWriteFirst, rig.their(0), reth, cut(all, 0, kMtu), false);
  const Packet last = rig.write(Opcode::RcWriteLast, rig.their(1), reth, cut(all, kMtu, 8));
  const Packet next =
      rig.write(Opcode::RcWriteOnly, rig.their(2), {memory.va(512), memory.rkey(), 8}, cut(all, 0, 8));
  const auto next_placed = [&] { return memory.holds(512, cut(all, 0, 8)); };
  rig.deliver(next);
  EXPECT_FALSE(next_placed());
  rig.deliver(first);
  rig.deliver(next);
  EXPECT_FALSE(next_placed());
  rig.deliver(last);
  EXPECT_FALSE(next_placed());
  rig.deliver(next);
  EXPECT_TRUE(next_placed());
}

TEST(Ordering, o4_placed_write_is_not_placed_again) {
  // A ring's consumer may take the message as soon as its tail is there, and reuse the room.
  Rig rig;
  Memory& memory = rig.memory(1024);
  const Bytes all = pattern(kMtu + 8);
  const wire::Reth reth{memory.va(), memory.rkey(), kMtu + 8};
  const Packet first = rig.write(Opcode::RcWriteFirst, rig.their(0), reth, cut(all, 0, kMtu), false);
  const Packet last = rig.write(Opcode::RcWriteLast, rig.their(1), reth, cut(all, kMtu, 8));
  rig.deliver(first);
  rig.deliver(last);
  EXPECT_TRUE(memory.holds(0, all));
  memory.fill(std::byte{0x55});
  for (const Packet& packet : {first, last, last, first}) rig.deliver(packet);
  EXPECT_TRUE(memory.all(std::byte{0x55}));
}

TEST(Ordering, o5_queue_pairs_do_not_wait_for_each_other) {
  Given given;
  Device device(given);
  Memory& memory = device.memory(64);
  Line a(device, given);
  given.peer_qpn = Qpn{0x222};
  Line b(device, given);
  const Bytes payload = pattern(8);
  a.deliver(a.write(Opcode::RcWriteOnly, a.their(1), {memory.va(), memory.rkey(), 8}, payload));  // a gap
  a.expect_nak(NakCode::SequenceError, a.their(0));
  a.post(1, SendOpcode::Send, {memory.sge(0, 8)});
  a.expect(Opcode::RcSendOnly, a.our(0));
  a.deliver(a.rnr_nak(0, a.our(0)));  // and a long wait
  b.deliver(b.write(Opcode::RcWriteOnly, b.their(0), {memory.va(8), memory.rkey(), 8}, payload));
  b.expect_ack(b.their(0), 1);
  EXPECT_TRUE(memory.holds(8, payload));
  b.post(2, SendOpcode::Send, {memory.sge(0, 8)});
  b.expect(Opcode::RcSendOnly, b.our(0));
  b.deliver(b.ack(b.our(0), 1));
  b.expect_send(2);
}

TEST(Ordering, o5_failure_of_one_queue_pair_leaves_the_others_alone) {
  Given given;
  Device device(given);
  Memory& memory = device.memory(64);
  Line a(device, given);
  given.peer_qpn = Qpn{0x222};
  Line b(device, given);
  b.post(2, SendOpcode::RdmaWrite, {memory.sge(0, 8)}, 0, RKey{1});
  b.take_all();
  const Bytes payload = pattern(8);
  a.deliver(a.write(Opcode::RcWriteOnly, a.their(0), {memory.va(), RKey{1}, 8}, payload));
  EXPECT_EQ(a.state(), QueuePairState::Error);
  EXPECT_EQ(b.state(), QueuePairState::Rts);
  b.deliver(b.ack(b.our(0), 1));
  b.expect_send(2);
}

}  // namespace
}  // namespace verbena::conformance
