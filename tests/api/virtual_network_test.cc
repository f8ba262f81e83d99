// SPDX-License-Identifier: Apache-2.0
// Programs in virtual time, by the public API alone.
#include "verbena/testing/virtual_network.h"

#include <limits>
#include <stdexcept>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using testing::NetworkFaults;
using testing::VirtualHost;
using testing::VirtualNetwork;

constexpr Duration kPatience = Duration::seconds(60);
constexpr const char* kServer = "10.0.0.1:7471";

VirtualNetwork network_of(std::uint64_t seed, const NetworkFaults& faults = {}) {
  return must(VirtualNetwork::create(seed, faults));
}

struct Served {
  int messages = 0;
  std::optional<Error> end;  // why its client is gone
};

// Sends back what one client sends.
Task<void> serve(VirtualHost host, Served& served) {
  Listener listener = must(Listener::create(host.engine(), {.port = 7471}));
  Connection client = must(co_await listener.async_accept({}, kPatience));
  MemoryRegion memory = must(host.device().allocate_memory(sizeof(int)));
  while (!served.end) {
    auto end = co_await client.receive(memory.local());
    if (end) {
      ++served.messages;
      end = co_await client.send(memory.local());
    }
    if (!end) served.end = end.error();
  }
}

Task<Result<Connection>> connect(VirtualHost host) {
  return Connection::async_connect(host.engine(), kServer, {.connect_timeout = kPatience});
}

// Sends a number and waits for it.
Task<Result<void>> ask(Connection& server, const MemoryRegion& memory, int number) {
  std::memcpy(memory.data(), &number, sizeof number);
  Operation answer = server.receive(memory.local(sizeof(int), sizeof(int)));
  auto sent = co_await server.send(memory.local(0, sizeof(int)));
  if (!sent) co_return sent.error();
  auto got = co_await answer;
  if (!got) co_return got.error();
  EXPECT_EQ(std::memcmp(memory.data(), memory.data() + sizeof(int), sizeof(int)), 0);
  co_return {};
}

Task<Result<int>> call(VirtualHost host, int messages) {
  auto server = co_await connect(host);
  if (!server) co_return server.error();
  MemoryRegion memory = must(host.device().allocate_memory(2 * sizeof(int)));
  int answered = 0;
  for (; answered < messages; ++answered) {
    auto ok = co_await ask(*server, memory, answered);
    if (!ok) co_return ok.error();
    co_await host.engine().sleep(Duration::milliseconds(1));
  }
  auto closed = co_await server->async_close(kPatience);
  if (!closed) co_return closed.error();
  co_return answered;
}

// A server and one client.
struct World {
  explicit World(VirtualNetwork made) : network(std::move(made)) {
    server.engine().spawn(serve(server, served));
  }
  VirtualNetwork network;
  VirtualHost server = must(network.add_host());
  VirtualHost client = must(network.add_host());
  Served served;
};

Task<void> sleep(ProgressEngine& engine, Duration how_long) { co_await engine.sleep(how_long); }

TEST(VirtualNetwork, a_network_that_loses_and_damages_costs_no_message) {
  World world(network_of(1, {.loss = 0.1, .duplicate = 0.05, .corrupt = 0.05}));
  EXPECT_EQ(must(world.network.run(world.client, call(world.client, 200))), 200);
  must(world.network.run_until([&] { return world.served.end.has_value(); }));
  EXPECT_EQ(world.served.messages, 200);
  expect_error(*world.served.end, ErrorCode::Disconnected);
  const testing::NetworkCounters seen = world.network.counters();
  EXPECT_GT(seen.lost, 20u);
  EXPECT_GT(seen.corrupted, 10u);
  EXPECT_GT(seen.duplicated, 10u);
  EXPECT_GT(seen.sent, 800u);
  EXPECT_EQ(seen.cut_off + seen.overflowed, 0u);
}

TEST(VirtualNetwork, one_seed_repeats_a_run_and_another_gives_another) {
  struct Seen {
    std::uint64_t hash, lost;
    Instant end;
    bool operator==(const Seen&) const = default;
  };
  const auto run = [](std::uint64_t seed) {
    World world(network_of(seed, {.loss = 0.05, .burst = 0.01}));
    EXPECT_EQ(must(world.network.run(world.client, call(world.client, 50))), 50);
    return Seen{world.network.hash(), world.network.counters().lost, world.network.now()};
  };
  const Seen first = run(7), again = run(7), other = run(8);
  EXPECT_EQ(first, again);
  EXPECT_NE(first.hash, other.hash);
}

