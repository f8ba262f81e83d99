// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <set>

#include "soft/driver/test_other_network.h"
#include "soft/driver/udp/sending_socket.h"
#include "soft/driver/udp/test_sockets.h"

namespace verbena::soft::udp {
namespace {

using testing::Arrival;
using testing::collect;
using ::testing::HasSubstr;
using testing::open_automatic;
using testing::TrainBuilder;

const Gid kIpv6Loopback = Gid::parse("::1").value();

// Sends what the builder holds and expects every datagram of it, in order, at `to`.
void expect_delivery(SocketSet& from, SocketSet& to, TrainBuilder& builder) {
  std::size_t expected = 0;
  for (const OutTrain& train : builder.trains()) expected += train.datagrams;
  ASSERT_EQ(from.send(builder.trains()), builder.trains().size());
  const std::vector<Arrival> arrivals = collect(to, expected);
  ASSERT_EQ(arrivals.size(), expected);
  std::size_t at = 0;
  for (std::size_t train = 0; train < builder.trains().size(); ++train) {
    const OutTrain& sent = builder.trains()[train];
    EXPECT_TRUE(sent.finished);
    EXPECT_EQ(sent.sent, sent.datagrams);
    for (unsigned index = 0; index < sent.datagrams; ++index, ++at) {
      EXPECT_EQ(arrivals[at].bytes, builder.datagram(train, index))
          << "train " << train << " datagram " << index;
      EXPECT_EQ(arrivals[at].path, sent.path);
    }
  }
  EXPECT_TRUE(testing::is_quiet(to));
}

TEST(SocketSet, carries_single_datagrams_with_their_path) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  for (const std::size_t size : {1u, 16u, 1'000u, 4'148u}) builder.add(to.address(), size, size);
  expect_delivery(from, to, builder);
  EXPECT_EQ(from.counters().sent_datagrams, 4u);
  EXPECT_EQ(from.counters().send_calls, 1u);
  EXPECT_EQ(to.counters().received_datagrams, 4u);
  EXPECT_EQ(to.counters().received_bytes, from.counters().sent_bytes);
}

TEST(SocketSet, carries_traffic_class_and_hop_limit) {
  SocketOptions telling;
  telling.report_ip_fields = true;
  SocketSet from = open_automatic();
  SocketSet to = open_automatic(telling);
  TrainBuilder builder(from);
  builder.add(to.address(), 100, 100).path.traffic_class = 106;
  builder.add(to.address(), 100, 100).path.hop_limit = 17;
  OutTrain& both = builder.add(to.address(), 5'000, 1'000);
  both.path.traffic_class = 2;
  both.path.hop_limit = 255;
  expect_delivery(from, to, builder);
}

TEST(SocketSet, tells_traffic_class_and_hop_limit_while_asked_to) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  for (int i = 0; i < 3; ++i) {
    OutTrain& train = builder.add(to.address(), 100, 100);
    train.path.hop_limit = 17;
    train.path.traffic_class = 8;
  }
  std::vector<unsigned> told;
  for (std::size_t i = 0; i < 3; ++i) {
    to.report_ip_fields(i == 1);
    ASSERT_EQ(from.send({&builder.trains()[i], 1}), 1u);
    for (const Arrival& arrival : collect(to, 1)) {
      told.push_back(arrival.path.hop_limit);
      told.push_back(arrival.path.traffic_class);
    }
  }
  EXPECT_THAT(told, ::testing::ElementsAre(64u, 0u, 17u, 8u, 64u, 0u));
}

TEST(SocketSet, splits_a_train_with_a_shorter_last_datagram) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  ASSERT_GE(from.max_segments(), 15u);
  TrainBuilder builder(from);
  builder.add(to.address(), 14 * 4'124 + 16, 4'124);
  expect_delivery(from, to, builder);
  EXPECT_EQ(to.counters().received_trains, 1u);
  EXPECT_EQ(to.counters().received_datagrams, 15u);
}

TEST(SocketSet, takes_a_train_of_as_many_segments_as_it_says) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  builder.add(to.address(), from.max_segments() * 272, 272);
  expect_delivery(from, to, builder);
  EXPECT_EQ(from.counters().gso_refused, 0u);
}

TEST(SocketSet, gathers_pieces_that_do_not_end_at_datagram_boundaries) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  builder.add(to.address(), 10'000, 1'052, 0, 700);
  builder.add(to.address(), 10'000, 1'052, 0, 1'052);
  builder.add(to.address(), 3'000, 1'000, 0, 3);
  expect_delivery(from, to, builder);
}

