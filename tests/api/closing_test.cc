// SPDX-License-Identifier: Apache-2.0
// close() in every phase, given up in the middle, twice at once; and connections that nobody confirms or connects.
#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>

#include "test_pair.h"
#include "verbena/testing/virtual_network.h"

namespace verbena {
namespace {

using test::expect_error;
using test::kMs;
using test::must;
using test::Pair;
using verbena::testing::VirtualHost;
using verbena::testing::VirtualNetwork;

Task<int> at_once(int value) { co_return value; }
Task<void> pause(ProgressEngine& engine) { co_await engine.sleep(kMs); }

struct Unconfirmed {
  Unconfirmed() {
    Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
    listener.on_request([&] {
      accepted = must(listener.poll_request()->accept());
      client.pause();
    });
    client.engine().spawn([](VirtualHost host) -> Task<void> {
      const auto connection = co_await Connection::async_connect(host.engine(), "10.0.0.1:7471");
      co_await host.engine().sleep(Duration::seconds(1000));
    }(client));
    must(network.run_until([&] { return accepted.has_value(); }));
  }
  VirtualNetwork network = must(VirtualNetwork::create(3));
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  std::optional<Connection> accepted;
};

TEST(Close, of_a_connection_that_is_not_confirmed_in_time_closes_it_all_the_same) {
  Unconfirmed world;
  Connection& connection = *world.accepted;
  ASSERT_EQ(connection.phase(), ConnectionPhase::Connecting);
  MemoryRegion inbox = must(world.server.device().allocate_memory(64));
  Operation receive = connection.receive(inbox.local());
  expect_error(connection.close(kMs), ErrorCode::TimedOut);
  EXPECT_TRUE(connection.closed()) << to_string(connection.phase());
  must(world.network.run_for(kMs));
  EXPECT_TRUE(receive.done());
}

TEST(Close, of_a_prepared_connection_has_a_status) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  must(connection.close());
  ASSERT_TRUE(connection.closed());
  expect_error(connection.status(), ErrorCode::Flushed, "closed here");
}

TEST(Close, of_a_prepared_connection_has_told_its_receives) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = connection.receive(inbox.local());
  must(connection.close());
  EXPECT_TRUE(receive.done());
}

TEST(Established, a_prepared_connection_that_nobody_connects_is_not_established) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  expect_error(connection.wait_established(kMs * 10), ErrorCode::WrongState);
}

TEST(Established, a_connection_closed_before_it_was_connected_is_not_established) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  must(connection.close());
  expect_error(connection.wait_established(kMs * 10), ErrorCode::Flushed);
}

TEST(Close, that_is_given_up_leaves_no_receive_in_flight_for_ever) {
  Pair pair;
  Connection near = pair.connect({.keep_alive = {}});
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = near.receive(inbox.local());
  const auto first = pair.engine.run(when_any(near.async_close(Duration::seconds(1)), at_once(1)));
  ASSERT_EQ(first.index(), 1u);
  ASSERT_TRUE(near.closed());
  EXPECT_TRUE(pair.engine.run_until([&] { return receive.done(); }, Duration::seconds(3)))
      << "phase " << to_string(near.phase());
}

TEST(Close, that_is_given_up_while_it_waits_for_sends_does_not_silence_on_closed) {
  Pair pair;
  Connection near = pair.connect();
  int told = 0;
  near.on_closed([&] { ++told; });
  MemoryRegion out = must(pair.client.allocate_memory(64));
  Operation send = near.send(out.local());  // no receive there: it waits
  const auto first = pair.engine.run(when_any(near.async_close(Duration::seconds(5)), at_once(1)));
  ASSERT_EQ(first.index(), 1u);
  ASSERT_EQ(near.phase(), ConnectionPhase::Established);
  pair.accepted.clear();
  pair.engine.run_until([&] { return near.closed(); }, Duration::seconds(10));
  ASSERT_TRUE(near.closed());
  pair.engine.run_until([&] { return told != 0; }, Duration::seconds(1));
  EXPECT_EQ(told, 1);
}

TEST(Close, says_when_the_peer_closed_before_everything_was_sent) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion out = must(pair.client.allocate_memory(64));
  Operation send = near.send(out.local());  // no receive there: it waits
  pair.engine.spawn([](Pair& on) -> Task<void> {
    co_await on.engine.sleep(kMs * 20);
    on.accepted.clear();
  }(pair));
  expect_error(near.close(Duration::seconds(5)), ErrorCode::Disconnected, "the peer closed it");
  expect_error(send.wait(), ErrorCode::Disconnected);
}

