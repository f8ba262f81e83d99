// SPDX-License-Identifier: Apache-2.0
// Connecting in numbers, again and again, and with marks on the packets.
#include <unistd.h>

#include <fstream>
#include <limits>

#include "async/engine_state.h"
#include "base/sanitizer.h"
#include "test_pair.h"
#include "verbena/testing/virtual_network.h"

namespace verbena {
namespace {

using test::bytes_of;
using test::counter;
using test::expect_error;
using test::must;
using test::text_of;

TEST(Many, a_hundred_and_twenty_connections_come_through_one_listener) {
  constexpr std::size_t kMany = 120;
  Device client = must(Device::open()), server = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(client));
  must(engine.add(server));
  Listener listener = must(Listener::create(engine, {.device = &server}));
  ConnectionOptions small;
  small.queues = {4, 4, 1, 1, 16};
  std::vector<Connection> accepted;
  std::size_t refused = 0;
  // The listener looks at what each brings along, and takes those it likes.
  listener.on_request([&] {
    auto request = listener.poll_request();
    if (!request) return;
    if (text_of(request->private_data()).substr(0, 4) == "bad ") {
      must(request->reject(bytes_of("not you")));
      ++refused;
      return;
    }
    accepted.push_back(must(request->accept(small, request->private_data())));
  });
  std::vector<Connection> made;
  for (std::size_t i = 0; i < kMany; ++i) {
    const std::string name = "client " + std::to_string(i);
    made.push_back(must(Connection::connect(engine, listener.address().to_string(), small, bytes_of(name))));
    EXPECT_EQ(text_of(made.back().private_data()), name);
    if (i % 40 != 0) continue;
    expect_error(Connection::connect(engine, listener.address().to_string(), small, bytes_of("bad " + name)),
                 ErrorCode::Rejected, "not you");
  }
  EXPECT_EQ(refused, kMany / 40);
  ASSERT_EQ(accepted.size(), kMany);
  std::vector<std::uint64_t> cells(kMany);
  MemoryRegion region = must(server.register_memory(cells));
  std::vector<std::unique_ptr<Operation>> all;
  for (std::size_t i = 0; i < kMany; ++i) {
    all.push_back(std::make_unique<Operation>());
    made[i].fetch_and_add(*all.back(), must(region.remote(i * 8, 8)), i + 1);
  }
  for (auto& operation : all) must(operation->wait());
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_EQ(cells[i], i + 1);
}

// Whether some IP header in a capture of ours begins with these bytes.
bool has_packet_beginning(const std::string& file, std::string_view bytes) {
  std::ifstream in(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  return all.find(bytes) != std::string::npos;
}

// All keep-alives are due at once behind it.
TEST(Many, ten_thousand_connections_by_packets_outlast_a_pause_and_carry_a_write_each) {
  constexpr std::size_t kConnections = kSanitized ? 500 : 10'000;
  test::Pair pair({}, {.path = PathChoice::Roce});
  ConnectionOptions options;
  options.queues.max_send_requests = options.queues.max_receive_requests = 4;
  pair.server_options = options;
  std::vector<Connection> near;
  for (std::size_t i = 0; i < kConnections; ++i) near.push_back(pair.connect(options));
  ::usleep(1'500'000);
  pair.engine.run_until([] { return false; }, Duration::seconds(2));
  const MemoryRegion from = must(pair.client.allocate_memory(64)), to = must(pair.server.allocate_memory(64));
  std::size_t lost = 0;
  for (Connection& connection : near) {
    const auto done = connection.write(from.local(), to.remote()).wait();
    if (!done && ++lost < 5) ADD_FAILURE() << done.error().to_string();
  }
  EXPECT_EQ(lost, 0u);
}

TEST(Marks, traffic_class_is_on_the_packets_of_both_directions) {
  const std::string file = ::testing::TempDir() + "marks.pcapng";
  {
    OpenOptions capturing;
    capturing.pcap_file = file;
    Device device = must(Device::open(capturing)), peer = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(device));
    must(engine.add(peer));
    Listener listener = must(Listener::create(engine, {.device = &peer}));
    std::optional<Connection> far;
    listener.on_request([&] { far.emplace(must(listener.poll_request()->accept())); });
    ConnectionOptions options;
    options.traffic_class = 0x68;
    options.flow_label = 0x12345;
    Connection near = must(Connection::connect(engine, listener.address().to_string(), options));
    MemoryRegion memory = must(peer.allocate_memory(64)), own = must(device.allocate_memory(64));
    must(near.read(own.local(), memory.remote()).wait());
    using ::testing::Contains, ::testing::HasSubstr;
    EXPECT_THAT(near.explain(), Contains(HasSubstr("traffic class 104 (DSCP 26), flow label 74565")));
    EXPECT_THAT(far->explain(), Contains(HasSubstr("traffic class 104")));
    must(near.close());
  }
  // IPv4 headers of a READ request (a datagram of 60 bytes) and of its response of 64 bytes (112).
  EXPECT_TRUE(has_packet_beginning(file, std::string_view("\x45\x68\x00\x3c", 4)));
  EXPECT_TRUE(has_packet_beginning(file, std::string_view("\x45\x68\x00\x70", 4)));
  std::remove(file.c_str());
}

TEST(Marks, those_of_queue_pairs_connected_by_hand_are_each_side_s_own) {
  const std::string file = ::testing::TempDir() + "marks_by_hand.pcapng";
  {
    OpenOptions capturing;
    capturing.pcap_file = file;
    Device device = must(Device::open(capturing)), peer = must(Device::open());
    CompletionQueue queue = must(device.create_completion_queue(4)), idle = must(peer.create_completion_queue(4));
    QueuePair near = must(device.create_queue_pair(queue)), far = must(peer.create_queue_pair(idle));
    must(near.to_init());
    expect_error(near.to_rtr(far.address(), {}, {.flow_label = 1 << 20}), ErrorCode::InvalidArgument, "1048576",
                 "1048575");
    must(near.to_rtr(far.address(), {}, {.traffic_class = 0x68, .flow_label = 0xfffff}));
    must(near.to_rts());
    EXPECT_EQ(must(near.query()).address.traffic_class, 0x68);
    EXPECT_EQ(must(near.query()).address.flow_label, 0xfffffu);
    must(far.connect(near.address(), {}, {.traffic_class = 0x28}));
    MemoryRegion memory = must(peer.allocate_memory(64)), own = must(device.allocate_memory(64));
    const ScatterGather piece = own.local();
    SendRequest read;
    read.opcode = SendOpcode::RdmaRead;
    read.local = {&piece, 1};
    read.remote_address = memory.remote().address;
    read.rkey = memory.remote().rkey;
    ASSERT_TRUE(near.post_send(read));
    std::optional<Completion> done;
    while (!(done = queue.poll_one())) peer.progress();
    EXPECT_EQ(done->status, CompletionStatus::Success);
  }
  // As above: the request, and the response as the peer marks it.
  EXPECT_TRUE(has_packet_beginning(file, std::string_view("\x45\x68\x00\x3c", 4)));
  EXPECT_TRUE(has_packet_beginning(file, std::string_view("\x45\x28\x00\x70", 4)));
  std::remove(file.c_str());
}

TEST(Marks, a_flow_label_has_twenty_bits) {
  test::Pair pair;
  ConnectionOptions options;
  options.flow_label = 1 << 20;
  expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, "1048576", "1048575");
}

