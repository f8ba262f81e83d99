// SPDX-License-Identifier: Apache-2.0
// Rights, keys and ranges at the responder.
#include <limits>

#include "bench.h"

namespace verbena::conformance {
namespace {

constexpr std::uint64_t kLastAddress = std::numeric_limits<std::uint64_t>::max();

enum class Kind { Write, WriteImmediate, Read, FetchAdd, CompareSwap };
constexpr Kind kKinds[] = {Kind::Write, Kind::WriteImmediate, Kind::Read, Kind::FetchAdd, Kind::CompareSwap};

bool is_atomic(Kind kind) { return kind == Kind::FetchAdd || kind == Kind::CompareSwap; }
bool is_write(Kind kind) { return kind == Kind::Write || kind == Kind::WriteImmediate; }
Access needed_by(Kind kind) {
  if (is_write(kind)) return Access::RemoteWrite;
  return kind == Kind::Read ? Access::RemoteRead : Access::RemoteAtomic;
}

const Bytes kEight = pattern(8);

// A request of eight bytes of that kind.
Packet request(const Line& line, Kind kind, Psn psn, std::uint64_t va, RKey rkey, std::uint32_t length = 8) {
  switch (kind) {
    case Kind::Write:
      return line.write(Opcode::RcWriteOnly, psn, {va, rkey, length}, cut(kEight, 0, length));
    case Kind::WriteImmediate:
      return line.write(Opcode::RcWriteOnlyWithImmediate, psn, {va, rkey, length}, cut(kEight, 0, length));
    case Kind::Read:
      return line.read(psn, {va, rkey, length});
    case Kind::FetchAdd:
      return line.fetch_add(psn, va, rkey, 1);
    case Kind::CompareSwap:
      break;
  }
  return line.compare_swap(psn, va, rkey, 0, 1);
}

void expect_refused(Rig& rig, NakCode code, std::uint32_t n = 0, int line = __builtin_LINE()) {
  rig.expect_nak(code, rig.their(n), line);
  rig.expect_silence(line);
  EXPECT_EQ(rig.state(), QueuePairState::Error) << line;
  rig.expect_event(
      code == NakCode::RemoteAccess ? AsyncEventType::QpAccessError : AsyncEventType::QpRequestError, line);
  rig.expect_no_event(line);
}

void expect_done(Rig& rig, int line = __builtin_LINE()) {
  const Sent sent = rig.take(line);
  EXPECT_EQ(sent.packet.aeth.syndrome, wire::kSyndromeAck) << line;
  EXPECT_EQ(rig.state(), QueuePairState::Rts) << line;
}

TEST(Responder, r060_each_operation_needs_its_right_on_the_region) {
  for (const Kind kind : kKinds)
    for (std::uint32_t bits = 0; bits <= 0xf; ++bits) {
      const auto access = static_cast<Access>(bits);
      const bool changes = (access & (Access::RemoteWrite | Access::RemoteAtomic)) != Access::None;
      if (changes && !includes(access, Access::LocalWrite)) continue;  // no such region
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64, access);
      rig.deliver(request(rig, kind, rig.their(0), memory.va(), memory.rkey()));
      if (includes(access, needed_by(kind))) {
        expect_done(rig);
        continue;
      }
      expect_refused(rig, NakCode::RemoteAccess);
      EXPECT_TRUE(memory.all(std::byte{0}));
    }
}

TEST(Responder, r060_each_operation_needs_its_right_on_the_queue_pair) {
  for (const Kind kind : kKinds)
    for (std::uint32_t bits = 0; bits <= 0xf; ++bits) {
      Given given;
      given.access = static_cast<Access>(bits);
      Rig rig(given);
      rig.post_receive(1);
      Memory& memory = rig.memory(64);
      rig.deliver(request(rig, kind, rig.their(0), memory.va(), memory.rkey()));
      if (includes(given.access, needed_by(kind))) {
        expect_done(rig);
        continue;
      }
      expect_refused(rig, NakCode::InvalidRequest);
      EXPECT_TRUE(memory.all(std::byte{0}));
    }
}

// Before any of it is sent, and behind the first of its trains.
TEST(Responder, r060_right_that_goes_before_a_read_was_answered_ends_it) {
  constexpr std::uint32_t kPackets = 100;
  for (const bool begun : {false, true}) {
    Rig rig;
    Memory& memory = rig.memory(kPackets * kMtu);
    const Bytes datagram = rig.emit(rig.read(rig.their(0), {memory.va(), memory.rkey(), kPackets * kMtu}));
    rig.nic.handle_datagram(rig.now, rig.path_in(), 0, datagram);  // nothing is collected yet
    roce::Train train{roce::TrainLimits{}};
    if (begun) {
      ASSERT_TRUE(rig.nic.poll_transmit(rig.now, soft::Nic::Acks::Owed, train));
    }
    ASSERT_LT(train.datagrams(), kPackets);
    QueuePairAttributes values;
    values.access = Access::LocalWrite | Access::RemoteWrite | Access::RemoteAtomic;
    ASSERT_TRUE(rig.modify(values, AttributeMask::Access));
    expect_refused(rig, NakCode::InvalidRequest, train.datagrams());
    EXPECT_EQ(rig.nic.counters().invalid_requests, 1u);
  }
}

TEST(Responder, r061_key_of_another_protection_domain_is_an_access_error) {
  for (const Kind kind : kKinds) {
    Rig rig;
    rig.post_receive(1);
    Memory& foreign = rig.memory_of(rig.nic.create_pd().value(), 64);
    rig.deliver(request(rig, kind, rig.their(0), foreign.va(), foreign.rkey()));
    expect_refused(rig, NakCode::RemoteAccess);
    EXPECT_TRUE(foreign.all(std::byte{0}));
  }
}

TEST(Responder, r061_unknown_keys_and_local_keys_are_access_errors) {
  for (const Kind kind : kKinds)
    for (const bool local : {true, false}) {
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64);
      const RKey key{local ? memory.lkey().value() : memory.rkey().value() ^ 0x10};
      rig.deliver(request(rig, kind, rig.their(0), memory.va(), key));
      expect_refused(rig, NakCode::RemoteAccess);
    }
}

