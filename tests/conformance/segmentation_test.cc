// SPDX-License-Identifier: Apache-2.0
// How the requester cuts messages into packets.
#include <sys/mman.h>

#include <algorithm>

#include "bench.h"

namespace verbena::conformance {
namespace {

constexpr SendOpcode kWithPayload[] = {SendOpcode::Send, SendOpcode::SendWithImmediate, SendOpcode::RdmaWrite,
                                       SendOpcode::RdmaWriteWithImmediate};
constexpr std::uint64_t kHighRemote = 0x123456789abc0000;
constexpr RKey kHighRkey{0xfeedf00d};

bool is_write(SendOpcode op) {
  return op == SendOpcode::RdmaWrite || op == SendOpcode::RdmaWriteWithImmediate;
}
bool has_immediate(SendOpcode op) {
  return op == SendOpcode::SendWithImmediate || op == SendOpcode::RdmaWriteWithImmediate;
}

Opcode expected_opcode(SendOpcode op, bool first, bool last) {
  unsigned code = is_write(op) ? 0x06 : 0x00;
  const unsigned immediate = has_immediate(op) ? 1 : 0;
  if (first && last)
    code += 4 + immediate;
  else if (last)
    code += 2 + immediate;
  else if (!first)
    code += 1;
  return static_cast<Opcode>(code);
}

// Posts one message and gives back its packets.
std::vector<Sent> packets_of(Rig& rig, SendOpcode op, std::vector<ScatterGather> local,
                             SendFlags flags = SendFlags::Signaled) {
  rig.post(1, op, std::move(local), kHighRemote, kHighRkey, flags);
  return rig.take_all();
}

Bytes payload_of(const std::vector<Sent>& packets) {
  Bytes all;
  for (const Sent& sent : packets)
    all.insert(all.end(), sent.packet.payload.begin(), sent.packet.payload.end());
  return all;
}

TEST(Requester, q001_messages_are_cut_at_the_path_mtu) {
  for (const SendOpcode op : kWithPayload)
    for (const std::uint32_t length : {0u, 1u, 255u, 256u, 257u, 511u, 512u, 513u, 2560u, 2561u}) {
      Rig rig;
      Memory& memory = rig.memory(4096);
      memory.put(0, pattern(4096));
      const std::vector<Sent> packets = packets_of(rig, op, {memory.sge(0, length)});
      ASSERT_EQ(packets.size(), std::max(1u, (length + kMtu - 1) / kMtu));
      for (std::uint32_t n = 0; n < packets.size(); ++n) {
        const bool first = n == 0, last = n + 1 == packets.size();
        EXPECT_EQ(packets[n].opcode(), expected_opcode(op, first, last));
        EXPECT_EQ(packets[n].psn(), rig.our(n));
        EXPECT_EQ(packets[n].packet.payload.size(), last ? length - n * kMtu : kMtu);
        EXPECT_TRUE(wire::payload_obeys(packets[n].packet, kMtu));
      }
      EXPECT_EQ(payload_of(packets), pattern(length));
    }
}

TEST(Requester, q001_every_path_mtu_is_obeyed) {
  for (const std::uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
    Given given;
    given.path_mtu = mtu;
    Rig rig(given);
    Memory& memory = rig.memory(16384);
    memory.put(0, pattern(16384));
    const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 2 * mtu + 3)});
    ASSERT_EQ(packets.size(), 3u);
    EXPECT_EQ(packets[1].packet.payload.size(), mtu);
    EXPECT_EQ(packets[2].packet.payload.size(), 3u);
    EXPECT_EQ(payload_of(packets), pattern(2 * mtu + 3));
  }
}

TEST(Requester, q001_longest_message_is_begun_with_its_whole_length) {
  constexpr std::size_t kBytes = std::size_t{1} << 31;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  {
    Given given;
    given.path_mtu = 4096;
    Rig rig(given);
    const auto region = rig.nic.register_memory(rig.pd, mapped, kBytes, 0x10000, Access::None).value();
    const std::vector<Sent> packets =
        packets_of(rig, SendOpcode::RdmaWrite, {{0x10000, static_cast<std::uint32_t>(kBytes), region.lkey}});
    ASSERT_GE(packets.size(), 2u);
    EXPECT_EQ(packets[0].opcode(), Opcode::RcWriteFirst);
    EXPECT_EQ(packets[0].packet.reth.length, 0x80000000u);
    for (std::size_t n = 1; n < packets.size(); ++n) EXPECT_EQ(packets[n].opcode(), Opcode::RcWriteMiddle);
  }
  munmap(mapped, kBytes);
}