TEST(Retry, a_server_that_comes_late_is_met) {
  test::Pair pair;
  const std::string address = pair.listener->address().to_string();
  const std::uint16_t port = pair.listener->port();
  pair.listener.reset();
  std::optional<Listener> late;
  std::vector<Connection> accepted;
  RetryPolicy policy;
  policy.first_pause = Duration::milliseconds(1);
  Reconnector reconnector(pair.engine, address, {}, policy, bytes_of("again"));
  std::vector<Duration> pauses;
  reconnector.on_failure([&](const Error& error, std::uint32_t attempt, Duration pause) {
    EXPECT_EQ(error.code(), ErrorCode::ConnectionRefused);
    pauses.push_back(pause);
    if (attempt != 3) return;
    late.emplace(must(Listener::create(pair.engine, {.port = port, .device = &pair.server})));
    late->on_request([&] { accepted.push_back(must(late->poll_request()->accept())); });
  });
  Connection near = must(reconnector.connect());
  EXPECT_EQ(reconnector.attempts(), 4u);
  EXPECT_FALSE(reconnector.last_error());
  EXPECT_EQ(text_of(accepted.back().private_data()), "again");
  ASSERT_EQ(pauses.size(), 3u);
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    EXPECT_GE(pauses[i], Duration::microseconds(500) * (1 << i));
    EXPECT_LE(pauses[i], Duration::milliseconds(1) * (1 << i));
  }
}

