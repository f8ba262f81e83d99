// SPDX-License-Identifier: Apache-2.0
// Programs of coroutines in virtual time, from a seed, over a network that loses.
#include <cstring>

#include "virtual_world.h"

namespace verbena {
namespace {

using test::VirtualWorld;
using test::WorldOptions;

constexpr int kClients = 4;
constexpr std::uint32_t kBytes = 5000;  // five packets

Task<void> echo(Connection client, MemoryRegion memory, int& gone) {
  for (;;) {
    auto message = co_await client.receive(memory.local());
    if (!message) break;
    auto sent = co_await client.send(memory.local(0, message->bytes));
    if (!sent) break;
  }
  ++gone;
}

Task<void> serve(VirtualWorld::Host& host, int& gone) {
  auto listener = Listener::create(host.engine(), {.port = 7471});
  EXPECT_TRUE(listener);
  for (int i = 0; i < kClients; ++i) {
    auto request = co_await listener->async_request();
    auto client = request->accept();  // at once: whoever waits too long asks anew
    if (!client) continue;
    auto memory = host.device().allocate_memory(kBytes);
    host.engine().spawn(echo(std::move(*client), std::move(*memory), gone));
  }
}

// How many messages came back unharmed.
Task<int> call(VirtualWorld::Host& host, int number, int messages) {
  auto out = host.device().allocate_memory(kBytes);
  auto in = host.device().allocate_memory(kBytes);
  ConnectionOptions options;
  options.connect_timeout = Duration::seconds(60);
  auto server = co_await Connection::async_connect(host.engine(), "10.0.0.1:7471", options);
  EXPECT_TRUE(server) << server.error().to_string();
  if (!server) co_return 0;
  int good = 0;
  for (int i = 0; i < messages; ++i) {
    std::memset(out->data(), number * 16 + i, kBytes);
    std::memset(in->data(), 0xff, kBytes);
    Operation answer = server->receive(in->local());
    auto sent = co_await server->send(out->local());
    EXPECT_TRUE(sent) << sent.error().to_string();
    auto got = co_await answer;
    if (got && got->bytes == kBytes && std::memcmp(in->data(), out->data(), kBytes) == 0) ++good;
    co_await host.engine().sleep(Duration::milliseconds(number));
  }
  auto closed = co_await server->async_close(Duration::seconds(60));
  EXPECT_TRUE(closed) << closed.error().to_string();
  co_return good;
}

struct Seen {
  std::uint64_t hash = 0, lost = 0;
  Duration took;
};

Seen run(std::uint64_t seed, const WorldOptions& options) {
  constexpr int kMessages = 10;
  VirtualWorld world(seed, options);
  VirtualWorld::Host& server = world.add_host();
  VirtualWorld::Host& near = world.add_host();
  VirtualWorld::Host& far = world.add_host();
  int gone = 0;
  server.engine().spawn(serve(server, gone));
  int elsewhere = -1;
  far.engine().spawn([](VirtualWorld::Host& host, int& good) -> Task<void> {
    good = co_await call(host, 3, kMessages);
  }(far, elsewhere));
  const Instant begin = world.now();
  const auto [a, b, c] = near.engine().run(
      when_all(call(near, 0, kMessages), call(near, 1, kMessages), call(near, 2, kMessages)));
  EXPECT_EQ(a + b + c, 3 * kMessages) << "seed " << seed;
  near.engine().run_until([&] { return gone == kClients && elsewhere >= 0; });
  EXPECT_EQ(elsewhere, kMessages) << "seed " << seed;
  return {world.hash(), world.lost(), world.now() - begin};
}

TEST(Programs, every_message_comes_back_in_virtual_time_from_every_seed) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    WorldOptions options;
    options.loss = static_cast<double>(seed % 5) * 0.02;
    options.duplicate = static_cast<double>(seed % 3) * 0.05;
    lost += run(seed, options).lost;
  }
  EXPECT_GT(lost, 100u);
}