TEST(Requester, q001_read_asks_in_pieces_whose_numbers_are_those_of_the_answers) {
  Given given;
  given.transport.read_chunk_bytes = 1024;
  Rig rig(given);
  Memory& memory = rig.memory(8192);
  rig.post(1, SendOpcode::RdmaRead, {memory.sge(0, 2500)}, kHighRemote, kHighRkey);
  rig.post(2, SendOpcode::RdmaWrite, {memory.sge(0, 4)}, kHighRemote, kHighRkey);
  const std::vector<Sent> packets = rig.take_all();
  ASSERT_EQ(packets.size(), 4u);
  const std::uint32_t lengths[] = {1024, 1024, 452};
  for (std::uint32_t n = 0; n < 3; ++n) {
    EXPECT_EQ(packets[n].opcode(), Opcode::RcReadRequest);
    EXPECT_EQ(packets[n].psn(), rig.our(4 * n));
    EXPECT_EQ(packets[n].packet.reth, (wire::Reth{kHighRemote + 1024 * n, kHighRkey, lengths[n]}));
    EXPECT_TRUE(packets[n].packet.payload.empty());
  }
  EXPECT_EQ(packets[3].psn(), rig.our(10)) << "2500 bytes are answered by ten packets";
}

// The receive buffer that every user gets holds 192 packets, however short.
TEST(Requester, q001_no_read_asks_for_more_packets_than_fit_if_nobody_takes_them) {
  for (const auto& [mtu, bytes] : {std::pair{256u, 127u * 256}, {512u, 127u * 512}, {1024u, 127u * 1024},
                                   {2048u, 128u << 10}, {4096u, 128u << 10}}) {
    Given given;
    given.path_mtu = mtu;
    Rig rig(given);
    rig.post(1, SendOpcode::RdmaRead, {rig.memory(1 << 20).sge(0, 1 << 20)}, kHighRemote, kHighRkey);
    const std::vector<Sent> packets = rig.take_all();
    ASSERT_EQ(packets.size(), 1u) << mtu;
    EXPECT_EQ(packets[0].packet.reth, (wire::Reth{kHighRemote, kHighRkey, bytes})) << mtu;
  }
}

TEST(Requester, q001_atomics_take_one_packet_with_their_operands) {
  Rig rig;
  Memory& memory = rig.memory(64);
  const ScatterGather sge = memory.sge(0, 8);
  SendRequest request;
  request.local = {&sge, 1};
  request.remote_address = kHighRemote;
  request.rkey = kHighRkey;
  request.opcode = SendOpcode::CompareAndSwap;
  request.compare = 0x1111;
  request.swap_or_add = 0x2222;
  rig.post(request);
  Sent sent = rig.expect(Opcode::RcCompareSwap, rig.our(0));
  EXPECT_EQ(sent.packet.atomic, (wire::AtomicEth{kHighRemote, kHighRkey, 0x2222, 0x1111}));
  request.opcode = SendOpcode::FetchAndAdd;
  rig.post(request);
  sent = rig.expect(Opcode::RcFetchAdd, rig.our(1));
  EXPECT_EQ(sent.packet.atomic, (wire::AtomicEth{kHighRemote, kHighRkey, 0x2222, 0})) << "nothing to compare";
}

TEST(Requester, q001_numbers_cross_the_wrap) {
  Given given;
  given.ours = Psn{0xfffffe};
  Rig rig(given);
  Memory& memory = rig.memory(2048);
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 4 * kMtu)});
  ASSERT_EQ(packets.size(), 4u);
  const std::uint32_t numbers[] = {0xfffffe, 0xffffff, 0, 1};
  for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(packets[n].psn().value(), numbers[n]);
  rig.deliver(rig.ack(Psn{0xffffff}));
  rig.expect_no_completion();
  rig.deliver(rig.ack(Psn{1}));
  rig.expect_send(1);
}