TEST(Close, twice_at_once_both_wait_for_the_end) {
  VirtualNetwork network = must(VirtualNetwork::create(7, {.delay = kMs * 10}));
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  std::optional<Connection> accepted;
  listener.on_request([&] { accepted = must(listener.poll_request()->accept()); });
  Connection near = must(Connection::connect(client.engine(), "10.0.0.1:7471"));
  MemoryRegion inbox = must(client.device().allocate_memory(64));
  Operation receive = near.receive(inbox.local());
  Task<Result<void>> first = near.async_close();
  std::optional<bool> done_at_second;
  const auto second = [](Connection& c, Operation& op, std::optional<bool>& seen) -> Task<Result<void>> {
    auto ok = co_await c.async_close();
    seen = op.done();
    co_return ok;
  };
  const auto both = client.engine().run(when_all(std::move(first), second(near, receive, done_at_second)));
  EXPECT_TRUE(std::get<0>(both));
  ASSERT_TRUE(done_at_second);
  EXPECT_TRUE(*done_at_second) << "close() returned, and a receive is in flight";
}

// More than the engine hands out in one run.
TEST(Close, does_not_wait_for_receives_that_a_callback_posts_anew_for_ever) {
  Pair pair;
  Connection near = pair.connect();
  std::uint64_t told = 0;
  const auto post = [&] {
    const ReceiveRequest request{1, {}};
    static_cast<void>(near.post_receive({&request, 1}));
  };
  near.on_completion([&](const Completion&) {
    ++told;
    post();
  });
  for (int i = 0; i < 8; ++i) post();
  const Instant begun = pair.engine.now();
  must(near.close(Duration::seconds(30)));
  EXPECT_LT(pair.engine.now() - begun, Duration::seconds(20));
  EXPECT_GE(told, 8u);
}

TEST(Close, has_told_its_receives_however_many_they_are) {
  Pair pair;
  constexpr std::uint32_t kMany = 3000;
  const ConnectionOptions options{.queues = {.max_receive_requests = kMany}};
  for (const bool connected : {true, false}) {
    Connection near = connected ? pair.connect(options) : must(Connection::prepare(pair.engine, options));
    MemoryRegion inbox = must(pair.client.allocate_memory(64));
    std::vector<Operation> receives(kMany);
    for (Operation& receive : receives) near.receive(receive, inbox.local());
    must(near.close());
    EXPECT_TRUE(std::all_of(receives.begin(), receives.end(), [](const Operation& r) { return r.done(); }));
  }
}

// Connection::close(timeout): the handshake and the end together.
TEST(Close, takes_no_longer_than_it_was_given) {
  Unconfirmed world;
  Connection& connection = *world.accepted;
  const Instant begun = world.network.now();
  world.server.engine().spawn([](VirtualHost host, VirtualHost peer, Connection& its) -> Task<void> {
    co_await host.engine().sleep(kMs * 90);
    peer.resume();
    while (its.phase() == ConnectionPhase::Connecting) co_await host.engine().sleep(Duration::microseconds(1));
    peer.crash();  // what is on its way now is lost
  }(world.server, world.client, connection));
  expect_error(connection.close(kMs * 100), ErrorCode::TimedOut);
  EXPECT_LE((world.network.now() - begun).ns, (kMs * 110).ns);
}

// What a callback asks of a connection that is being destroyed, in whose end it runs.
void expect_cancelled_at_once(Pair& pair, Connection connection, const std::function<Result<void>(Connection&)>& ask) {
  std::optional<Connection> near(std::move(connection));
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = near->receive(inbox.local());
  std::optional<Result<void>> said;
  receive.on_done([&](Operation&) { said = ask(*near); });
  const Instant begun = pair.engine.now();
  near.reset();
  ASSERT_TRUE(said);
  expect_error(*said, ErrorCode::Cancelled, "destroyed");
  EXPECT_LT((pair.engine.now() - begun).ns, Duration::seconds(5).ns);
}

TEST(Destroying, a_connection_leaves_nothing_to_wait_for_to_its_callbacks) {
  Pair pair;
  const auto close = [](Connection& c) { return c.close(Duration::seconds(8)); };
  const auto wait = [](Connection& c) { return c.wait_established(Duration::seconds(8)); };
  const auto connect = [&](Connection& c) { return c.connect_to(pair.listener->address().to_string()); };
  const auto connect_described = [&](Connection& c) {
    return c.connect_to(must(must(Connection::prepare(pair.engine, {.device = &pair.server})).describe()));
  };
  expect_cancelled_at_once(pair, pair.connect(), close);
  expect_cancelled_at_once(pair, pair.connect(), wait);
  for (const auto& ask : {std::function<Result<void>(Connection&)>(close), {wait}, {connect}, {connect_described}})
    expect_cancelled_at_once(pair, must(Connection::prepare(pair.engine)), ask);
}

