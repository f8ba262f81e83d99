// SPDX-License-Identifier: Apache-2.0
// What the sockets put on the wire, read from a TUN device: every IP byte that the ICRC covers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "base/byte_order.h"
#include "soft/driver/udp/sockets.h"
#include "soft/driver/udp/test_sockets.h"
#include "soft/wire/ip.h"

namespace verbena::soft::udp {
namespace {

using testing::Bytes;
using testing::open_at;
using testing::TestNetwork;
using testing::TrainBuilder;

const Gid kHere4 = Gid::from_ipv4(10, 99, 0, 1);
const Gid kThere4 = Gid::from_ipv4(10, 99, 0, 2);
const Gid kHere6 = Gid::parse("fd00:99::1").value();
const Gid kThere6 = Gid::parse("fd00:99::2").value();

// A network device whose other end is this test: whole IP datagrams in and out. Gone when closed.
class WireImage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
    tun_ = Descriptor(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!tun_) GTEST_SKIP() << "needs /dev/net/tun";
    ifreq request{};
    std::strncpy(request.ifr_name, kName, IFNAMSIZ - 1);
    request.ifr_flags = static_cast<short>(kind() | IFF_NO_PI);
    if (::ioctl(tun_.get(), TUNSETIFF, &request) != 0) GTEST_SKIP() << "may not make a TUN device";
    ASSERT_TRUE(TestNetwork::set_mtu(kName, 9'000) && TestNetwork::set_up(kName));
    set_ipv4_address();
    has_ipv6_ = kind() == IFF_TUN && set_ipv6_address();
  }

  virtual int kind() const { return IFF_TUN; }

  void set_ipv4_address() {
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strncpy(request.ifr_name, kName, IFNAMSIZ - 1);
    const SocketAddress address(kHere4, 0, 0);
    std::memcpy(&request.ifr_addr, &address.v4, sizeof address.v4);
    ASSERT_EQ(::ioctl(socket.get(), SIOCSIFADDR, &request), 0);
    const SocketAddress mask(Gid::from_ipv4(255, 255, 255, 0), 0, 0);
    std::memcpy(&request.ifr_netmask, &mask.v4, sizeof mask.v4);
    ASSERT_EQ(::ioctl(socket.get(), SIOCSIFNETMASK, &request), 0);
  }
  bool set_ipv6_address() {
    const Descriptor socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    in6_ifreq request{};
    std::memcpy(&request.ifr6_addr, kHere6.bytes.data(), 16);
    request.ifr6_prefixlen = 64;
    request.ifr6_ifindex = static_cast<int>(::if_nametoindex(kName));
    if (!socket || ::ioctl(socket.get(), SIOCSIFADDR, &request) != 0) return false;
    // The kernel lets go of a new address only after its own look-round.
    const SocketAddress address(kHere6, 0, 0);
    for (int attempt = 0; attempt < 5'000; ++attempt) {
      if (::bind(socket.get(), &address.any, address.size) == 0) return true;
      ::poll(nullptr, 0, 1);
    }
    return false;
  }

  // The next frame that leaves, or nothing for a good while.
  Bytes capture_frame() {
    pollfd waiting{tun_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 5'000) <= 0) return {};
    Bytes bytes(65'536);
    const ssize_t got = ::read(tun_.get(), bytes.data(), bytes.size());
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  // The next `wanted` UDP datagrams that leave; the kernel's own neighbour and group messages are passed
  // over.
  std::vector<Bytes> capture(std::size_t wanted) {
    std::vector<Bytes> datagrams;
    while (datagrams.size() < wanted) {
      Bytes bytes = capture_frame();
      if (bytes.empty()) break;
      if (kind() == IFF_TAP) bytes.erase(bytes.begin(), bytes.begin() + kEthernetBytes);
      wire::IpDatagram datagram;
      if (wire::parse_ip(bytes, datagram) == wire::DropReason::None) datagrams.push_back(std::move(bytes));
    }
    return datagrams;
  }
  void inject(const Bytes& datagram) {
    ASSERT_EQ(::write(tun_.get(), datagram.data(), datagram.size()), static_cast<ssize_t>(datagram.size()));
  }

  static constexpr const char* kName = "vbtun0";
  static constexpr std::ptrdiff_t kEthernetBytes = 14;
  Descriptor tun_;
  bool has_ipv6_ = false;
};

Bytes image(wire::Path path, unsigned identification, const Bytes& payload, bool with_checksum = true) {
  Bytes bytes;
  wire::append_ip(path, static_cast<std::uint16_t>(identification), payload, with_checksum, bytes);
  return bytes;
}

TEST_F(WireImage, ipv4_datagrams_carry_identification_zero_and_do_not_fragment) {
  SocketSet sockets = open_at(kHere4);
  EXPECT_EQ(sockets.path_mtu(), 4'096u);
  TrainBuilder builder(sockets);
  for (unsigned source = 0; source < sockets.sources(); ++source) builder.add(kThere4, 300, 300, source);
  builder.add(kThere4, 4'148, 4'148, 3).path.traffic_class = 106;
  builder.add(kThere4, 21, 21, 3).path.hop_limit = 3;
  ASSERT_EQ(sockets.send(builder.trains()), builder.trains().size());
  const auto captured = capture(builder.trains().size());
  ASSERT_EQ(captured.size(), builder.trains().size());
  for (std::size_t i = 0; i < captured.size(); ++i) {
    EXPECT_EQ(captured[i], image(builder.trains()[i].path, 0, builder.datagram(i, 0)));
    wire::IpDatagram datagram;
    ASSERT_EQ(wire::parse_ip(captured[i], datagram), wire::DropReason::None);
    EXPECT_EQ(datagram.identification, 0);
    EXPECT_TRUE(datagram.dont_fragment);
  }
}

TEST_F(WireImage, ipv4_train_counts_its_identification_up_from_zero) {
  SocketSet sockets = open_at(kHere4);
  ASSERT_GT(sockets.max_segments(), 1u);
  TrainBuilder builder(sockets);
  builder.add(kThere4, 14 * 4'124 + 16, 4'124);
  builder.add(kThere4, 2'500, 1'000).path.traffic_class = 2;
  ASSERT_EQ(sockets.send(builder.trains()), 2u);
  const auto captured = capture(18);
  ASSERT_EQ(captured.size(), 18u);
  for (unsigned i = 0; i < 15; ++i)
    EXPECT_EQ(captured[i], image(builder.trains()[0].path, i, builder.datagram(0, i))) << "datagram " << i;
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_EQ(captured[15 + i], image(builder.trains()[1].path, i, builder.datagram(1, i)))
        << "datagram " << i;
}

// Of datagrams; each must be what the ICRC says.
std::vector<unsigned> identifications_of(const std::vector<Bytes>& captured) {
  std::vector<unsigned> all;
  for (const Bytes& bytes : captured) {
    wire::IpDatagram datagram;
    EXPECT_EQ(wire::parse_ip(bytes, datagram), wire::DropReason::None);
    wire::IcrcVerifier verifier;
    EXPECT_EQ(verifier.check(datagram.path, datagram.identification, datagram.payload, nullptr),
              wire::IcrcVerdict::Exact);
    all.push_back(datagram.identification);
  }
  return all;
}
OutTrain& add_with_icrc(TrainBuilder& builder, std::size_t bytes, std::size_t segment, const Gid& to = kThere4,
                        unsigned source = 0) {
  OutTrain& out = builder.add(to, bytes, segment, source);
  std::span<std::byte> rest{static_cast<std::byte*>(out.pieces[0].iov_base), bytes};
  for (std::uint16_t i = 0; !rest.empty(); ++i) {
    const std::span<std::byte> datagram = rest.first(std::min(segment, rest.size()));
    const std::size_t covered = datagram.size() - wire::kIcrcBytes;
    wire::store_icrc(&datagram[covered], wire::icrc_of(out.path, i, datagram.first(covered)));
    rest = rest.subspan(datagram.size());
  }
  return out;
}

constexpr std::size_t kToConnect = 100;  // more than it takes

std::size_t send_one_by_one(SocketSet& sockets, TrainBuilder& builder) {
  std::size_t sent = 0;
  for (OutTrain& train : builder.trains()) sent += sockets.send({&train, 1});
  return sent;
}

TEST_F(WireImage, ipv4_small_trains_to_one_peer_count_on_and_their_icrcs_say_so) {
  SocketSet sockets = open_at(kHere4);
  TrainBuilder builder(sockets);
  for (unsigned i = 0; i < kToConnect; ++i) add_with_icrc(builder, 16 + i, 16 + i);
  ASSERT_EQ(send_one_by_one(sockets, builder), kToConnect);
  const std::vector<unsigned> seen = identifications_of(capture(kToConnect));
  ASSERT_EQ(seen.size(), kToConnect);
  const auto first = std::find_if(seen.begin(), seen.end(), [](unsigned i) { return i != 0; });
  ASSERT_LT(first, seen.end() - 2) << "none left by a connected socket";
  for (auto next = first + 1; next != seen.end(); ++next) EXPECT_EQ(*next, (next[-1] + 1) & 0xffff);
  const unsigned last = seen.back();

  TrainBuilder two(sockets);  // a message and an acknowledgement
  add_with_icrc(two, 28 + 20, 28);
  add_with_icrc(two, 28, 28);
  ASSERT_EQ(send_one_by_one(sockets, two), 2u);
  const std::vector<unsigned> expected{(last + 1) & 0xffff, (last + 2) & 0xffff, (last + 2) & 0xffff};
  EXPECT_EQ(identifications_of(capture(3)), expected);

  TrainBuilder large(sockets);  // and what is small behind it
  add_with_icrc(large, 8'000, 1'000);
  add_with_icrc(large, 60, 60);
  ASSERT_EQ(send_one_by_one(sockets, large), 2u);
  EXPECT_EQ(identifications_of(capture(9)), (std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7, 0}));
}

TEST_F(WireImage, ipv4_small_trains_to_one_peer_after_another_count_on_for_each) {
  SocketSet sockets = open_at(kHere4);
  std::uint64_t before = 0;
  for (const Gid& peer : {kThere4, Gid::from_ipv4(10, 99, 0, 3), kThere4}) {
    TrainBuilder builder(sockets);
    for (unsigned i = 0; i < kToConnect; ++i) add_with_icrc(builder, 60, 60, peer);
    ASSERT_EQ(send_one_by_one(sockets, builder), kToConnect);
    EXPECT_EQ(identifications_of(capture(kToConnect)).size(), kToConnect);
    const std::uint64_t connected = sockets.counters().sent_connected;
    EXPECT_GT(connected, before + 20);
    before = connected;
  }
}

TEST_F(WireImage, ipv4_small_trains_of_two_ports_that_leave_together_count_on_for_each) {
  SocketSet sockets = open_at(kHere4);
  const auto send_by = [&](std::size_t many) {
    TrainBuilder builder(sockets);
    for (unsigned i = 0; i < 2 * kToConnect; ++i) add_with_icrc(builder, 28, 28, kThere4, i % 2);
    for (std::span<OutTrain> left{builder.trains()}; !left.empty(); left = left.subspan(many))
      ASSERT_EQ(sockets.send(left.first(many)), many);
    EXPECT_EQ(identifications_of(capture(2 * kToConnect)).size(), 2 * kToConnect);
  };
  send_by(2);
  const std::uint64_t connected = sockets.counters().sent_connected;
  EXPECT_GT(connected, kToConnect / 2);
  EXPECT_EQ(connected % 2, 0u);
  send_by(4);  // two of each
  EXPECT_EQ(sockets.counters().sent_connected, connected);
}

TEST_F(WireImage, ipv4_port_that_is_soon_left_again_is_connected_later_each_time) {
  SocketSet sockets = open_at(kHere4);
  std::vector<std::uint64_t> connected;
  for (int rounds = 0; rounds < 4; ++rounds) {
    TrainBuilder builder(sockets);
    for (unsigned i = 0; i < 3 * kToConnect; ++i) add_with_icrc(builder, 28, 28);
    ASSERT_EQ(send_one_by_one(sockets, builder), 3 * kToConnect);
    TrainBuilder two(sockets);
    for (unsigned i = 0; i < 2; ++i) add_with_icrc(two, 28, 28);
    ASSERT_EQ(sockets.send(two.trains()), 2u);
    EXPECT_EQ(identifications_of(capture(3 * kToConnect + 2)).size(), 3 * kToConnect + 2);
    connected.push_back(sockets.counters().sent_connected);
  }
  EXPECT_GT(connected[0], 2 * kToConnect);
  EXPECT_LT(connected[1] - connected[0], kToConnect);
  EXPECT_EQ(connected[3], connected[1]);
}

TEST_F(WireImage, identifications_are_what_trains_say_while_ip_fields_are_reported) {
  SocketOptions options;
  options.report_ip_fields = true;
  SocketSet sockets = open_at(kHere4, options);
  TrainBuilder builder(sockets);
  for (unsigned i = 0; i < kToConnect; ++i) add_with_icrc(builder, 16 + i, 16 + i);
  ASSERT_EQ(send_one_by_one(sockets, builder), kToConnect);
  EXPECT_EQ(identifications_of(capture(kToConnect)), std::vector<unsigned>(kToConnect, 0));
  EXPECT_EQ(sockets.counters().sent_connected, 0u);
}

TEST_F(WireImage, what_options_do_not_say_leaves_by_no_connected_socket) {
  SocketSet sockets = open_at(kHere4);
  TrainBuilder builder(sockets);
  for (unsigned i = 0; i < kToConnect; ++i) add_with_icrc(builder, 16 + i, 16 + i).path.traffic_class = 4;
  ASSERT_EQ(send_one_by_one(sockets, builder), kToConnect);
  for (const Bytes& bytes : capture(kToConnect)) {
    wire::IpDatagram datagram;
    ASSERT_EQ(wire::parse_ip(bytes, datagram), wire::DropReason::None);
    EXPECT_EQ(datagram.path.traffic_class, 4);
    EXPECT_EQ(datagram.identification, 0);
  }
}

TEST_F(WireImage, ipv6_train_is_as_we_would_write_it) {
  if (!has_ipv6_) GTEST_SKIP() << "needs IPv6";
  SocketSet sockets = open_at(kHere6);
  TrainBuilder builder(sockets);
  auto& labelled = builder.add(kThere6, 14 * 4'124 + 16, 4'124).path;
  labelled.traffic_class = 0xb9;
  labelled.flow_label = 0x12345;
  ASSERT_EQ(sockets.send(builder.trains()), 1u);
  const auto captured = capture(15);
  ASSERT_EQ(captured.size(), 15u);
  for (unsigned i = 0; i < 15; ++i)
    EXPECT_EQ(captured[i], image(builder.trains()[0].path, 0, builder.datagram(0, i))) << "datagram " << i;
}

TEST_F(WireImage, receives_what_a_peer_sends_with_any_identification_and_no_checksum) {
  SocketSet sockets = open_at(kHere4);
  sockets.report_ip_fields(true);
  wire::Path path;
  path.source = kThere4;
  path.destination = kHere4;
  path.source_port = 58'995;
  path.traffic_class = 0x6b;
  path.hop_limit = 9;
  inject(image(path, 0x1234, testing::pattern(200, 1), false));
  inject(image(path, 0xffff, testing::pattern(300, 2), true));
  const auto arrivals = testing::collect(sockets, 2);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].bytes, testing::pattern(200, 1));
  EXPECT_EQ(arrivals[0].path, path);
  EXPECT_EQ(arrivals[1].bytes, testing::pattern(300, 2));
}

TEST_F(WireImage, receives_ipv6_without_checksum) {
  if (!has_ipv6_) GTEST_SKIP() << "needs IPv6";
  SocketSet sockets = open_at(kHere6);
  sockets.report_ip_fields(true);
  wire::Path path;
  path.source = kThere6;
  path.destination = kHere6;
  path.source_port = 50'000;
  path.traffic_class = 0x6b;
  inject(image(path, 0, testing::pattern(200, 1), false));
  const auto arrivals = testing::collect(sockets, 1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].bytes, testing::pattern(200, 1));
  EXPECT_EQ(arrivals[0].path, path);
}

std::uint16_t internet_checksum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += load_be16(&bytes[i]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

// ICMP "fragmentation needed" from `router` about a datagram of ours.
Bytes fragmentation_needed(const Gid& router, const Bytes& about, std::uint16_t mtu) {
  wire::Path outer;
  outer.source = router;
  outer.destination = kHere4;
  Bytes bytes = image(outer, 0, Bytes(28), false);
  store_u8(&bytes[9], 1);
  store_be16(&bytes[10], 0);
  store_be16(&bytes[10], internet_checksum({bytes.data(), 20}));
  std::byte* icmp = &bytes[20];
  std::memset(icmp, 0, 8);
  store_u8(icmp, 3);
  store_u8(icmp + 1, 4);
  store_be16(icmp + 6, mtu);
  std::memcpy(icmp + 8, about.data(), 28);
  store_be16(icmp + 2, internet_checksum({icmp, 36}));
  return bytes;
}

TEST_F(WireImage, router_with_a_smaller_mtu_is_told_by_peer_and_costs_nobody_a_train) {
  SocketSet sockets = open_at(kHere4);
  TrainBuilder first(sockets);
  first.add(kThere4, 4'148, 4'148);
  ASSERT_EQ(sockets.send(first.trains()), 1u);
  const auto left = capture(1);
  ASSERT_EQ(left.size(), 1u);
  inject(fragmentation_needed(Gid::from_ipv4(10, 99, 0, 7), left[0], 1'400));
  pollfd waiting{sockets.send_fd(0), 0, 0};
  ASSERT_EQ(::poll(&waiting, 1, 5'000), 1);

  TrainBuilder second(sockets);
  second.add(Gid::from_ipv4(10, 99, 0, 3), 4'148, 4'148);
  second.add(kThere4, 4'148, 4'148);  // the path MTU is the peer's affair: nothing is cut or held back
  ASSERT_EQ(sockets.send(second.trains()), 2u);
  EXPECT_EQ(capture(2).size(), 2u);
  const auto error = sockets.poll_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->peer, kThere4);
  EXPECT_EQ(error->error, EMSGSIZE);
  EXPECT_EQ(error->mtu, 1'400u);
  EXPECT_TRUE(error->from_network);
  EXPECT_EQ(sockets.counters().dropped_datagrams, 0u);
}

// An Ethernet on which a peer's address must first be asked for. Until the answer datagrams wait in the
// kernel, on the account of the socket that sent them: a socket can be filled.
class SilentNeighbour : public WireImage {
 protected:
  int kind() const override { return IFF_TAP; }

  // Answers the kernel's question for `peer`.
  void answer(const Gid& peer) {
    for (Bytes frame = capture_frame(); !frame.empty(); frame = capture_frame()) {
      const bool is_question =
          load_be16(&frame[12]) == 0x0806 && std::memcmp(&frame[38], &peer.bytes[12], 4) == 0;
      if (!is_question) continue;
      constexpr std::array<std::uint8_t, 6> kPeerMac{2, 0, 0, 0, 0, 9};
      Bytes reply(frame.begin(), frame.begin() + 42);
      std::memcpy(&reply[0], &frame[6], 6);
      std::memcpy(&reply[6], kPeerMac.data(), 6);
      store_be16(&reply[20], 2);
      std::memcpy(&reply[22], kPeerMac.data(), 6);
      std::memcpy(&reply[28], &peer.bytes[12], 4);
      std::memcpy(&reply[32], &frame[22], 10);
      return inject(reply);
    }
    FAIL() << "nobody asked for " << peer.to_string();
  }

  // Trains to a peer that answers late; every datagram must leave once and in order.
  void fill_and_release(SocketSet& sockets, const Gid& peer, bool whole_trains) {
    TrainBuilder builder(sockets);
    for (unsigned i = 0; i < 40; ++i) builder.add(peer, 14 * 1'000 + 1 + i, 1'000);
    const unsigned finished = sockets.send(builder.trains());
    EXPECT_LT(finished, 40u);
    EXPECT_EQ(sockets.send(builder.trains()), finished);  // still full
    const std::uint64_t left = sockets.counters().sent_datagrams;
    answer(peer);
    std::vector<Bytes> captured = capture(left);
    ASSERT_EQ(captured.size(), left);
    for (int i = 0; i < 5'000 && sockets.send(builder.trains()) < 40; ++i) ::poll(nullptr, 0, 1);
    for (Bytes& bytes : capture(40 * 15 - left)) captured.push_back(std::move(bytes));
    ASSERT_EQ(captured.size(), 40u * 15);
    for (unsigned i = 0; i < captured.size(); ++i) {
      wire::IpDatagram datagram;
      ASSERT_EQ(wire::parse_ip(captured[i], datagram), wire::DropReason::None);
      EXPECT_EQ(Bytes(datagram.payload.begin(), datagram.payload.end()), builder.datagram(i / 15, i % 15));
      EXPECT_EQ(datagram.identification, whole_trains ? i % 15 : 0);
    }
    EXPECT_EQ(sockets.counters().sent_trains, 40u);
    EXPECT_EQ(sockets.counters().sent_datagrams, 40u * 15);
    EXPECT_EQ(sockets.counters().dropped_datagrams, 0u);
  }
};

TEST_F(SilentNeighbour, full_socket_keeps_the_rest_for_a_later_send_and_repeats_nothing) {
  SocketOptions options;
  options.send_buffer_bytes = 32'768;
  SocketSet sockets = open_at(kHere4, options);
  fill_and_release(sockets, kThere4, true);
}

TEST_F(SilentNeighbour, train_taken_apart_goes_on_where_a_full_socket_stopped_it) {
  SocketOptions options;
  options.send_buffer_bytes = 32'768;
  SocketSet sockets = open_at(kHere4, options);
  const int one = 1;
  ASSERT_EQ(::setsockopt(sockets.send_fd(0), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one), 0);
  fill_and_release(sockets, kThere4, false);
}

TEST_F(SilentNeighbour, full_socket_does_not_hold_up_another) {
  SocketOptions options;
  options.send_buffer_bytes = 4'608;
  SocketSet sockets = open_at(kHere4, options);
  TrainBuilder builder(sockets);
  for (unsigned i = 0; i < 20; ++i) builder.add(kThere4, 14'000, 1'000, 1);
  OutTrain& last = builder.add(kThere4, 14'000, 1'000, 2);
  EXPECT_LT(sockets.send(builder.trains()), 21u);
  EXPECT_TRUE(last.finished);
}

}  // namespace
}  // namespace verbena::soft::udp
