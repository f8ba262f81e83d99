// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "soft/driver/udp/sockets.h"
#include "soft/driver/udp/test_sockets.h"

namespace verbena::soft::udp {
namespace {

using testing::collect;
using testing::open_automatic;
using testing::TrainBuilder;

// 127/8 addresses where nobody listens; a candidate of automatic loopback only after hundreds of others.
const Gid kDead = Gid::from_ipv4(127, 99, 1, 1);
const Gid kDeadToo = Gid::from_ipv4(127, 99, 1, 2);

TEST(SendErrors, refusal_of_a_dead_peer_does_not_cost_a_live_one_its_train) {
  SocketSet from = open_automatic();
  SocketSet live = open_automatic();
  TrainBuilder dead(from);
  dead.add(kDead, 100, 100);
  ASSERT_EQ(from.send(dead.trains()), 1u);
  EXPECT_EQ(dead.trains()[0].sent, 1u);

  TrainBuilder builder(from);
  builder.add(live.address(), 5'000, 1'000);
  ASSERT_EQ(from.send(builder.trains()), 1u);
  EXPECT_EQ(builder.trains()[0].sent, 5u);
  EXPECT_EQ(collect(live, 5).size(), 5u);

  const auto error = from.poll_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->peer, kDead);
  EXPECT_EQ(error->error, ECONNREFUSED);
  EXPECT_TRUE(error->from_network);
  EXPECT_FALSE(from.poll_error());
  EXPECT_EQ(from.counters().dropped_datagrams, 0u);
}

TEST(SendErrors, batch_with_dead_peers_in_between_goes_out_whole) {
  SocketSet from = open_automatic();
  SocketSet live = open_automatic();
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 48; ++i) {
    builder.add(i % 3 == 0 ? live.address() : (i % 3 == 1 ? kDead : kDeadToo), 2'000, 1'000);
  }
  ASSERT_EQ(from.send(builder.trains()), 48u);
  for (const OutTrain& train : builder.trains()) EXPECT_EQ(train.sent, 2u);
  const auto arrivals = collect(live, 32);
  ASSERT_EQ(arrivals.size(), 32u);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(arrivals[i].bytes, builder.datagram(i / 2 * 3, i % 2));
  from.read_errors();
  std::vector<Gid> accused;
  while (const auto error = from.poll_error()) accused.push_back(error->peer);
  EXPECT_THAT(accused, ::testing::UnorderedElementsAre(kDead, kDeadToo));
}