// Nobody there said no: the request waited when the listener went.
TEST(Retry, outlasts_a_server_that_goes_while_the_request_waits) {
  test::Pair pair;
  const std::string address = pair.listener->address().to_string();
  const std::uint16_t port = pair.listener->port();
  std::vector<Connection> accepted;
  pair.listener->on_request([&] {
    pair.engine.spawn([](test::Pair& p, std::uint16_t at, std::vector<Connection>& all) -> Task<void> {
      p.listener.reset();
      co_await p.engine.sleep(Duration::milliseconds(5));
      p.listener.emplace(must(Listener::create(p.engine, {.port = at, .device = &p.server})));
      p.listener->on_request([&] { all.push_back(must(p.listener->poll_request()->accept())); });
    }(pair, port, accepted));
  });
  RetryPolicy policy;
  policy.first_pause = Duration::milliseconds(10);
  Reconnector reconnector(pair.engine, address, {}, policy);
  const Connection near = must(reconnector.connect());
  EXPECT_GE(reconnector.attempts(), 2u);
  EXPECT_EQ(accepted.size(), 1u);
}

// They take no place of those that come, however many they are.
TEST(Listening, requests_that_were_given_up_are_let_go) {
  test::Pair pair;
  int asked = 0;
  pair.listener->on_request([&] { ++asked; });
  AttachedDevice& there = *pair.engine.state().find(&pair.server);
  for (int round = 1; round <= 5; ++round) {
    ConnectionOptions options;
    options.connect_timeout = Duration::milliseconds(20);
    const std::string address = pair.listener->address().to_string();
    while (asked != round) EXPECT_FALSE(Connection::connect(pair.engine, address, options));
    EXPECT_TRUE(pair.engine.run_until([&] { return there.connections.empty(); }, Duration::seconds(10)));
  }
  EXPECT_FALSE(pair.listener->poll_request());
}

// Of which nobody has told the program yet: its engine did not run meanwhile.
TEST(Listening, who_answers_a_request_that_was_given_up_is_told_so) {
  Device client = must(Device::open()), server = must(Device::open());
  ProgressEngine near = must(ProgressEngine::create(client)), far = must(ProgressEngine::create(server));
  Listener listener = must(Listener::create(far));
  // One that was given up before it was seen here is asked for again.
  const auto given_up_request = [&] {
    for (;;) {
      Connection asks =
          must(Connection::prepare(near, ConnectionOptions{.connect_timeout = Duration::milliseconds(50)}));
      bool over = false;
      const auto ask = [&]() -> Task<void> {
        EXPECT_FALSE(co_await asks.async_connect_to(listener.address().to_string()));
        over = true;
      };
      near.spawn(ask());
      std::optional<ConnectionRequest> request;
      while (!over) {
        near.run_once();
        if (request) continue;
        far.run_once();
        request = listener.poll_request();
      }
      if (request) return std::move(*request);
    }
  };
  // Its device hears of it when it looks.
  constexpr int kPatience = 50;
  auto accepted = given_up_request().accept();
  for (int i = 0; accepted && i < kPatience; ++i) accepted = given_up_request().accept();
  expect_error(accepted, ErrorCode::ConnectionLost, "accept ", "the peer has given up meanwhile");
  auto rejected = given_up_request().reject();
  for (int i = 0; rejected && i < kPatience; ++i) rejected = given_up_request().reject();
  expect_error(rejected, ErrorCode::ConnectionLost, "reject ", "the peer has given up meanwhile");
}