TEST(VirtualNetwork, hours_pass_when_nobody_has_anything_to_do) {
  VirtualNetwork network = network_of(1);
  VirtualHost host = must(network.add_host());
  const Instant begin = network.now();
  must(network.run(host, sleep(host.engine(), Duration::seconds(3600)), Duration::seconds(3600)));
  EXPECT_EQ(network.now() - begin, Duration::seconds(3600));
  must(network.run_for(Duration::seconds(1000)));
  EXPECT_EQ(network.now() - begin, Duration::seconds(4600));
  EXPECT_EQ(host.engine().now(), network.now());
  EXPECT_EQ(host.device().now(), network.now());
}

TEST(VirtualNetwork, hosts_have_addresses_in_their_order_and_say_where_they_are) {
  VirtualNetwork network = network_of(42);
  EXPECT_EQ(must(network.add_host()).address(), Gid::from_ipv4(10, 0, 0, 1));
  VirtualHost second = must(network.add_host());
  EXPECT_EQ(second.address(), second.device().address());
  EXPECT_EQ(second.address().to_string(), "10.0.0.2");
  EXPECT_THAT(second.device().explain(),
              ::testing::Contains(::testing::HasSubstr("virtual time, of seed 42")));
  EXPECT_EQ(second.engine().fd(), -1);
}

TEST(VirtualNetwork, there_is_room_for_250_hosts) {
  VirtualNetwork network = network_of(1);
  for (int i = 0; i < 250; ++i) must(network.add_host());
  expect_error(network.add_host(), ErrorCode::ResourceExhausted, "250");
}

TEST(VirtualNetwork, a_way_that_is_cut_ends_what_needs_it_by_name) {
  World world(network_of(2));
  Connection connection = must(world.network.run(world.client, connect(world.client)));
  MemoryRegion memory = must(world.client.device().allocate_memory(2 * sizeof(int)));
  must(world.network.run(world.client, ask(connection, memory, 1)));
  world.network.cut(world.server, world.client);  // what the server hears it cannot answer
  expect_error(world.network.run(world.client, ask(connection, memory, 2)), ErrorCode::RetryExceeded,
               "10.0.0.1");
  EXPECT_EQ(world.served.messages, 2);
  EXPECT_GT(world.network.counters().cut_off, 0u);
}

TEST(VirtualNetwork, a_way_that_is_mended_in_time_costs_nothing) {
  World world(network_of(2));
  Connection connection = must(world.network.run(world.client, connect(world.client)));
  MemoryRegion memory = must(world.client.device().allocate_memory(2 * sizeof(int)));
  world.network.cut(world.client, world.server);
  world.network.after(Duration::milliseconds(100), [&] { world.network.mend(); });
  const Instant begin = world.network.now();
  must(world.network.run(world.client, ask(connection, memory, 1)));
  EXPECT_GE(world.network.now() - begin, Duration::milliseconds(100));
  EXPECT_GT(world.network.counters().cut_off, 0u);
}

TEST(VirtualNetwork, a_host_that_is_paused_goes_on_where_it_stood) {
  World world(network_of(3));
  Connection connection = must(world.network.run(world.client, connect(world.client)));
  MemoryRegion memory = must(world.client.device().allocate_memory(2 * sizeof(int)));
  world.server.pause();
  world.network.after(Duration::milliseconds(200), [&] {
    EXPECT_EQ(world.served.messages, 0);
    world.server.resume();
  });
  must(world.network.run(world.client, ask(connection, memory, 1)));
  EXPECT_EQ(world.served.messages, 1);
}

TEST(VirtualNetwork, who_talks_to_a_host_that_crashes_notices) {
  World world(network_of(4));
  must(world.network.run(world.client, [](World& in) -> Task<Result<void>> {
    Connection connection = must(co_await connect(in.client));
    MemoryRegion memory = must(in.client.device().allocate_memory(2 * sizeof(int)));
    must(co_await ask(connection, memory, 1));
    in.server.crash();
    in.server.resume();  // it stays as it is
    // Who only waits learns it, too.
    auto message = co_await connection.receive(memory.local());
    expect_error(message, ErrorCode::ConnectionLost, "keep-alive to 10.0.0.1", "the peer stopped answering");
    EXPECT_EQ(connection.phase(), ConnectionPhase::Broken);
    co_return {};
  }(world)));
  EXPECT_FALSE(world.served.end);
  EXPECT_EQ(world.served.messages, 1);
}