TEST(Responder, r062_one_byte_outside_the_region_is_an_access_error) {
  for (const Kind kind : kKinds) {
    const std::uint64_t step = is_atomic(kind) ? 8 : 1;
    for (const bool front : {true, false}) {
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64);
      const std::uint64_t va = front ? memory.va() - step : memory.va(64 - 8 + step);
      rig.deliver(request(rig, kind, rig.their(0), va, memory.rkey()));
      expect_refused(rig, NakCode::RemoteAccess);
      EXPECT_TRUE(memory.all(std::byte{0}));
    }
    for (const std::uint64_t at : {0u, 56u}) {
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64);
      rig.deliver(request(rig, kind, rig.their(0), memory.va(at), memory.rkey()));
      expect_done(rig);
    }
  }
}

TEST(Responder, r062_atomic_that_hangs_over_the_end_is_an_access_error) {
  Rig rig;
  Memory& memory = rig.memory(20);
  rig.deliver(rig.fetch_add(rig.their(0), memory.va(16), memory.rkey(), 1));
  expect_refused(rig, NakCode::RemoteAccess);
}

TEST(Responder, r063_ranges_at_the_top_of_the_address_space_do_not_wrap) {
  for (const Kind kind : kKinds) {
    {  // the last eight bytes there are
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64, Access::All, kLastAddress - 63);
      rig.deliver(request(rig, kind, rig.their(0), kLastAddress - 7, memory.rkey()));
      expect_done(rig);
    }
    {  // nothing is there
      Rig rig;
      rig.post_receive(1);
      Memory& memory = rig.memory(64);
      rig.deliver(request(rig, kind, rig.their(0), kLastAddress - 7, memory.rkey()));
      expect_refused(rig, NakCode::RemoteAccess);
    }
    if (is_atomic(kind)) continue;
    for (const std::uint64_t va : {kLastAddress, kLastAddress - 6}) {  // over the top, with a region at both ends
      Rig rig;
      rig.post_receive(1);
      rig.memory(64, Access::All, 0);
      Memory& memory = rig.memory(64, Access::All, kLastAddress - 63);
      rig.deliver(request(rig, kind, rig.their(0), va, memory.rkey()));
      expect_refused(rig, NakCode::RemoteAccess);
      EXPECT_TRUE(memory.all(std::byte{0}));
    }
  }
}