// Its engine need not run for that, nor ever again.
TEST(Listening, requests_that_nobody_has_looked_at_are_refused_when_the_listener_goes) {
  Device client = must(Device::open()), server = must(Device::open());
  ProgressEngine near = must(ProgressEngine::create(client)), far = must(ProgressEngine::create(server));
  std::optional<Listener> listener = must(Listener::create(far));
  Connection asks = must(Connection::prepare(near));
  bool over = false;
  const auto ask = [&]() -> Task<void> {
    expect_error(co_await asks.async_connect_to(listener->address().to_string()), ErrorCode::ConnectionRefused);
    over = true;
  };
  near.spawn(ask());
  while (counter(server, "rcvd_cm_pkts") == 0) near.run_once();
  listener.reset();
  near.run_until([&] { return over; });
}

TEST(Listening, who_accepts_takes_the_path_mtu_that_was_asked_for) {
  auto network = must(testing::VirtualNetwork::create(1));
  auto near = must(network.add_host()), far = must(network.add_host());
  Listener listener = must(Listener::create(far.engine(), {.port = 7000}));
  MemoryRegion here = must(near.device().allocate_memory(1000)), there = must(far.device().allocate_memory(1000));
  for (const std::uint32_t asked : {256u, 1024u}) {
    bool over = false;
    const auto serve = [&]() -> Task<void> {
      const Connection accepted = must(co_await listener.async_accept(ConnectionOptions{.path_mtu = 512}));
      EXPECT_EQ(accepted.path_mtu(), asked);
      while (!over) co_await far.engine().sleep(Duration::milliseconds(1));
    };
    far.engine().spawn(serve());
    Connection asks =
        must(Connection::connect(near.engine(), listener.address().to_string(), ConnectionOptions{.path_mtu = asked}));
    EXPECT_EQ(asks.path_mtu(), asked);
    must(asks.write(here.local(), there.remote()).wait());
    over = true;
    must(network.run_for(Duration::milliseconds(10)));
  }
}

TEST(Closing, says_that_not_everything_was_sent_also_where_the_peer_closed_first) {
  auto network = must(testing::VirtualNetwork::create(7));
  auto near = must(network.add_host()), far = must(network.add_host());
  Listener listener = must(Listener::create(far.engine(), {.port = 7000}));
  std::optional<Connection> accepted;
  const auto serve = [&]() -> Task<void> { accepted.emplace(must(co_await listener.async_accept())); };
  far.engine().spawn(serve());
  Connection connection = must(Connection::connect(near.engine(), listener.address().to_string()));
  must(network.run_until([&] { return accepted.has_value(); }));
  MemoryRegion memory = must(near.device().allocate_memory(8));
  Operation unsent = connection.send(memory.local());
  const auto close = [&]() -> Task<void> { static_cast<void>(co_await accepted->async_close()); };
  far.engine().spawn(close());
  must(network.run_until([&] { return connection.closed(); }));
  expect_error(connection.close(), ErrorCode::Disconnected);
}

TEST(Closing, twice_while_it_connects_ends_both_and_the_connecting) {
  auto network = must(testing::VirtualNetwork::create(7));
  auto near = must(network.add_host()), far = must(network.add_host());
  const Listener listener = must(Listener::create(far.engine(), {.port = 7000}));
  Connection connection = must(Connection::prepare(near.engine()));
  int ended = 0;
  const auto connect = [&]() -> Task<void> {
    expect_error(co_await connection.async_connect_to(listener.address().to_string()), ErrorCode::Cancelled);
    ++ended;
  };
  const auto close = [&](Duration timeout, std::optional<ErrorCode> expected) -> Task<void> {
    const auto closed = co_await connection.async_close(timeout);
    EXPECT_EQ(closed ? std::nullopt : std::optional(closed.error().code()), expected);
    ++ended;
  };
  near.engine().spawn(connect());
  near.engine().spawn(close(Duration::milliseconds(100), ErrorCode::TimedOut));
  near.engine().spawn(close(Duration::seconds(2), std::nullopt));
  must(network.run_until([&] { return ended == 3; }));
}