TEST(VirtualNetwork, nobody_answers_at_an_address_without_a_host) {
  VirtualNetwork network = network_of(5);
  VirtualHost host = must(network.add_host());
  expect_error(network.run(host, Connection::async_connect(host.engine(), "10.0.0.77:7471")),
               ErrorCode::Unreachable, "10.0.0.77");
  EXPECT_EQ(network.counters().cut_off, network.counters().sent);
}

TEST(VirtualNetwork, a_listener_whose_program_takes_nothing_is_told_apart_from_none) {
  VirtualNetwork network = network_of(5);
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  const Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  expect_error(network.run(client, connect(client)), ErrorCode::TimedOut, "no answer within",
               "the device there has the request", "does its engine run?");
}

TEST(VirtualNetwork, what_finds_no_room_at_a_host_is_sent_again) {
  constexpr std::size_t kBytes = 20'000;  // twenty packets
  VirtualNetwork network = network_of(6, {.room = 4});
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  std::size_t received = 0;
  const auto receive = [](VirtualHost host, std::size_t& bytes) -> Task<void> {
    Listener listener = must(Listener::create(host.engine(), {.port = 7471}));
    Connection peer = must(co_await listener.async_accept());
    MemoryRegion memory = must(host.device().allocate_memory(kBytes));
    bytes = must(co_await peer.receive(memory.local())).bytes;
  };
  server.engine().spawn(receive(server, received));
  const auto send = [](VirtualHost host) -> Task<void> {
    Connection peer = must(co_await connect(host));
    MemoryRegion memory = must(host.device().allocate_memory(kBytes));
    static_cast<void>(co_await peer.send(memory.local()));  // its end is another matter: the peer closes
  };
  must(network.run(client, send(client)));
  EXPECT_EQ(received, kBytes);
  EXPECT_GT(network.counters().overflowed, 0u);
}