TEST(Responder, r063_lengths_that_reach_round_the_address_space_are_access_errors) {
  for (const std::uint32_t length : {0x7fffffffu, 0x80000000u}) {
    Rig rig;
    Memory& memory = rig.memory(1024, Access::All, kLastAddress - 1023);
    const Bytes payload = pattern(kMtu);
    rig.deliver(rig.write(Opcode::RcWriteFirst, rig.their(0), {memory.va(), memory.rkey(), length}, payload));
    expect_refused(rig, NakCode::RemoteAccess);
    EXPECT_TRUE(memory.all(std::byte{0}));
  }
}

TEST(Responder, r064_nothing_is_checked_of_an_empty_write_or_read) {
  for (const Kind kind : {Kind::Write, Kind::WriteImmediate, Kind::Read}) {
    Rig rig;
    rig.post_receive(1);
    rig.deliver(request(rig, kind, rig.their(0), 0xdeadbeef, RKey{0}, 0));
    expect_done(rig);
    if (kind == Kind::WriteImmediate) {
      EXPECT_EQ(rig.expect_receive(1).byte_count, 0u);
    }
  }
}

TEST(Responder, r065_atomic_on_an_address_that_is_no_multiple_of_8_is_an_invalid_request) {
  for (std::uint64_t at = 1; at < 8; ++at)
    for (const Kind kind : {Kind::FetchAdd, Kind::CompareSwap}) {
      Rig rig;
      Memory& memory = rig.memory(64);
      rig.deliver(request(rig, kind, rig.their(0), memory.va(at), memory.rkey()));
      expect_refused(rig, NakCode::InvalidRequest);
      EXPECT_TRUE(memory.all(std::byte{0}));
    }
}

TEST(Responder, r065_misaligned_address_of_bytes_that_lie_aligned_is_an_invalid_request_too) {
  Rig rig;
  alignas(8) std::array<std::byte, 64> bytes{};
  const core::MemoryRegion region =
      rig.nic.register_memory(rig.pd, bytes.data(), 32, 0x1004, Access::All).value();
  rig.deliver(rig.fetch_add(rig.their(0), 0x1004, region.rkey, 1));
  expect_refused(rig, NakCode::InvalidRequest);
  EXPECT_EQ(bytes, (std::array<std::byte, 64>{}));
}

TEST(Responder, r065_aligned_address_of_bytes_that_lie_misaligned_is_not_touched) {
  Rig rig;
  alignas(8) std::array<std::byte, 64> bytes{};
  const core::MemoryRegion region =
      rig.nic.register_memory(rig.pd, bytes.data() + 4, 32, 0x1000, Access::All).value();
  rig.deliver(rig.fetch_add(rig.their(0), 0x1000, region.rkey, 1));
  expect_refused(rig, NakCode::InvalidRequest);
  EXPECT_EQ(bytes, (std::array<std::byte, 64>{}));
}