// The callback drives the engine: those who wait come back before it goes on.
TEST(Destroying, a_connection_sends_back_those_who_wait_for_it_before_its_callbacks_go_on) {
  Pair pair;
  pair.listener->on_request(nullptr);  // nobody answers
  std::optional<Connection> near(must(Connection::prepare(pair.engine)));
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = near->receive(inbox.local());
  std::optional<Result<void>> connected, waited;
  const auto keep = [](Task<Result<void>> task, std::optional<Result<void>>& in) -> Task<void> {
    in = co_await std::move(task);
  };
  pair.engine.spawn(keep(near->async_connect_to(pair.listener->address().to_string()), connected));
  pair.engine.run_until([&] { return near->phase() == ConnectionPhase::Connecting; }, Duration::seconds(1));
  pair.engine.spawn(keep(near->async_established(Duration::forever()), waited));
  pair.engine.run(pause(pair.engine));
  bool both = false;
  receive.on_done([&](Operation&) {
    pair.engine.run(pause(pair.engine));
    both = connected && waited;
  });
  near.reset();
  ASSERT_TRUE(both);
  expect_error(*connected, ErrorCode::Cancelled, "destroyed");
  expect_error(*waited, ErrorCode::Cancelled, "destroyed");
}

// A server that replaces its connection, in a callback of that connection.
TEST(Assigning, to_a_connection_that_is_assigned_to_is_overtaken) {
  Pair pair;
  Connection near = pair.connect(), next = pair.connect(), other = pair.connect();
  const Qpn qpn = next.local_qpn();
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = near.receive(inbox.local());
  Operation receive_of_other = other.receive(inbox.local());
  bool told = false;
  receive.on_done([&](Operation&) {
    told = true;
    near = std::move(other);
  });
  near = std::move(next);
  EXPECT_TRUE(told);
  EXPECT_EQ(near.local_qpn(), qpn);
  EXPECT_EQ(near.phase(), ConnectionPhase::Established);
  expect_error(receive_of_other.result(), ErrorCode::Flushed, "destroyed");
  must(near.close());
}

TEST(Assigning, to_a_connection_that_is_being_destroyed_ends_what_is_assigned) {
  Pair pair;
  std::optional<Connection> near(pair.connect());
  Connection other = pair.connect();
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive = near->receive(inbox.local());
  Operation receive_of_other = other.receive(inbox.local());
  bool told = false, whole = false;
  receive.on_done([&](Operation&) { *near = std::move(other); });
  receive_of_other.on_done([&](Operation&) {
    told = true;
    whole = near->phase() == ConnectionPhase::Established;
  });
  near.reset();
  EXPECT_TRUE(told);
  EXPECT_TRUE(whole);
}

TEST(ConnectTo, an_address_that_is_none_leaves_a_connection_that_can_be_connected) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  expect_error(connection.connect_to("no port"), ErrorCode::InvalidArgument);
  EXPECT_EQ(connection.phase(), ConnectionPhase::Prepared);
  must(connection.connect_to(pair.listener->address().to_string()));
}

Task<void> throws_out_of_task(ProgressEngine& engine, Duration time) {
  if (time > Duration{}) co_await engine.sleep(time);
  throw std::runtime_error("out of a task");
}

// Somebody else's exception leaves through close().
TEST(Throwing, out_of_close_leaves_a_connection_that_ends) {
  VirtualNetwork network = must(VirtualNetwork::create(5));
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  std::optional<Connection> accepted;
  listener.on_request([&] { accepted = must(listener.poll_request()->accept()); });
  Connection near = must(Connection::connect(client.engine(), "10.0.0.1:7471", {.keep_alive = {}}));
  MemoryRegion inbox = must(client.device().allocate_memory(64));
  Operation receive = near.receive(inbox.local());
  client.engine().spawn(throws_out_of_task(client.engine(), {}));
  EXPECT_THROW(static_cast<void>(near.close()), std::runtime_error);
  must(network.run_for(Duration::seconds(60)));
  EXPECT_TRUE(near.closed());
  EXPECT_TRUE(receive.done()) << "phase " << to_string(near.phase());
}

TEST(Throwing, out_of_connect_to_leaves_a_connection_that_ends) {
  VirtualNetwork network = must(VirtualNetwork::create(6));
  VirtualHost client = must(network.add_host());
  Connection near = must(Connection::prepare(client.engine(), {.connect_timeout = Duration::seconds(1)}));
  client.engine().spawn(throws_out_of_task(client.engine(), kMs));
  EXPECT_THROW(static_cast<void>(near.connect_to("10.0.0.9:7471")), std::runtime_error);
  must(network.run_for(Duration::seconds(120)));
  EXPECT_TRUE(near.closed()) << "phase " << to_string(near.phase());
  static_cast<void>(near.close());
  EXPECT_TRUE(near.closed()) << "phase " << to_string(near.phase());
}

}  // namespace
}  // namespace verbena
