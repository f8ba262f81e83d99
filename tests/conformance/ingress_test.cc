// SPDX-License-Identifier: Apache-2.0
// The way of a datagram before its queue pair: what is dropped without a word.
#include "bench.h"
#include "soft/wire/ip.h"

namespace verbena::conformance {
namespace {

using S = QueuePairState;
using wire::DropReason;

// A WRITE that would be executed, and the memory it would change.
struct Good {
  Rig rig;
  Memory& memory;
  Bytes payload = pattern(13);

  explicit Good(const Given& given = {}) : rig(given), memory(rig.memory(64)) {}
  Packet packet() {
    return rig.write(Opcode::RcWriteOnly, rig.their(0), {memory.va(), memory.rkey(), 13}, payload);
  }
  // Nothing happened: no answer, no byte, and the counter moved by one.
  void expect_dropped(DropReason reason, std::uint64_t times = 1, int line = __builtin_LINE()) {
    rig.expect_silence(line);
    EXPECT_TRUE(memory.all(std::byte{0})) << line;
    EXPECT_EQ(rig.dropped(reason), times) << wire::to_string(reason) << " line " << line;
    EXPECT_EQ(rig.all_dropped(), times) << line;
    rig.expect_no_event(line);
  }
  // The queue pair is unharmed: the same packet, unaltered, is executed.
  void expect_alive(int line = __builtin_LINE()) {
    rig.deliver(packet());
    rig.expect_ack(rig.their(0), 1, line);
    EXPECT_TRUE(memory.holds(0, payload)) << line;
  }
};

TEST(Ingress, r001_datagram_shorter_than_bth_and_icrc_is_dropped) {
  Good good;
  const Bytes whole = good.rig.emit(good.packet());
  for (std::size_t n = 0; n < 16; ++n) {
    Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    good.rig.deliver_raw(part);
    good.expect_dropped(DropReason::TooShort, n + 1);
  }
  good.expect_alive();
}

TEST(Ingress, r002_other_transport_versions_are_dropped) {
  Good good;
  for (unsigned version = 1; version < 16; ++version) {
    Bytes bytes = good.rig.emit(good.packet());
    bytes[1] = (bytes[1] & std::byte{0xf0}) | static_cast<std::byte>(version);
    Line::seal(good.rig.path_in(), bytes);
    good.rig.deliver_raw(bytes);
    good.expect_dropped(DropReason::BadVersion, version);
  }
  good.expect_alive();
}

TEST(Ingress, r003_unknown_opcodes_are_dropped_at_every_length) {
  Good good;
  std::uint64_t times = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (wire::opcode_info(static_cast<std::uint8_t>(opcode)).known) continue;
    for (const std::size_t size : {16u, 17u, 20u, 28u, 44u, 48u, 60u, 316u}) {
      Bytes bytes(size);
      const Bytes head = good.rig.emit(good.packet());
      std::copy(head.begin(), head.begin() + 12, bytes.begin());
      bytes[0] = static_cast<std::byte>(opcode);
      Line::seal(good.rig.path_in(), bytes);
      good.rig.deliver_raw(bytes);
      good.expect_dropped(DropReason::UnknownOpcode, ++times);
    }
  }
  EXPECT_GT(times, 100u);
  good.expect_alive();
}

TEST(Ingress, r003_reserved_opcodes_of_rc_are_known_to_be_unknown) {
  for (const unsigned opcode : {0x15u, 0x18u, 0x19u, 0x1au, 0x1bu, 0x1eu, 0x1fu, 0xffu})
    EXPECT_FALSE(wire::opcode_info(static_cast<std::uint8_t>(opcode)).known) << opcode;
}

TEST(Ingress, r004_headers_pad_and_icrc_that_do_not_fit_are_dropped) {
  Good good;
  std::uint64_t times = 0;
  const Bytes head = good.rig.emit(good.packet());
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<std::uint8_t>(opcode));
    if (!info.known) continue;
    for (std::size_t pad = 0; pad < 4; ++pad)
      for (std::size_t size = 16; size < info.header_bytes + pad + wire::kIcrcBytes; ++size) {
        Bytes bytes(size);
        std::copy(head.begin(), head.begin() + 12, bytes.begin());
        bytes[0] = static_cast<std::byte>(opcode);
        bytes[1] = static_cast<std::byte>(pad << 4);
        Line::seal(good.rig.path_in(), bytes);
        good.rig.deliver_raw(bytes);
        good.expect_dropped(DropReason::Truncated, ++times);
      }
  }
  EXPECT_GT(times, 1000u);
  good.expect_alive();
}