TEST(SocketSet, hands_out_long_trains_singly_and_short_ones_together) {
  for (const std::size_t bytes : {std::size_t{20'000}, std::size_t{100}}) {
    SocketSet from = open_automatic();
    SocketSet to = open_automatic();
    TrainBuilder builder(from);
    for (int i = 0; i < 5; ++i) builder.add(to.address(), bytes, 1'000);
    ASSERT_EQ(from.send(builder.trains()), builder.trains().size());
    std::size_t got = 0, most = 0;
    for (int looks = 0; got < builder.trains().size() && looks < 100'000; ++looks) {
      const std::size_t at_once = to.receive().size();
      most = std::max(most, at_once);
      got += at_once;
    }
    EXPECT_EQ(got, builder.trains().size());
    EXPECT_EQ(most > 1, bytes == 100) << most;
  }
}

TEST(SocketSet, delivers_datagrams_one_by_one_when_the_receiver_does_not_join) {
  SocketOptions plain;
  plain.coalescing = false;
  SocketSet from = open_automatic();
  SocketSet to = open_automatic(plain);
  TrainBuilder builder(from);
  builder.add(to.address(), 12'345, 1'000);
  expect_delivery(from, to, builder);
  EXPECT_EQ(to.counters().received_trains, 13u);
}

TEST(SocketSet, keeps_order_within_each_source_and_uses_one_call_for_each) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 40; ++i) builder.add(to.address(), 2'500, 1'000, i % from.sources());
  ASSERT_EQ(from.send(builder.trains()), 40u);
  EXPECT_EQ(from.counters().send_calls, from.sources());
  std::vector<std::vector<Arrival>> by_source(from.sources());
  for (const Arrival& arrival : collect(to, 120))
    for (unsigned source = 0; source < from.sources(); ++source)
      if (arrival.path.source_port == from.source_port(source)) by_source[source].push_back(arrival);
  for (unsigned source = 0; source < from.sources(); ++source) {
    ASSERT_EQ(by_source[source].size(), 30u);
    for (unsigned i = 0; i < 30; ++i)
      EXPECT_EQ(by_source[source][i].bytes, builder.datagram(source + i / 3 * from.sources(), i % 3));
  }
}

TEST(SocketSet, sends_more_trains_than_one_call_holds) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 150; ++i) builder.add(to.address(), 40, 40);
  expect_delivery(from, to, builder);
  EXPECT_EQ(from.counters().send_calls, 3u);
}

TEST(SocketSet, does_not_send_a_finished_train_again) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  TrainBuilder builder(from);
  builder.add(to.address(), 40, 40);
  expect_delivery(from, to, builder);
  EXPECT_EQ(from.send(builder.trains()), 1u);
  EXPECT_TRUE(testing::is_quiet(to));
}

TEST(SocketSet, speaks_to_itself_over_ipv6) {
  testing::TestNetwork::enter();
  SocketOptions options;
  options.report_ip_fields = true;
  auto opened = testing::open_alone(kIpv6Loopback, options);
  if (!opened) GTEST_SKIP() << opened.error().to_string();  // no IPv6, or somebody else tests on ::1
  SocketSet sockets = std::move(opened).value();
  TrainBuilder builder(sockets);
  builder.add(kIpv6Loopback, 300, 300);
  builder.add(kIpv6Loopback, 14 * 4'124 + 16, 4'124, 1);
  builder.add(kIpv6Loopback, 3'333, 1'000, 2).path.traffic_class = 0xb9;
  builder.add(kIpv6Loopback, 77, 77, 3).path.hop_limit = 3;
  expect_delivery(sockets, sockets, builder);
}