TEST(Listening, who_accepted_hears_that_the_peer_gave_up) {
  auto network = must(testing::VirtualNetwork::create(1));
  auto near = must(network.add_host()), far = must(network.add_host());
  Listener listener = must(Listener::create(far.engine(), {.port = 7000}));
  auto asks = std::make_unique<Connection>(must(Connection::prepare(near.engine())));
  const auto ask = [&]() -> Task<void> {
    expect_error(co_await asks->async_connect_to(listener.address().to_string()), ErrorCode::Cancelled);
  };
  near.engine().spawn(ask());
  bool over = false;
  const auto serve = [&]() -> Task<void> {
    auto request = must(co_await listener.async_request());
    network.cut(far, near);
    Connection accepted = must(request.accept());
    expect_error(co_await accepted.async_established(), ErrorCode::ConnectionLost, "the peer has given up");
    over = true;
  };
  far.engine().spawn(serve());
  must(network.run_for(Duration::milliseconds(50)));
  asks.reset();
  must(network.run_until([&] { return over; }));
}

TEST(Connecting, to_what_is_no_address_of_a_host_fails_at_once) {
  test::Pair pair;
  for (const char* address : {"0.0.0.0:7471", "224.0.0.1:9", "0.1.2.3:4", "255.255.255.255:9"})
    expect_error(Connection::connect(pair.engine, address), ErrorCode::InvalidArgument, address,
                 "no address of a host");
}

TEST(Connecting, a_queue_pair_to_what_none_can_have_is_refused) {
  test::Pair pair;
  CompletionQueue completions = must(pair.client.create_completion_queue(16));
  const auto refusal = [&](auto change) {
    QueuePair queues = must(pair.client.create_queue_pair(completions));
    QueuePairAddress peer = queues.address();
    change(peer);
    return queues.connect(peer);
  };
  expect_error(refusal([](QueuePairAddress& peer) { peer.gid = Gid::from_ipv4(224, 0, 0, 1); }),
               ErrorCode::InvalidArgument, "GID 224.0.0.1");
  expect_error(refusal([](QueuePairAddress& peer) { peer.qpn = Qpn{1}; }), ErrorCode::InvalidArgument, "number 1 ");
  must(refusal([](QueuePairAddress&) {}));
}

TEST(Retry, ends_where_the_policy_says_and_tells_why_the_last_attempt_failed) {
  test::Pair pair;
  const std::string address = pair.listener->address().to_string();
  pair.listener.reset();
  RetryPolicy policy;
  policy.first_pause = policy.longest_pause = Duration::milliseconds(1);
  policy.max_attempts = 3;
  expect_error(connect_with_retry(pair.engine, address, {}, policy), ErrorCode::ConnectionRefused, "attempt 3",
               "nobody listens");
  policy.max_attempts = 0;
  policy.give_up_after = Duration::milliseconds(30);
  const auto late = connect_with_retry(pair.engine, address, {}, policy);
  ASSERT_FALSE(late);
  // The last attempt may have had no time left to be refused.
  const ErrorCode code = late.error().code();
  EXPECT_TRUE(code == ErrorCode::ConnectionRefused || code == ErrorCode::Unreachable);
  EXPECT_NE(late.error().to_string().find("out of time"), std::string::npos);
}