TEST(Responder, r066_key_of_a_deregistered_region_is_an_access_error) {
  for (const Kind kind : kKinds) {
    Rig rig;
    rig.post_receive(1);
    Memory& memory = rig.memory(64);
    ASSERT_TRUE(rig.nic.deregister_memory(memory.lkey()));
    rig.memory(64, Access::All, memory.va());  // the same addresses, another key
    rig.deliver(request(rig, kind, rig.their(0), memory.va(), memory.rkey()));
    expect_refused(rig, NakCode::RemoteAccess);
    EXPECT_TRUE(memory.all(std::byte{0}));
  }
}

TEST(Responder, r067_whole_range_of_a_write_is_checked_at_its_first_packet) {
  for (const std::uint32_t length : {1024u, 1025u}) {
    Rig rig;
    Memory& memory = rig.memory(1024);
    const Bytes payload = pattern(kMtu);
    rig.deliver(rig.write(Opcode::RcWriteFirst, rig.their(0), {memory.va(), memory.rkey(), length}, payload));
    if (length == 1024) {
      EXPECT_TRUE(memory.holds(0, payload));
      continue;
    }
    expect_refused(rig, NakCode::RemoteAccess);
    EXPECT_TRUE(memory.all(std::byte{0}));
  }
}

TEST(Responder, r067_region_that_goes_in_the_middle_of_a_write_takes_no_further_byte) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  const Bytes payload = pattern(kMtu);
  const wire::Reth reth{memory.va(), memory.rkey(), 3 * kMtu};
  rig.deliver(rig.write(Opcode::RcWriteFirst, rig.their(0), reth, payload, false));
  ASSERT_TRUE(rig.nic.deregister_memory(memory.lkey()));
  rig.deliver(rig.write(Opcode::RcWriteMiddle, rig.their(1), reth, payload, false));
  expect_refused(rig, NakCode::RemoteAccess, 1);
  EXPECT_TRUE(memory.holds(0, payload));
  EXPECT_TRUE(memory.holds(kMtu, Bytes(1024 - kMtu)));
}

TEST(Responder, r067_region_that_goes_before_its_read_was_answered_is_not_read) {
  Rig rig;
  Memory& memory = rig.memory(1024);
  const Bytes datagram = rig.emit(rig.read(rig.their(0), {memory.va(), memory.rkey(), 1024}));
  rig.nic.handle_datagram(rig.now, rig.path_in(), 0, datagram);  // nothing is collected yet
  ASSERT_TRUE(rig.nic.deregister_memory(memory.lkey()));
  expect_refused(rig, NakCode::RemoteAccess);
}

TEST(Responder, r068_no_byte_of_a_refused_packet_reaches_memory) {
  // Refused for what only the end of the packet or of the range shows.
  const Bytes payload = pattern(kMtu);
  for (int kind = 0; kind < 4; ++kind) {
    Rig rig;
    Memory& memory = rig.memory(kMtu - 1);
    Memory& receives = rig.memory(1024);
    rig.post_receive(1, {receives.sge(0, 100), {receives.va(100), 100, LKey{1}}, receives.sge(200, 100)});
    switch (kind) {
      case 0:
        rig.deliver(
            rig.write(Opcode::RcWriteOnly, rig.their(0), {memory.va(), memory.rkey(), kMtu}, payload));
        break;
      case 1:
        rig.deliver(
            rig.write(Opcode::RcWriteFirst, rig.their(0), {memory.va(), memory.rkey(), kMtu + 1}, payload));
        break;
      case 2:
        rig.deliver(rig.request(Opcode::RcSendOnly, rig.their(0), payload));
        break;  // bad key in the second piece
      default:
        rig.deliver(rig.write(Opcode::RcWriteOnly, rig.their(0), {memory.va(), memory.rkey(), 10}, payload));
        break;
    }
    EXPECT_EQ(rig.state(), QueuePairState::Error) << kind;
    EXPECT_TRUE(memory.all(std::byte{0})) << kind;
    EXPECT_TRUE(receives.all(std::byte{0})) << kind;
  }
}

}  // namespace
}  // namespace verbena::conformance