TEST(SocketSet, accepts_ipv6_datagrams_without_udp_checksum) {
  testing::TestNetwork::enter();
  SocketOptions options;
  auto opened = testing::open_alone(kIpv6Loopback, options);
  if (!opened) GTEST_SKIP() << opened.error().to_string();
  const Descriptor peer(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ASSERT_EQ(::setsockopt(peer.get(), IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, &one, sizeof one), 0);
  const SocketAddress to(kIpv6Loopback, wire::kRocePort, 0);
  ASSERT_EQ(::sendto(peer.get(), "hello", 5, 0, &to.any, to.size), 5);
  EXPECT_EQ(collect(*opened, 1).size(), 1u);
}

TEST(SocketSet, hands_out_an_empty_datagram_as_one) {
  SocketSet to = open_automatic();
  const Descriptor peer(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress at(to.address(), wire::kRocePort, 0);
  ASSERT_EQ(::sendto(peer.get(), nullptr, 0, 0, &at.any, at.size), 0);
  const auto arrivals = collect(to, 1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_TRUE(arrivals[0].bytes.empty());
  EXPECT_EQ(arrivals[0].path.source, Gid::from_ipv4(127, 0, 0, 1));
}

TEST(SocketSet, counts_what_the_kernel_dropped_for_lack_of_room) {
  SocketOptions small;
  small.receive_buffer_bytes = 4'096;
  SocketSet from = open_automatic();
  SocketSet to = open_automatic(small);
  EXPECT_LT(to.receive_buffer_bytes(), 16'384u);
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 100; ++i) builder.add(to.address(), 1'000, 1'000);
  EXPECT_EQ(from.send(builder.trains()), 100u);
  const std::size_t first = collect(to, 1).size();
  while (!testing::is_quiet(to)) {
  }
  EXPECT_LT(first, 100u);
  EXPECT_EQ(to.counters().receive_drops + to.counters().received_datagrams, 100u);
}

TEST(SocketCounters, a_count_that_goes_round_elsewhere_goes_on_here) {
  WidenedCount count;
  EXPECT_EQ(count.read(5), 5u);
  EXPECT_EQ(count.read(0xffff'fffe), 0xffff'fffeu);
  EXPECT_EQ(count.read(3), 0x1'0000'0003u);
  EXPECT_EQ(count.read(3), 0x1'0000'0003u);
}

TEST(SocketSet, what_arrives_at_a_sending_port_is_nobody_s) {
  SocketSet sockets = open_automatic();
  const Descriptor peer(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress at(sockets.address(), sockets.source_port(0), 0);
  ASSERT_EQ(::sendto(peer.get(), "hello", 5, 0, &at.any, at.size), 5);
  pollfd waiting{sockets.send_fd(0), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  EXPECT_TRUE(testing::is_quiet(sockets));
}

TEST(SocketSet, survives_being_moved) {
  SocketSet opened = open_automatic();
  SocketSet to = open_automatic();
  SocketSet from = std::move(opened);
  SocketSet receiver = std::move(to);
  TrainBuilder builder(from);
  builder.add(receiver.address(), 5'000, 1'000);
  expect_delivery(from, receiver, builder);
}

TEST(OpenSocketSet, knows_its_path_mtu) { EXPECT_EQ(open_automatic().path_mtu(), 4'096u); }

TEST(OpenSocketSet, numbers_out_of_range_are_refused) {
  testing::TestNetwork::enter();
  const Gid address = Gid::from_ipv4(127, 0, 0, 9);
  SocketOptions options;
  options.sending_sockets = 0;
  EXPECT_EQ(testing::open_alone(address, options).error().code(), ErrorCode::InvalidArgument);
  options.sending_sockets = 65;
  EXPECT_EQ(testing::open_alone(address, options).error().code(), ErrorCode::InvalidArgument);
  options.sending_sockets = 64;
  options.receive_slots = 0;
  EXPECT_EQ(testing::open_alone(address, options).error().code(), ErrorCode::InvalidArgument);
}

TEST(OpenSocketSet, source_ports_are_distinct_and_in_the_dynamic_quarter) {
  SocketOptions options;
  options.sending_sockets = 64;
  const SocketSet sockets = open_automatic(options);
  std::set<std::uint16_t> ports;
  for (unsigned i = 0; i < sockets.sources(); ++i) {
    EXPECT_GE(sockets.source_port(i), kFirstSourcePort);
    EXPECT_TRUE(ports.insert(sockets.source_port(i)).second);
  }
  EXPECT_EQ(ports.size(), 64u);
}

TEST(OpenSocketSet, finds_the_longest_train_of_this_kernel) {
  const SocketSet sockets = open_automatic();
  // 64 since UDP_SEGMENT came, 128 since 6.9.
  EXPECT_THAT(sockets.max_segments(), ::testing::AnyOf(1u, 64u, 128u));
  SocketOptions off;
  off.segmentation = false;
  EXPECT_EQ(open_automatic(off).max_segments(), 1u);
}

TEST(SocketSet, what_a_thread_sends_that_has_gone_to_another_network_leaves_in_the_one_of_the_device) {
  SocketSet from = open_automatic(), to = open_automatic();
  TrainBuilder builder(from);
  constexpr unsigned kMany = 500;
  for (unsigned i = 0; i < kMany; ++i) builder.add(to.address(), 100, 100);
  {
    const OtherNetwork elsewhere;
    if (!elsewhere.is_entered()) GTEST_SKIP() << kNoOtherNetwork;
    ASSERT_TRUE(testing::TestNetwork::set_up("lo"));
    for (OutTrain& train : builder.trains()) EXPECT_EQ(from.send({&train, 1}), 1u);
  }
  EXPECT_EQ(from.counters().sent_connected, 0u);
  EXPECT_EQ(collect(to, kMany).size(), kMany);
}

}  // namespace
}  // namespace verbena::soft::udp