TEST(Programs, the_same_seed_gives_the_same_run_to_the_byte) {
  const WorldOptions options{.loss = 0.05, .duplicate = 0.05};
  const Seen first = run(7, options), again = run(7, options), other = run(8, options);
  EXPECT_EQ(first.hash, again.hash);
  EXPECT_EQ(first.took, again.took);
  EXPECT_NE(first.hash, other.hash);
}

TEST(Programs, a_sleep_of_an_hour_is_over_when_its_time_has_come) {
  VirtualWorld world(1, {});
  VirtualWorld::Host& host = world.add_host();
  EXPECT_EQ(host.engine().fd(), -1);
  const Instant begin = world.now();
  host.engine().run([](ProgressEngine& engine) -> Task<void> {
    co_await engine.sleep(Duration::seconds(3600));
  }(host.engine()));
  EXPECT_EQ(world.now() - begin, Duration::seconds(3600));
}

Task<Result<OperationOutcome>> receive_one(Connection& connection, MemoryRegion& into) {
  co_return co_await connection.receive(into.local());
}

TEST(Programs, a_deadline_by_when_any_comes_at_its_virtual_time) {
  VirtualWorld world(3, {});
  VirtualWorld::Host& server = world.add_host();
  VirtualWorld::Host& client = world.add_host();
  int gone = 0;
  server.engine().spawn(serve(server, gone));
  const auto body = [](VirtualWorld& in, VirtualWorld::Host& host) -> Task<Duration> {
    auto connection = co_await Connection::async_connect(host.engine(), "10.0.0.1:7471");
    auto memory = host.device().allocate_memory(64);
    const auto limit = [](ProgressEngine& engine) -> Task<void> {
      co_await engine.sleep(Duration::seconds(7));
    };
    const Instant begin = in.now();
    const auto first = co_await when_any(receive_one(*connection, *memory), limit(host.engine()));
    EXPECT_EQ(first.index(), 1u);
    EXPECT_EQ(connection->phase(), ConnectionPhase::Broken);
    co_return in.now() - begin;
  };
  const Duration took = client.engine().run(body(world, client));
  EXPECT_GE(took, Duration::seconds(7));
  EXPECT_LT(took, Duration::seconds(8));
}

// A listener whose program takes its time.
Task<void> accept_late(VirtualWorld::Host& host, std::size_t clients, Duration pause) {
  auto listener = Listener::create(host.engine(), {.port = 7471});
  std::vector<Connection> accepted;
  while (accepted.size() < clients) {
    auto request = co_await listener->async_request();
    co_await host.engine().sleep(pause);
    auto client = request->accept();  // fails where the peer has given up
    if (!client) continue;
    auto ok = co_await client->async_established(Duration::seconds(60));
    if (ok) accepted.push_back(std::move(*client));
  }
  co_await host.engine().sleep(Duration::seconds(200));
}

void connect_late(std::uint64_t seed, double loss, Duration pause) {
  VirtualWorld world(seed, {.loss = loss});
  VirtualWorld::Host& server = world.add_host();
  VirtualWorld::Host& client = world.add_host();
  server.engine().spawn(accept_late(server, 3, pause));
  const auto connect = [](VirtualWorld::Host& host) {
    ConnectionOptions options;
    options.connect_timeout = Duration::seconds(600);
    return Connection::async_connect(host.engine(), "10.0.0.1:7471", options);
  };
  const auto [a, b, c] = client.engine().run(when_all(connect(client), connect(client), connect(client)));
  for (const auto* end : {&a, &b, &c})
    EXPECT_TRUE(*end) << "seed " << seed << ", " << pause.ns << " ns late: " << end->error().to_string();
}

// Whoever gives up, and asks anew while the listener still holds the first request, is no stranger for that.
TEST(Programs, a_listener_that_answers_late_is_connected_to_at_last) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const int seconds : {1, 30, 35})
      connect_late(seed, static_cast<double>(seed % 4) * 0.15, Duration::seconds(seconds));
}

}  // namespace
}  // namespace verbena