TEST(Ingress, r005_udp_length_that_is_not_the_ip_payload_length_is_dropped) {
  Good good;
  for (const bool v6 : {false, true}) {
    wire::Path path = good.rig.path_in();
    if (v6) {
      path.source = Gid::parse("2001:db8::1").value();
      path.destination = Gid::parse("2001:db8::2").value();
    }
    Bytes ip;
    wire::append_ip(path, 0, good.rig.emit(good.packet()), true, ip);
    wire::IpDatagram out;
    ASSERT_EQ(wire::parse_ip(ip, out), DropReason::None);
    const std::size_t udp_length_at = (v6 ? 40u : 20u) + 4;
    for (const int change : {-8, -1, 1, 4, 200}) {
      Bytes wrong = ip;
      const auto low = std::to_integer<unsigned>(wrong[udp_length_at + 1]);
      wrong[udp_length_at + 1] = static_cast<std::byte>(low + static_cast<unsigned>(change));
      EXPECT_NE(wire::parse_ip(wrong, out), DropReason::None) << change;
    }
  }
}

void flip(Bytes& bytes, std::size_t bit) { bytes[bit / 8] ^= static_cast<std::byte>(0x80u >> (bit % 8)); }

// Flips of byte 4 of the BTH are masked and accepted; every other bit of the datagram is covered.
void flip_every_bit(const Given& given, std::optional<std::uint16_t> identification) {
  Good good(given);
  const Bytes whole = good.rig.emit(good.packet());
  std::uint64_t times = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    if (bit / 8 == 4) continue;
    Bytes bytes = whole;
    flip(bytes, bit);
    good.rig.Device::deliver(good.rig.path_in(), bytes, identification);
    good.rig.expect_silence();
    ASSERT_EQ(good.rig.all_dropped(), ++times) << "bit " << bit;
    ASSERT_TRUE(good.memory.all(std::byte{0})) << "bit " << bit;
  }
  EXPECT_GT(good.rig.dropped(DropReason::BadIcrc), times / 2);
  good.expect_alive();
}

TEST(Ingress, r006_every_flipped_covered_bit_is_noticed_on_ipv4) { flip_every_bit({}, 0); }

TEST(Ingress, r006_every_flipped_covered_bit_is_noticed_on_ipv6) {
  Given given;
  given.device = Gid::parse("2001:db8::1").value();
  given.peer = Gid::parse("2001:db8::2").value();
  flip_every_bit(given, std::nullopt);
}

TEST(Ingress, r006_flips_in_masked_fields_are_accepted) {
  for (std::size_t bit = 32; bit < 40; ++bit) {
    Good good;
    Bytes bytes = good.rig.emit(good.packet());
    flip(bytes, bit);
    good.rig.deliver_raw(bytes);
    good.rig.expect_ack(good.rig.their(0), 1);
  }
  for (int field = 0; field < 2; ++field) {
    Good good;
    wire::Path path = good.rig.path_in();
    const Bytes bytes = good.rig.emit(good.packet());
    (field == 0 ? path.traffic_class : path.hop_limit) ^= 0x5a;
    good.rig.Device::deliver(path, bytes);
    good.rig.expect_ack(good.rig.their(0), 1);
  }
}

TEST(Ingress, r006_addresses_ports_and_identification_are_covered) {
  Good good;
  const Bytes bytes = good.rig.emit(good.packet());
  wire::Path path = good.rig.path_in();
  path.source_port ^= 1;
  good.rig.Device::deliver(path, bytes);
  good.expect_dropped(DropReason::BadIcrc, 1);
  good.rig.Device::deliver(good.rig.path_in(), bytes, 1);
  good.expect_dropped(DropReason::BadIcrc, 2);
  good.expect_alive();
}