TEST(Retry, stops_when_told_and_at_what_no_repetition_cures) {
  test::Pair pair;
  const std::string address = pair.listener->address().to_string();
  Reconnector wrong(pair.engine, "nonsense", {});
  expect_error(wrong.connect(), ErrorCode::InvalidArgument);
  EXPECT_EQ(wrong.attempts(), 1u);
  pair.listener->on_request([&] { must(pair.listener->poll_request()->reject(bytes_of("full"))); });
  expect_error(connect_with_retry(pair.engine, address), ErrorCode::Rejected, "full");
  pair.listener.reset();
  RetryPolicy policy;
  policy.first_pause = Duration::seconds(3600);
  policy.longest_pause = Duration::seconds(3600);
  policy.give_up_after = Duration::forever();
  Reconnector reconnector(pair.engine, address, {}, policy);
  reconnector.on_failure([&](const Error&, std::uint32_t, Duration) { reconnector.stop(); });
  expect_error(reconnector.connect(), ErrorCode::Cancelled, "1 attempt", "ConnectionRefused");
}

TEST(Retry, tells_failures_to_a_handler_that_sets_another) {
  test::Pair pair;
  const std::string address = pair.listener->address().to_string();
  pair.listener.reset();
  Reconnector reconnector(pair.engine, address, {},
                          {.first_pause = Duration::milliseconds(1), .max_attempts = 3});
  const std::string held(100, 'x');
  std::string seen;
  int told_other = 0;
  reconnector.on_failure([&reconnector, &seen, &told_other, held](const Error&, std::uint32_t, Duration) {
    reconnector.on_failure([&told_other](const Error&, std::uint32_t, Duration) { ++told_other; });
    seen = held;
  });
  expect_error(reconnector.connect(), ErrorCode::ConnectionRefused);
  EXPECT_EQ(seen, held);
  EXPECT_EQ(told_other, 1);
}

TEST(Retry, that_is_stopped_ends_as_cancelled_though_its_attempt_succeeds) {
  test::Pair pair;
  Reconnector reconnector(pair.engine, pair.listener->address().to_string());
  pair.listener->on_request([&] {
    reconnector.stop();
    auto request = pair.listener->poll_request();
    if (request) pair.accepted.push_back(must(request->accept()));
  });
  expect_error(reconnector.connect(), ErrorCode::Cancelled);
}

TEST(Retry, that_is_stopped_ends_as_cancelled_though_its_last_attempt_fails) {
  test::Pair pair;
  Reconnector reconnector(pair.engine, pair.listener->address().to_string(), {}, {.max_attempts = 1});
  pair.listener->on_request([&] {
    reconnector.stop();
    auto request = pair.listener->poll_request();
    if (request) must(request->reject());
  });
  expect_error(reconnector.connect(), ErrorCode::Cancelled);
}

TEST(Retry, pauses_of_a_policy_that_makes_no_sense_neither_overflow_nor_go_back) {
  auto network = must(testing::VirtualNetwork::create(8));
  testing::VirtualHost host = must(network.add_host());
  for (const Duration first : {Duration{-1}, Duration{std::numeric_limits<std::int64_t>::max() / 2 + 1}}) {
    Reconnector reconnector(host.engine(), "10.0.0.1:1", {},
                            {.first_pause = first, .longest_pause = Duration::forever(), .max_attempts = 9,
                             .give_up_after = Duration::forever()});
    int told = 0;
    reconnector.on_failure([&](const Error&, std::uint32_t, Duration pause) {
      ++told;
      EXPECT_GE(pause.ns, 0);
      if (pause > Duration::seconds(1'000'000)) reconnector.stop();
    });
    EXPECT_FALSE(reconnector.connect());
    EXPECT_GE(told, 1);
  }
}

TEST(Retry, has_no_time_at_all_where_the_policy_gives_less_than_none) {
  test::Pair pair;
  const Instant begun = pair.engine.now();
  const RetryPolicy policy{.give_up_after = {std::numeric_limits<std::int64_t>::min()}};
  EXPECT_FALSE(connect_with_retry(pair.engine, "127.200.1.2:7471", {}, policy));
  EXPECT_LT((pair.engine.now() - begun).ns, Duration::seconds(3).ns);
}

}  // namespace
}  // namespace verbena