TEST(Requester, q002_address_key_and_length_stand_in_the_first_packet_alone) {
  Rig rig;
  Memory& memory = rig.memory(2048);
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 1000)});
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[0].packet.reth, (wire::Reth{kHighRemote, kHighRkey, 1000}));
  for (std::size_t n = 1; n < 4; ++n) EXPECT_FALSE(packets[n].packet.info().has(wire::kReth));
  rig.post(2, SendOpcode::RdmaWrite, {memory.sge(0, 10)}, kHighRemote + 5, kHighRkey);
  EXPECT_EQ(rig.expect(Opcode::RcWriteOnly, rig.our(4)).packet.reth, (wire::Reth{kHighRemote + 5, kHighRkey, 10}));
}

TEST(Requester, q002_packets_sent_again_are_the_same_packets) {
  Rig rig;
  Memory& memory = rig.memory(2048);
  memory.put(0, pattern(2048));
  const std::vector<Sent> once = packets_of(rig, SendOpcode::RdmaWriteWithImmediate, {memory.sge(0, 1000)});
  rig.deliver(rig.nak(NakCode::SequenceError, rig.our(0)));
  const std::vector<Sent> again = rig.take_all();
  ASSERT_EQ(again.size(), once.size());
  for (std::size_t n = 0; n < once.size(); ++n) {
    EXPECT_EQ(again[n].opcode(), once[n].opcode());
    EXPECT_EQ(again[n].psn(), once[n].psn());
    EXPECT_EQ(again[n].packet.reth, once[n].packet.reth);
    EXPECT_EQ(again[n].packet.immediate, once[n].packet.immediate);
    EXPECT_TRUE(std::equal(again[n].packet.payload.begin(), again[n].packet.payload.end(),
                           once[n].packet.payload.begin(), once[n].packet.payload.end()));
  }
}

TEST(Requester, q003_ack_is_asked_for_at_the_end_and_now_and_then) {
  Rig rig;
  Memory& memory = rig.memory(64 * kMtu);
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 50 * kMtu)});
  ASSERT_EQ(packets.size(), 50u);
  EXPECT_TRUE(packets.back().packet.bth.ack_request);
  std::uint32_t since = 0, asked = 0;
  for (const Sent& sent : packets) {
    since = sent.packet.bth.ack_request ? 0 : since + 1;
    asked += sent.packet.bth.ack_request ? 1 : 0;
    EXPECT_LT(since, rig.given().transport.ack_request_interval);
  }
  EXPECT_LE(asked, 4u) << "and not all the time";
}

TEST(Requester, q003_ack_is_asked_for_by_each_message) {
  Rig rig;
  Memory& memory = rig.memory(64);
  for (const SendOpcode op : kWithPayload) {
    rig.post(1, op, {memory.sge(0, 8)}, kHighRemote, kHighRkey);
    EXPECT_TRUE(rig.take().packet.bth.ack_request);
  }
}

TEST(Requester, q003_ack_is_asked_for_when_the_window_closes) {
  Given given;
  given.transport.initial_window_packets = 5;
  Rig rig(given);
  Memory& memory = rig.memory(64 * kMtu);
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 50 * kMtu)});
  ASSERT_EQ(packets.size(), 5u);
  EXPECT_TRUE(packets.back().packet.bth.ack_request);
}

TEST(Requester, q003_ack_is_asked_for_when_the_bytes_of_the_window_are_out) {
  Given given;
  given.transport.max_window_bytes = 7 * kMtu + 1;
  Rig rig(given);
  Memory& memory = rig.memory(64 * kMtu);
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, {memory.sge(0, 50 * kMtu)});
  ASSERT_EQ(packets.size(), 7u);
  EXPECT_TRUE(packets.back().packet.bth.ack_request);
}

TEST(Requester, short_messages_are_held_back_by_their_number_and_long_ones_by_their_bytes) {
  Given given;
  given.transport.initial_window_packets = 20;
  given.transport.max_window_bytes = 4 * kMtu;
  Rig rig(given);
  Memory& memory = rig.memory(kMtu);
  for (std::uint64_t id = 0; id < 30; ++id)
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(0, 8)}, kHighRemote, kHighRkey);
  EXPECT_EQ(rig.take_all().size(), 20u);
  Rig other(given);
  Memory& long_one = other.memory(kMtu);
  for (std::uint64_t id = 0; id < 30; ++id)
    other.post(id, SendOpcode::RdmaWrite, {long_one.sge(0, kMtu)}, kHighRemote, kHighRkey);
  EXPECT_EQ(other.take_all().size(), 4u);
}