TEST(Ingress, r007_queue_pair_numbers_that_are_nobodys_are_dropped) {
  Good good;
  const std::uint32_t unknown = (good.rig.qpn().value() ^ 0x15555) | 2;
  std::uint64_t times = 0;
  for (const std::uint32_t qpn : {0u, unknown, 0xffffffu}) {
    Packet packet = good.packet();
    packet.bth.destination = Qpn{qpn};
    good.rig.deliver(packet);
    good.expect_dropped(DropReason::BadQpn, ++times);
  }
  good.expect_alive();
}

TEST(Ingress, r007_destroyed_queue_pair_answers_no_more) {
  Given given;
  Device device(given);
  auto line = std::make_unique<Line>(device, given);
  Memory& memory = device.memory(16);
  const Bytes payload = pattern(8);
  const Bytes bytes =
      line->emit(line->write(Opcode::RcWriteOnly, line->their(0), {memory.va(), memory.rkey(), 8}, payload));
  const wire::Path path = line->path_in();
  ASSERT_TRUE(device.nic.destroy_qp(line->qpn()));
  device.deliver(path, bytes);
  device.pump(soft::Nic::Acks::Flush);
  EXPECT_TRUE(device.kept(given.peer_qpn).empty());
  EXPECT_EQ(device.dropped(DropReason::BadQpn), 1u);
  EXPECT_TRUE(memory.all(std::byte{0}));
}

TEST(Ingress, r008_opcodes_of_another_transport_are_dropped) {
  Good good;
  std::uint64_t times = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<std::uint8_t>(opcode));
    if (!info.known || info.transport == wire::Transport::Rc || info.transport == wire::Transport::Cnp)
      continue;
    const std::size_t full = info.payload == wire::PayloadRule::Full ? 256 : 0;
    const std::size_t size = info.payload == wire::PayloadRule::NonEmpty ? 4 : full;
    const Bytes payload(size);
    Packet packet = good.rig.request(static_cast<Opcode>(opcode), good.rig.their(0), payload);
    packet.aeth.syndrome = wire::kSyndromeAck;
    good.rig.deliver(packet);
    good.expect_dropped(DropReason::WrongTransport, ++times);
  }
  EXPECT_GT(times, 20u);
  good.expect_alive();
}

TEST(Ingress, r008_congestion_notification_is_neither_answered_nor_counted_as_a_request) {
  Good good;
  good.rig.deliver(good.rig.request(Opcode::Cnp, Psn{0}, {}, false));
  good.rig.expect_silence();
  good.expect_alive();
}

TEST(Ingress, r009_packets_from_or_to_another_address_are_dropped) {
  Good good;
  std::uint64_t times = 0;
  for (const bool source : {true, false}) {
    wire::Path path = good.rig.path_in();
    (source ? path.source : path.destination) = Gid::from_ipv4(192, 0, 2, 77);
    Bytes bytes = good.rig.emit(good.packet());
    Line::seal(path, bytes);
    good.rig.Device::deliver(path, bytes);
    good.expect_dropped(DropReason::WrongAddress, ++times);
  }
  good.expect_alive();
}

TEST(Ingress, r009_source_port_of_the_peer_is_free) {
  Good good;
  wire::Path path = good.rig.path_in();
  path.source_port = 4791;
  Bytes bytes = good.rig.emit(good.packet());
  Line::seal(path, bytes);
  good.rig.Device::deliver(path, bytes);
  good.rig.expect_ack(good.rig.their(0), 1);
}

TEST(Ingress, r010_partition_key_must_match_in_its_low_15_bits) {
  Good good;
  std::uint64_t times = 0;
  for (const int pkey : {0x0000, 0x8000, 0x8001, 0x7ffe, 0xfffe, 0xbfff}) {
    Packet packet = good.packet();
    packet.bth.pkey = static_cast<std::uint16_t>(pkey);
    good.rig.deliver(packet);
    good.expect_dropped(DropReason::BadPkey, ++times);
  }
  good.expect_alive();
}

TEST(Ingress, r010_limited_member_may_speak_to_a_full_one) {
  Good good;
  Packet packet = good.packet();
  packet.bth.pkey = 0x7fff;
  good.rig.deliver(packet);
  good.rig.expect_ack(good.rig.their(0), 1);
}