TEST(VirtualNetwork, faults_that_cannot_be_are_refused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](const NetworkFaults& faults, const char* name) {
    expect_error(VirtualNetwork::create(1, faults), ErrorCode::InvalidArgument, name);
    VirtualNetwork network = network_of(1);
    expect_error(network.change_faults(faults), ErrorCode::InvalidArgument, name);
  };
  refused({.loss = -0.1}, "loss");
  refused({.loss = kNan}, "loss");
  refused({.duplicate = 1.5}, "duplicate");
  refused({.corrupt = std::numeric_limits<double>::infinity()}, "corrupt");
  refused({.burst = kNan}, "burst");
  refused({.burst_time = Duration{-1}}, "burst_time");
  refused({.delay = Duration{-1}}, "delay");
  refused({.jitter = Duration::forever()}, "jitter");
  refused({.replay = Duration{-1}}, "replay");
  must(VirtualNetwork::create(1, {.loss = 1, .delay = Duration::seconds(86'400)}));
  expect_error(VirtualNetwork::create(1, {}, {.path_mtu = 1000}), ErrorCode::InvalidArgument, "path MTU",
               "1000");
}

TEST(VirtualNetwork, faults_change_while_programs_run) {
  World world(network_of(8));
  world.network.after(Duration::milliseconds(20), [&] { must(world.network.change_faults({.loss = 1})); });
  world.network.after(Duration::milliseconds(120), [&] { must(world.network.change_faults({})); });
  EXPECT_EQ(must(world.network.run(world.client, call(world.client, 50))), 50);
  EXPECT_GT(world.network.counters().lost, 0u);
}

TEST(VirtualNetwork, the_path_mtu_is_as_asked_for) {
  VirtualNetwork network = must(VirtualNetwork::create(1, {}, {.path_mtu = 4096}));
  EXPECT_EQ(must(network.add_host()).device().info().active_mtu, 4096u);
}

TEST(VirtualNetwork, a_limit_that_comes_first_is_told_with_the_seed) {
  World world(network_of(9));
  const Instant begin = world.network.now();
  const auto end = world.network.run(world.client, call(world.client, 1 << 30), Duration::seconds(2));
  expect_error(end, ErrorCode::DeadlineExceeded, "seed 9", "not over after 2");
  EXPECT_GE(world.network.now() - begin, Duration::seconds(2));
  // The network is none the worse.
  expect_error(world.network.run_until([] { return false; }, Duration::milliseconds(1)),
               ErrorCode::DeadlineExceeded);
}

TEST(VirtualNetwork, a_task_that_does_not_end_in_time_is_destroyed) {
  struct Guard {
    explicit Guard(bool& its_flag) : flag(its_flag) {}
    ~Guard() { flag = true; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    bool& flag;
  };
  VirtualNetwork network = network_of(1);
  VirtualHost host = must(network.add_host());
  bool gone = false;
  const auto body = [](ProgressEngine& engine, bool& flag) -> Task<void> {
    const Guard guard(flag);
    co_await engine.sleep(Duration::seconds(3600));
  };
  expect_error(network.run(host, body(host.engine(), gone), Duration::seconds(1)),
               ErrorCode::DeadlineExceeded);
  EXPECT_TRUE(gone);
}

TEST(VirtualNetwork, what_will_never_happen_is_told_with_the_seed) {
  VirtualNetwork network = network_of(10);
  VirtualHost host = must(network.add_host());
  Listener listener = must(Listener::create(host.engine()));
  expect_error(network.run(host, listener.async_accept()), ErrorCode::TimedOut, "seed 10",
               "nothing ever will");
  const auto never = [] { return false; };
  expect_error(network.run_until(never, Duration::forever()), ErrorCode::TimedOut, "nothing ever will");
  // What only waits for a time gets there.
  const Instant at = network.now() + Duration::seconds(5);
  must(network.run_until([&] { return network.now() >= at; }, Duration::seconds(10)));
}

TEST(VirtualNetwork, nothing_happens_in_a_network_without_hosts) {
  VirtualNetwork network = network_of(1);
  expect_error(network.run_until([] { return false; }), ErrorCode::TimedOut);
  bool called = false;
  network.after(Duration::seconds(1), [&] { called = true; });
  must(network.run_until([&] { return called; }));
}

TEST(VirtualNetwork, a_program_that_stops_the_time_is_told_with_the_seed) {
  VirtualNetwork network = network_of(11);
  VirtualHost host = must(network.add_host());
  const auto spin = [](ProgressEngine& engine) -> Task<void> {
    for (;;) co_await engine.sleep(Duration{});
  };
  expect_error(network.run(host, spin(host.engine())), ErrorCode::ResourceExhausted, "seed 11",
               "time stands still");
}

TEST(VirtualNetworkDeath, a_call_that_blocks_for_ever_ends_the_process_by_name) {
  VirtualNetwork network = network_of(12);
  VirtualHost host = must(network.add_host());
  Listener listener = must(Listener::create(host.engine()));
  EXPECT_DEATH(static_cast<void>(listener.wait_request()),
               "waits in virtual time \\(seed 12.*will never happen");
}

TEST(VirtualNetworkDeath, a_host_of_another_network_is_refused_by_name) {
  VirtualNetwork network = network_of(1), other = network_of(2);
  VirtualHost here = must(network.add_host()), there = must(other.add_host());
  EXPECT_DEATH(network.cut(here, there), "of another VirtualNetwork");
  EXPECT_DEATH(static_cast<void>(network.run(there, sleep(there.engine(), Duration{}))), "of another VirtualNetwork");
}

TEST(VirtualNetwork, calls_that_block_run_all_hosts) {
  World world(network_of(13, {.loss = 0.1}));
  Connection connection =
      must(Connection::connect(world.client.engine(), kServer, {.connect_timeout = kPatience}));
  MemoryRegion memory = must(world.client.device().allocate_memory(sizeof(int)));
  for (int i = 1; i <= 20; ++i) {
    must(connection.send(memory.local()).wait());
    must(connection.receive(memory.local()).wait());
    EXPECT_EQ(world.served.messages, i);
  }
  must(connection.close(kPatience));
}

TEST(VirtualNetwork, calls_that_block_do_so_in_coroutines_too) {
  World world(network_of(19, {.loss = 0.1}));
  const auto body = [](World& in) -> Task<int> {
    Connection connection = must(co_await connect(in.client));
    MemoryRegion memory = must(in.client.device().allocate_memory(sizeof(int)));
    must(connection.send(memory.local()).wait());
    must(connection.receive(memory.local()).wait());
    co_return in.served.messages;
  };
  EXPECT_EQ(must(world.network.run(world.client, body(world))), 1);
}

TEST(VirtualNetwork, who_accepted_a_client_that_crashed_before_it_confirmed_is_told) {
  VirtualNetwork network = network_of(19);
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  std::optional<Connection> accepted;
  int told = 0;
  listener.on_request([&] {
    accepted = must(listener.poll_request()->accept());
    accepted->on_closed([&] { ++told; });
    client.crash();
  });
  client.engine().spawn([](VirtualHost host, std::string address) -> Task<void> {
    static_cast<void>(co_await Connection::async_connect(host.engine(), address));
  }(client, listener.address().to_string()));
  must(network.run_until([&] { return told != 0; }));
  EXPECT_TRUE(accepted->closed());
  expect_error(accepted->status(), ErrorCode::ConnectionLost, "the peer did not confirm");
  must(network.run_for(Duration::seconds(60)));
  EXPECT_EQ(told, 1);
}

TEST(VirtualNetwork, a_host_may_crash_in_the_middle_of_its_program) {
  World world(network_of(20));
  const auto body = [](World& in, bool& goes_on) -> Task<void> {
    Connection connection = must(co_await connect(in.client));
    in.client.crash();
    co_await in.client.engine().sleep(Duration::milliseconds(1));
    goes_on = true;
  };
  bool goes_on = false;
  world.client.engine().spawn(body(world, goes_on));
  must(world.network.run_until([&] { return world.served.end.has_value(); }));
  expect_error(*world.served.end, ErrorCode::ConnectionLost, "keep-alive");
  EXPECT_FALSE(goes_on);
}

TEST(VirtualNetwork, tasks_of_two_hosts_run_side_by_side) {
  World world(network_of(14, {.loss = 0.02}));
  VirtualHost other = must(world.network.add_host());
  Served served;
  const auto second_server = [](VirtualHost host, Served& counted) -> Task<void> {
    Listener listener = must(Listener::create(host.engine(), {.port = 7471}));
    Connection client = must(co_await listener.async_accept({}, kPatience));
    MemoryRegion memory = must(host.device().allocate_memory(8));
    while (co_await client.receive(memory.local())) ++counted.messages;
  };
  other.engine().spawn(second_server(other, served));
  const auto send = [](VirtualHost host, int messages) -> Task<int> {
    Connection peer = must(co_await Connection::async_connect(host.engine(), "10.0.0.3:7471"));
    MemoryRegion memory = must(host.device().allocate_memory(8));
    int sent = 0;
    for (; sent < messages; ++sent) must(co_await peer.send(memory.local()));
    must(co_await peer.async_close(kPatience));
    co_return sent;
  };
  const auto both = world.network.run(world.client, when_all(call(world.client, 30), send(world.client, 40)));
  const auto& [answered, sent] = must(both);
  EXPECT_EQ(must(answered), 30);
  EXPECT_EQ(sent, 40);
  must(world.network.run_until([&] { return served.messages == 40; }));
}

TEST(VirtualNetwork, a_deadline_comes_at_its_virtual_time) {
  World world(network_of(15));
  const auto body = [](World& in) -> Task<Duration> {
    Connection connection = must(co_await connect(in.client));
    MemoryRegion memory = must(in.client.device().allocate_memory(8));
    const Instant begin = in.network.now();
    const auto wait = [](Connection& from, const MemoryRegion& into) -> Task<bool> {
      co_return (co_await from.receive(into.local())).has_value();
    };
    const auto first =
        co_await when_any(wait(connection, memory), sleep(in.client.engine(), Duration::seconds(1800)));
    EXPECT_EQ(first.index(), 1u);
    co_return in.network.now() - begin;
  };
  EXPECT_EQ(must(world.network.run(world.client, body(world))), Duration::seconds(1800));
}

TEST(VirtualNetwork, an_exception_leaves_through_the_call_that_ran_it) {
  VirtualNetwork network = network_of(16);
  VirtualHost host = must(network.add_host()), other = must(network.add_host());
  const auto fail = [](ProgressEngine& engine) -> Task<int> {
    co_await engine.sleep(Duration::seconds(1));
    throw std::runtime_error("of the program");
  };
  EXPECT_THROW(static_cast<void>(network.run(host, fail(host.engine()))), std::runtime_error);
  const auto fail_alone = [](ProgressEngine& engine) -> Task<void> {
    co_await engine.sleep(Duration::seconds(1));
    throw std::logic_error("of another");
  };
  other.engine().spawn(fail_alone(other.engine()));
  EXPECT_THROW(static_cast<void>(network.run(host, sleep(host.engine(), Duration::seconds(5)))),
               std::logic_error);
  must(network.run(host, sleep(host.engine(), Duration::seconds(5))));
}

TEST(VirtualNetwork, nothing_resumes_when_its_network_ends) {
  bool resumed = false;
  const auto body = [](ProgressEngine& engine, bool& flag) -> Task<void> {
    co_await engine.sleep(Duration::milliseconds(1));
    flag = true;
  };
  {
    World world(network_of(17));
    Connection connection = must(world.network.run(world.client, connect(world.client)));
    world.client.engine().spawn([](VirtualHost host, Connection mine) -> Task<void> {
      MemoryRegion memory = must(host.device().allocate_memory(8));
      static_cast<void>(co_await mine.receive(memory.local()));
    }(world.client, std::move(connection)));
    must(world.network.run_for(Duration::milliseconds(10)));
    world.server.engine().spawn(body(world.server.engine(), resumed));
    world.network.after(Duration{}, [&] { resumed = true; });
  }
  EXPECT_FALSE(resumed);
}

TEST(VirtualNetwork, what_an_event_holds_may_ask_for_another_when_the_network_ends) {
  const auto held = std::make_shared<int>();
  {
    VirtualNetwork network = network_of(1);
    const auto asks_at_its_end = [&network](std::function<void()> f) {
      return std::shared_ptr<void>(nullptr, [&network, f = std::move(f)](void*) { network.after({}, f); });
    };
    const auto last = asks_at_its_end([held] {}), before = asks_at_its_end([last] {});
    network.after(Duration::seconds(1), [before] {});
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(VirtualNetwork, it_may_be_moved) {
  VirtualNetwork first = network_of(18);
  VirtualHost host = must(first.add_host());
  VirtualNetwork second = std::move(first);
  must(second.run(host, sleep(host.engine(), Duration::seconds(1))));
  EXPECT_EQ(second.seed(), 18u);
}

std::uint64_t packets_of(const VirtualHost& host) {
  for (const NamedCounter& counter : host.device().counters())
    if (counter.name == "sent_pkts") return counter.value;
  return 0;
}

// All are due at once then, and would be lost at once, and again when they are repeated.
TEST(VirtualNetwork, keep_alives_of_a_host_that_stood_still_leave_by_portions) {
  VirtualNetwork network = network_of(11);
  const VirtualHost server = must(network.add_host());
  VirtualHost client = must(network.add_host());
  constexpr std::size_t kConnections = 300;
  std::vector<Connection> accepted, made;
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  listener.on_request([&] { accepted.push_back(must(listener.poll_request()->accept({.keep_alive = {}}))); });
  const auto connect_all = [&]() -> Task<void> {
    for (std::size_t i = 0; i < kConnections; ++i)
      made.push_back(must(co_await Connection::async_connect(client.engine(), kServer,
                                                             {.keep_alive = Duration::milliseconds(200)})));
  };
  const auto stand_still = [&]() -> Task<void> {
    client.pause();
    co_await server.engine().sleep(Duration::seconds(1));
    client.resume();
  };
  std::uint64_t sent = 0, most = 0;
  const auto watch = [&]() -> Task<void> {
    for (int ms = 0; ms < 500; ++ms) {
      const std::uint64_t before = packets_of(client);
      co_await server.engine().sleep(Duration::milliseconds(1));
      const std::uint64_t now = packets_of(client) - before;
      sent += now;
      most = std::max(most, now);
    }
  };
  must(network.run(client, connect_all()));
  must(network.run(server, stand_still()));
  must(network.run(server, watch()));
  EXPECT_GE(sent, kConnections);
  EXPECT_LE(most, 80u);
  for (const Connection& connection : made) EXPECT_EQ(connection.phase(), ConnectionPhase::Established);
}

}  // namespace
}  // namespace verbena