Given with_deep_queue() {
  Given given;
  given.capabilities.max_send_requests = 1024;
  given.cq_entries = 1024;
  given.transport.initial_window_packets = 1024;
  return given;
}
// The same between two addresses of one host.
Given on_loopback() {
  Given given = with_deep_queue();
  given.device = Gid::from_ipv4(127, 0, 0, 1);
  given.peer = Gid::from_ipv4(127, 0, 0, 2);
  return given;
}
// So many WRITEs; the device hears of them all at once.
void post_list(Rig& rig, Memory& memory, std::size_t messages, std::uint32_t length) {
  const ScatterGather segment = memory.sge(0, length);
  SendRequest request;
  request.opcode = SendOpcode::RdmaWrite;
  request.flags = SendFlags::None;
  request.local = {&segment, 1};
  request.remote_address = kHighRemote;
  request.rkey = kHighRkey;
  const std::vector<SendRequest> list(messages - 1, request);
  EXPECT_TRUE(rig.queues().post_send(list));
  rig.post(request);
}
// How many of a list leave before anything is acknowledged.
std::size_t sent_of_list(const Given& given, std::uint32_t length) {
  Rig rig(given);
  post_list(rig, rig.memory(kMtu), 1000, length);
  return rig.take_all().size();
}

TEST(Requester, trains_that_arrive_whole_may_hold_more_short_messages_than_a_receive_buffer_takes_by_itself) {
  const roce::Config config;
  EXPECT_EQ(sent_of_list(with_deep_queue(), 8), config.max_window_packets);
  EXPECT_EQ(sent_of_list(on_loopback(), 8), config.max_window_packets_in_trains);
}

TEST(Requester, messages_in_trains_of_their_own_are_held_back_by_their_number) {
  Rig rig(on_loopback());
  Memory& memory = rig.memory(kMtu);
  for (std::uint64_t id = 0; id < 1000; ++id)
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(0, 8)}, kHighRemote, kHighRkey);
  EXPECT_EQ(rig.take_all().size(), rig.given().transport.max_window_packets);
}

TEST(Requester, messages_in_trains_are_held_back_by_their_bytes) {
  const roce::Config config;
  EXPECT_EQ(sent_of_list(on_loopback(), kMtu), config.max_window_bytes_in_trains / kMtu);
}

// What is left of the window would make a short train, which costs as much as a full one.
TEST(Requester, a_train_of_a_long_message_begins_when_there_is_room_for_all_of_it) {
  constexpr std::uint32_t kFull = 62, kPackets = 1024;
  Given given = with_deep_queue();
  given.path_mtu = 1024;
  Rig rig(given);
  rig.post(1, SendOpcode::RdmaWrite, {rig.memory(1 << 20).sge(0, 1 << 20)}, kHighRemote, kHighRkey);
  std::vector<Sent> sent = rig.take_all();
  ASSERT_EQ(sent.size(), 2 + 3 * kFull) << "the first packet rides with one";
  rig.deliver(rig.ack(sent[kFull - 10].psn(), 0));
  EXPECT_TRUE(rig.take_all().empty());
  std::uint32_t all = 2 + 3 * kFull;
  for (Psn last = sent[kFull + 1].psn(); all < kPackets; last = last + kFull) {
    rig.deliver(rig.ack(last, 0));
    sent = rig.take_all();
    ASSERT_FALSE(sent.empty());
    all += static_cast<std::uint32_t>(sent.size());
    EXPECT_TRUE(sent.size() == kFull || all == kPackets) << sent.size();
    const auto asks = [](const Sent& packet) { return packet.packet.bth.ack_request; };
    EXPECT_TRUE(std::any_of(sent.begin(), sent.end(), asks)) << all;
  }
  EXPECT_EQ(all, kPackets);
}

TEST(Requester, trains_that_were_acknowledged_leave_room_for_others) {
  Rig rig(on_loopback());
  Memory& memory = rig.memory(kMtu);
  const std::size_t most = rig.given().transport.max_window_packets_in_trains;
  post_list(rig, memory, 1000, 8);
  const std::vector<Sent> first = rig.take_all();
  ASSERT_EQ(first.size(), most);
  EXPECT_TRUE(first.back().packet.bth.ack_request);
  rig.deliver(rig.ack(first[299].psn(), 300));
  EXPECT_EQ(rig.take_all().size(), 300u);
}