// Whether a device of that partition key answers a packet of the other.
bool answers(std::uint16_t own, std::uint16_t others) {
  soft::NicConfig config;
  config.address = Given{}.device;
  config.pkey = own;
  SeededRandom random(1);
  soft::Nic nic(config, random);
  soft::Nic::QpInit init;
  init.pd = nic.create_pd().value();
  init.send_cq = init.receive_cq = nic.create_cq(8).value();
  const auto made = nic.create_qp(init).value();
  QueuePairAttributes values;
  values.address.destination = Given{}.peer;
  values.path_mtu = 256;
  for (const QueuePairState state : {QueuePairState::Init, QueuePairState::Rtr}) {
    values.state = state;
    EXPECT_TRUE(nic.modify_qp(Instant{0}, made.qpn, values, required_mask(state)));
  }
  Packet packet;
  packet.bth.opcode = Opcode::RcWriteOnly;
  packet.bth.destination = made.qpn;
  packet.bth.ack_request = true;
  packet.bth.pkey = others;
  wire::Path path;
  path.source = Given{}.peer;
  path.destination = Given{}.device;
  Bytes bytes(wire::datagram_bytes(packet));
  wire::emit(packet, path, 0, bytes);
  nic.handle_datagram(Instant{0}, path, 0, bytes);
  roce::Train train(roce::TrainLimits{});
  const bool answered = nic.poll_transmit(Instant{0}, soft::Nic::Acks::Flush, train);
  EXPECT_EQ(nic.counters().dropped[static_cast<std::size_t>(DropReason::BadPkey)], answered ? 0u : 1u);
  return answered;
}

TEST(Ingress, r010_two_limited_members_may_not_speak) {
  EXPECT_FALSE(answers(0x7fff, 0x7fff));
  EXPECT_TRUE(answers(0x7fff, 0xffff));
}

TEST(Ingress, r010_key_without_a_number_is_nobodys) {
  EXPECT_FALSE(answers(0x8000, 0x8000));
  EXPECT_FALSE(answers(0x8000, 0x0000));
}

TEST(Ingress, r011_requests_are_heard_from_rtr_on_and_not_in_error) {
  for (const S state : {S::Reset, S::Init, S::Error}) {
    Given given;
    given.state = state;
    given.peer_qpn = Qpn{0xabc};
    Good good(given);
    good.rig.deliver(good.packet());
    good.rig.expect_silence();
    EXPECT_TRUE(good.memory.all(std::byte{0}));
    EXPECT_EQ(good.rig.dropped(DropReason::WrongState), 1u) << to_string(state);
  }
  for (const S state : {S::Rtr, S::Rts, S::Sqd}) {
    Given given;
    given.state = state;
    Good good(given);
    good.expect_alive();
  }
}

TEST(Ingress, r012_answers_are_dropped_where_nothing_can_have_been_asked) {
  for (const S state : {S::Reset, S::Init, S::Rtr, S::Error}) {
    Given given;
    given.state = state;
    Rig rig(given);
    rig.deliver(rig.ack(rig.our(0)));
    rig.deliver(rig.nak(NakCode::RemoteAccess, rig.our(0)));
    rig.deliver(rig.read_response(Opcode::RcReadResponseOnly, rig.our(0), pattern(4)));
    rig.deliver(rig.atomic_response(rig.our(0), 1));
    EXPECT_EQ(rig.dropped(DropReason::WrongState), 4u) << to_string(state);
    EXPECT_EQ(rig.state(), state);
    rig.expect_silence();
    rig.expect_no_event();
  }
}

TEST(Ingress, r013_reserved_bits_and_migration_state_are_ignored) {
  Good good;
  Packet packet = good.packet();
  packet.bth.reserved_byte4 = 0x3f;
  packet.bth.reserved_byte8 = 0x7f;
  packet.bth.migrated = false;
  good.rig.deliver(packet);
  good.rig.expect_ack(good.rig.their(0), 1);
  EXPECT_EQ(good.rig.all_dropped(), 0u);
}

}  // namespace
}  // namespace verbena::conformance