TEST(SendErrors, are_read_without_sending_when_the_socket_shows_an_error) {
  SocketSet from = open_automatic();
  TrainBuilder builder(from);
  builder.add(kDead, 100, 100, 2);
  ASSERT_EQ(from.send(builder.trains()), 1u);
  pollfd waiting{from.send_fd(2), 0, 0};
  ASSERT_EQ(::poll(&waiting, 1, 5'000), 1);
  EXPECT_EQ(waiting.revents & POLLERR, POLLERR);
  EXPECT_EQ(from.read_errors(), 1u);
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  EXPECT_EQ(from.poll_error().value().peer, kDead);
}

TEST(SendErrors, dead_ipv6_peer_is_named) {
  if (!testing::TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
  const Gid loopback = Gid::parse("::1").value();
  auto from = testing::open_alone(loopback, {});
  if (!from) GTEST_SKIP() << from.error().to_string();
  TrainBuilder builder(*from);
  builder.add(loopback, 100, 100).path.destination_port = 9;
  builder.add(loopback, 200, 200);
  ASSERT_EQ(from->send(builder.trains()), 2u);
  EXPECT_EQ(collect(*from, 1).size(), 1u);
  from->read_errors();
  const auto error = from->poll_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->peer, loopback);
  EXPECT_EQ(error->error, ECONNREFUSED);
}

// By then they leave by a socket connected to that peer, which learns of it with its next send.
TEST(SendErrors, dead_peer_that_one_datagram_after_the_other_goes_to_is_named_and_costs_none) {
  SocketSet from = open_automatic();
  SocketSet peer = open_automatic();
  constexpr unsigned kMany = 200;
  TrainBuilder builder(from);
  for (unsigned i = 0; i < kMany; ++i) builder.add(peer.address(), 100, 100);
  builder.add(kDead, 100, 100);
  const auto send_all = [&] {
    for (OutTrain& train : builder.trains()) {
      train.finished = false;
      train.sent = 0;
      EXPECT_EQ(from.send({&train, 1}), 1u);
    }
  };
  send_all();
  EXPECT_EQ(collect(peer, kMany).size(), kMany);
  const Gid gone = peer.address();
  { const SocketSet closed = std::move(peer); }
  send_all();
  from.read_errors();
  std::vector<Gid> accused;
  while (const auto error = from.poll_error()) {
    EXPECT_EQ(error->error, ECONNREFUSED);
    accused.push_back(error->peer);
  }
  EXPECT_THAT(accused, ::testing::UnorderedElementsAre(gone, kDead));
  EXPECT_EQ(from.counters().sent_datagrams, 2 * (kMany + 1));
  EXPECT_EQ(from.counters().dropped_datagrams, 0u);
  EXPECT_GT(from.counters().sent_connected, kMany / 2);
}

// A copy of the connected socket in the child would get what is said of the peer, and keep the port.
TEST(SendErrors, dead_peer_is_named_to_who_forked_a_child_that_lives_on) {
  SocketSet from = open_automatic();
  SocketSet live = open_automatic();
  SocketSet peer = open_automatic();
  const Gid gone = peer.address();
  constexpr unsigned kMany = 500;
  const auto send_many = [&from](const Gid& to) {
    TrainBuilder builder(from);
    for (unsigned i = 0; i < kMany; ++i) builder.add(to, 100, 100);
    for (OutTrain& train : builder.trains()) EXPECT_EQ(from.send({&train, 1}), 1u);
    return from.counters().sent_connected;
  };
  EXPECT_GT(send_many(gone), 0u);
  { const SocketSet closed = std::move(peer); }
  int child_runs[2];
  ASSERT_EQ(::pipe(child_runs), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    EXPECT_EQ(::write(child_runs[1], "", 1), 1);
    for (;;) ::pause();
  }
  // Until it has run its copies are open.
  char byte;
  ASSERT_EQ(::read(child_runs[0], &byte, 1), 1);
  for (const int end : child_runs) ::close(end);
  const std::uint64_t before = send_many(gone);
  from.read_errors();
  const auto error = from.poll_error();
  EXPECT_TRUE(error && error->peer == gone);
  EXPECT_GT(send_many(live.address()), before);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(SendErrors, repeated_errors_of_one_peer_are_told_once_and_counted_all) {
  SocketSet from = open_automatic();
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 20; ++i) builder.add(kDead, 100, 100);
  ASSERT_EQ(from.send(builder.trains()), 20u);
  from.read_errors();
  EXPECT_EQ(from.counters().send_errors, 20u);
  EXPECT_TRUE(from.poll_error());
  EXPECT_FALSE(from.poll_error());
}

TEST(SendErrors, errors_of_too_many_peers_are_counted_as_lost) {
  SocketSet from = open_automatic();
  TrainBuilder builder(from);
  for (unsigned i = 0; i < 100; ++i) {
    builder.add(Gid::from_ipv4(127, 99, 2, static_cast<std::uint8_t>(i + 1)), 100, 100);
    ASSERT_EQ(from.send({&builder.trains().back(), 1}), 1u);
    from.read_errors();
  }
  EXPECT_EQ(from.counters().send_errors, 100u);
  EXPECT_EQ(from.counters().errors_lost, 36u);
  EXPECT_EQ(from.poll_error().value().peer, Gid::from_ipv4(127, 99, 2, 1));
}

TEST(SendErrors, datagram_longer_than_the_link_names_peer_and_mtu_and_the_rest_goes_out) {
  if (!testing::TestNetwork::enter().is_private())
    GTEST_SKIP() << "needs a network of its own to change its MTU";
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  ASSERT_TRUE(testing::TestNetwork::set_mtu("lo", 1'500));
  TrainBuilder builder(from);
  builder.add(to.address(), 100, 100);
  builder.add(to.address(), 4'000, 4'000);
  builder.add(to.address(), 9'000, 3'000);
  builder.add(to.address(), 2'000, 1'000);
  const unsigned finished = from.send(builder.trains());
  ASSERT_TRUE(testing::TestNetwork::set_mtu("lo", 65'536));
  ASSERT_EQ(finished, 4u);
  EXPECT_EQ(builder.trains()[0].sent, 1u);
  EXPECT_EQ(builder.trains()[1].sent, 0u);
  EXPECT_EQ(builder.trains()[2].sent, 0u);
  EXPECT_EQ(builder.trains()[3].sent, 2u);
  EXPECT_EQ(collect(to, 3).size(), 3u);
  EXPECT_EQ(from.counters().dropped_datagrams, 4u);
  EXPECT_GT(from.max_segments(), 1u);
  const auto error = from.poll_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->peer, to.address());
  EXPECT_EQ(error->error, EMSGSIZE);
  EXPECT_EQ(error->mtu, 1'500u);
  EXPECT_FALSE(error->from_network);
}

TEST(SendErrors, destination_without_a_route_drops_its_train_alone) {
  if (!testing::TestNetwork::enter().is_private())
    GTEST_SKIP() << "needs a network of its own without routes";
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  const Gid nowhere = Gid::from_ipv4(192, 0, 2, 1);
  TrainBuilder builder(from);
  builder.add(to.address(), 100, 100);
  builder.add(nowhere, 100, 100);
  builder.add(to.address(), 100, 100);
  ASSERT_EQ(from.send(builder.trains()), 3u);
  EXPECT_EQ(builder.trains()[1].sent, 0u);
  EXPECT_EQ(collect(to, 2).size(), 2u);
  const auto error = from.poll_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->peer, nowhere);
  EXPECT_EQ(error->error, ENETUNREACH);
  EXPECT_FALSE(error->from_network);
}

// A socket that makes no UDP checksums refuses UDP_SEGMENT, as a device without checksum offload does.
void refuse_segmentation(const SocketSet& sockets) {
  const int one = 1;
  for (unsigned i = 0; i < sockets.sources(); ++i)
    ASSERT_EQ(::setsockopt(sockets.send_fd(i), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one), 0);
}

TEST(Segmentation, refused_train_leaves_as_single_datagrams_and_is_remembered) {
  SocketSet from = open_automatic();
  SocketSet to = open_automatic();
  to.report_ip_fields(true);
  refuse_segmentation(from);
  TrainBuilder builder(from);
  builder.add(to.address(), 200, 200);
  builder.add(to.address(), 14 * 4'124 + 16, 4'124, 0, 1'500).path.traffic_class = 8;
  builder.add(to.address(), 2'500, 1'000);
  ASSERT_EQ(from.send(builder.trains()), 3u);
  const auto arrivals = collect(to, 19);
  ASSERT_EQ(arrivals.size(), 19u);
  EXPECT_EQ(arrivals[0].bytes, builder.datagram(0, 0));
  for (unsigned i = 0; i < 15; ++i) {
    EXPECT_EQ(arrivals[1 + i].bytes, builder.datagram(1, i));
    EXPECT_EQ(arrivals[1 + i].path, builder.trains()[1].path);
  }
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(arrivals[16 + i].bytes, builder.datagram(2, i));
  EXPECT_EQ(from.max_segments(), 1u);
  EXPECT_GE(from.counters().gso_refused, 1u);
  EXPECT_EQ(from.counters().sent_datagrams, 19u);

  const std::uint64_t refused = from.counters().gso_refused;
  TrainBuilder later(from);
  later.add(to.address(), 2'500, 1'000);
  ASSERT_EQ(from.send(later.trains()), 1u);
  EXPECT_EQ(collect(to, 3).size(), 3u);
  EXPECT_EQ(from.counters().gso_refused, refused);
}

}  // namespace
}  // namespace verbena::soft::udp