TEST(Requester, what_is_sent_again_from_trains_goes_by_the_window_of_loss) {
  Rig rig(on_loopback());
  Memory& memory = rig.memory(kMtu);
  post_list(rig, memory, 1000, 8);
  const std::vector<Sent> first = rig.take_all();
  rig.deliver(rig.nak(NakCode::SequenceError, first[0].psn()));
  const std::vector<Sent> again = rig.take_all();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].psn(), first[0].psn());
  EXPECT_LT(again.size(), first.size());
}

TEST(Requester, q004_solicited_event_is_asked_for_at_the_end_of_what_takes_a_receive) {
  for (const SendOpcode op : kWithPayload)
    for (const std::uint32_t length : {0u, 10u, 1000u})
      for (const bool solicited : {true, false}) {
        Rig rig;
        Memory& memory = rig.memory(2048);
        const SendFlags flags = solicited ? SendFlags::Signaled | SendFlags::Solicited : SendFlags::Signaled;
        const std::vector<Sent> packets = packets_of(rig, op, {memory.sge(0, length)}, flags);
        for (const Sent& sent : packets) {
          const bool last = &sent == &packets.back();
          EXPECT_EQ(sent.packet.bth.solicited, solicited && last && op != SendOpcode::RdmaWrite);
        }
      }
}

TEST(Requester, q004_read_and_atomics_ask_for_no_solicited_event) {
  Rig rig;
  Memory& memory = rig.memory(64);
  for (const SendOpcode op : {SendOpcode::RdmaRead, SendOpcode::CompareAndSwap, SendOpcode::FetchAndAdd}) {
    rig.post(1, op, {memory.sge(0, 8)}, kHighRemote, kHighRkey, SendFlags::Signaled | SendFlags::Solicited);
    EXPECT_FALSE(rig.take().packet.bth.solicited);
  }
}

TEST(Requester, q005_pad_is_zero_and_as_long_as_needed) {
  for (std::uint32_t length = 0; length <= 9; ++length) {
    Rig rig;
    Memory& memory = rig.memory(64);
    memory.fill(std::byte{0xff});  // what stands behind the payload must not leak into the pad
    const std::vector<Sent> packets = packets_of(rig, SendOpcode::Send, {memory.sge(0, length)});
    ASSERT_EQ(packets.size(), 1u);
    const std::uint32_t pad = (4 - length % 4) % 4;
    EXPECT_EQ(packets[0].packet.bth.pad_count, pad);
    ASSERT_EQ(packets[0].bytes.size(), 12 + length + pad + 4);
    for (std::uint32_t i = 0; i < pad; ++i) EXPECT_EQ(packets[0].bytes[12 + length + i], std::byte{0});
  }
}

// Payload is gathered from pieces of these sizes, taken from all over a region.
void gather(const std::vector<std::uint32_t>& sizes, std::uint32_t mtu) {
  Given given;
  given.path_mtu = mtu;
  Rig rig(given);
  Memory& memory = rig.memory(65536);
  memory.put(0, pattern(65536));
  std::vector<ScatterGather> local;
  Bytes expected;
  std::uint32_t at = 60000;
  for (const std::uint32_t size : sizes) {
    at -= size + 7;
    local.push_back(memory.sge(at, size));
    expected.insert(expected.end(), memory.bytes(at, size).begin(), memory.bytes(at, size).end());
  }
  const std::vector<Sent> packets = packets_of(rig, SendOpcode::RdmaWrite, local);
  EXPECT_EQ(payload_of(packets), expected);
  EXPECT_EQ(packets[0].packet.reth.length, expected.size());
}

TEST(Requester, q006_payload_is_gathered_over_all_segments) {
  gather({10, 20, 30, 40}, 256);
  gather({256, 256, 256, 256}, 256);
  gather({255, 1, 257, 511}, 256);
  gather({1, 1000, 1, 1000}, 256);
  gather({0, 0, 0, 0}, 256);
  gather({0, 300, 0, 300}, 256);
  gather({300, 0, 0, 0}, 256);
  gather({}, 256);
  gather({4096, 4096, 1, 4095}, 4096);  // long enough to be gathered by reference
  gather({3000, 0, 3000, 5000}, 4096);
}

}  // namespace
}  // namespace verbena::conformance
