// SPDX-License-Identifier: Apache-2.0
// What users do wrong, or meet: each ends with an error that names operation, peer, cause and what to look at.
#include <atomic>
#include <thread>

#include "test_pair.h"

namespace verbena {
namespace {

using test::bytes_of;
using test::expect_error;
using test::must;
using test::Pair;

// Gives up soon where no receive is.
ConnectionOptions impatient() {
  ConnectionOptions options;
  options.reliability.rnr_retry = 2;
  return options;
}

// ---- Connecting.

TEST(Connecting, an_address_that_is_none_is_refused_with_the_reason) {
  Pair pair;
  expect_error(Connection::connect(pair.engine, "127.0.0.1"), ErrorCode::InvalidArgument, "no port");
  expect_error(Connection::connect(pair.engine, "127.0.0.1:0"), ErrorCode::InvalidArgument, "is no port");
  expect_error(Connection::connect(pair.engine, "verbena://:1/x"), ErrorCode::InvalidArgument, "no host");
}

TEST(Connecting, an_address_where_nothing_is_does_not_answer) {
  Pair pair;
  ConnectionOptions options;
  options.connect_timeout = Duration::milliseconds(300);
  expect_error(Connection::connect(pair.engine, "127.200.1.2:7471", options), ErrorCode::Unreachable,
               "connect to 127.200.1.2:7471", "no answer within 300 ms", "port 4791");
}

TEST(Connecting, a_loopback_device_does_not_reach_other_networks) {
  Pair pair;
  expect_error(Connection::connect(pair.engine, "192.0.2.1:7471"), ErrorCode::Unreachable,
               "loopback address");
  expect_error(Connection::connect(pair.engine, "[2001:db8::1]:7471"), ErrorCode::Unreachable, "IP version");
}

TEST(Connecting, a_port_where_nobody_listens_refuses) {
  Pair pair;
  const std::string address = Endpoint{pair.server.address().to_string(), 9}.to_string();
  expect_error(Connection::connect(pair.engine, address), ErrorCode::ConnectionRefused, address.c_str(),
               "nobody listens on this port");
}

TEST(Connecting, who_asks_at_its_own_address_is_told_so) {
  Pair pair;
  const std::string address = Endpoint{pair.client.address().to_string(), 9}.to_string();
  expect_error(Connection::connect(pair.engine, address), ErrorCode::ConnectionRefused, address.c_str(),
               "nobody listens on this port", "this program's own device");
  OpenOptions open;
  open.device = "127.0.0.1";
  Device first = must(Device::open(open));
  ProgressEngine engine = must(ProgressEngine::create(first));
  expect_error(Connection::connect(engine, "localhost:9"), ErrorCode::ConnectionRefused, "this program's own device");
}

TEST(Connecting, a_rejection_brings_the_words_of_the_application) {
  Pair pair;
  pair.listener->on_request([&] {
    auto request = pair.listener->poll_request();
    EXPECT_EQ(test::text_of(request->private_data()), "who am I");
    EXPECT_EQ(request->peer().host, pair.client.address().to_string());
    must(request->reject(bytes_of("members only")));
  });
  Connection connection = must(Connection::prepare(pair.engine));
  const auto result = connection.connect_to(pair.listener->address().to_string(), bytes_of("who am I"));
  expect_error(result, ErrorCode::Rejected, "the application there said no", "\"members only\"");
  EXPECT_EQ(test::text_of(connection.private_data()), "members only");
  EXPECT_EQ(connection.phase(), ConnectionPhase::Broken);
  expect_error(connection.connect_to("127.0.0.1:1"), ErrorCode::WrongState, "used already");
}

TEST(Connecting, words_that_are_too_long_are_cut) {
  Pair pair;
  pair.listener->on_request([&] { must(pair.listener->poll_request()->reject_in_words(std::string(500, 'x'))); });
  Connection connection = must(Connection::prepare(pair.engine));
  expect_error(connection.connect_to(pair.listener->address().to_string()), ErrorCode::Rejected, "said no: \"xxx");
  EXPECT_EQ(test::text_of(connection.private_data()), std::string(kMaxRejectPrivateData, 'x'));
}

TEST(Connecting, who_is_rejected_for_now_may_try_again) {
  Pair pair;
  int asked = 0;
  std::optional<Connection> accepted;
  pair.listener->on_request([&] {
    auto request = pair.listener->poll_request();
    if (++asked == 3) return void(accepted = must(request->accept()));
    must(request->reject_for_now("the table is full"));
    expect_error(request->reject_for_now(), ErrorCode::WrongState, "answered already");
  });
  const std::string address = pair.listener->address().to_string();
  expect_error(Connection::connect(pair.engine, address), ErrorCode::ResourceExhausted, "try again later",
               "\"the table is full\"");
  Reconnector again(pair.engine, address, {}, {.first_pause = Duration::milliseconds(1)});
  EXPECT_TRUE(again.connect());
  EXPECT_EQ(asked, 3);
}

TEST(Connecting, a_request_that_nobody_answers_is_rejected_when_dropped) {
  Pair pair;
  pair.listener->on_request([&] { static_cast<void>(pair.listener->poll_request()); });
  expect_error(Connection::connect(pair.engine, pair.listener->address().to_string()), ErrorCode::Rejected);
}

TEST(Connecting, a_full_backlog_says_try_again) {
  Pair pair;
  Listener small = must(Listener::create(pair.engine, {.backlog = 1, .device = &pair.server}));
  const std::string address = small.address().to_string();
  std::vector<Connection> kept;
  small.on_request([&] {
    expect_error(Connection::connect(pair.engine, address), ErrorCode::ResourceExhausted, "try again later");
    kept.push_back(must(small.poll_request()->accept()));
  });
  Connection first = must(Connection::connect(pair.engine, address));
  EXPECT_EQ(first.phase(), ConnectionPhase::Established);
}

TEST(Connecting, who_finds_no_room_for_a_connection_says_try_again) {
  Pair pair;
  CompletionQueue completions = must(pair.server.create_completion_queue(16));
  constexpr QueuePairCapabilities kSmallest{.max_send_requests = 1, .max_receive_requests = 1};
  std::vector<QueuePair> all;
  for (;;) {
    auto one = pair.server.create_queue_pair(completions, {.capabilities = kSmallest});
    if (!one) break;
    all.push_back(std::move(*one));
  }
  EXPECT_EQ(all.size(), pair.server.info().max_queue_pairs);
  bool makes_room = false;
  std::optional<Connection> accepted;
  pair.listener->on_request([&] {
    auto request = pair.listener->poll_request();
    expect_error(request->accept(), ErrorCode::ResourceExhausted, "limit");
    if (!makes_room) return;
    all.pop_back();
    accepted = must(request->accept());
  });
  const std::string address = pair.listener->address().to_string();
  expect_error(Connection::connect(pair.engine, address), ErrorCode::ResourceExhausted, "try again later");
  makes_room = true;
  EXPECT_TRUE(Connection::connect(pair.engine, address)) << "the request was not spent";
}

TEST(Connecting, private_data_that_does_not_fit_is_refused) {
  Pair pair;
  const std::string long_text(57, 'x');
  expect_error(
      Connection::connect(pair.engine, pair.listener->address().to_string(), {}, bytes_of(long_text)),
      ErrorCode::InvalidArgument, "57 bytes of private data", "at most 56");
}

TEST(Connecting, private_data_reaches_both_sides) {
  Pair pair;
  pair.server_data = bytes_of("from the server");
  Connection near = pair.connect({}, bytes_of("from the client"));
  EXPECT_EQ(test::text_of(near.private_data()), "from the server");
  EXPECT_EQ(test::text_of(pair.far_end().private_data()), "from the client");
  EXPECT_EQ(near.peer(), pair.listener->address());
  EXPECT_EQ(near.remote_qpn(), pair.far_end().local_qpn());
  EXPECT_EQ(near.path_mtu(), 4096u);
  EXPECT_FALSE(near.explain().empty());
}

TEST(Connecting, a_port_that_is_listened_on_cannot_be_taken_twice) {
  Pair pair;
  expect_error(Listener::create(pair.engine, {.port = pair.listener->port(), .device = &pair.server}),
               ErrorCode::AddressInUse, "listen");
}

TEST(Connecting, a_wait_for_a_peer_ends_with_its_timeout) {
  Pair pair;
  Listener lonely = must(Listener::create(pair.engine));
  expect_error(lonely.accept({}, Duration::milliseconds(20)), ErrorCode::TimedOut,
               "nobody connected within 20 ms");
}

// Who asked is told: nobody will answer.
TEST(Connecting, a_callback_may_destroy_the_listener_that_waits_for_a_peer) {
  Pair pair;
  const auto connect = [](ProgressEngine& engine, std::string address, std::optional<Error>& error) -> Task<void> {
    auto connection = co_await Connection::async_connect(engine, address);
    error = connection.error();
  };
  for (const bool takes : {true, false}) {
    std::optional<Listener> listener = must(Listener::create(pair.engine, {.device = &pair.server}));
    listener->on_request([&] { listener.reset(); });
    std::optional<Error> error;
    pair.engine.spawn(connect(pair.engine, listener->address().to_string(), error));
    if (takes)
      expect_error(listener->accept({}, Duration::seconds(60)), ErrorCode::Cancelled, "was destroyed");
    else
      expect_error(listener->wait_request(Duration::seconds(60)), ErrorCode::Cancelled, "was destroyed");
    EXPECT_FALSE(listener);
    EXPECT_TRUE(pair.engine.run_until([&] { return error.has_value(); }, Duration::seconds(60)));
    expect_error(*error, ErrorCode::ConnectionRefused);
  }
}

TEST(Connecting, another_listener_may_take_the_place_of_the_one_that_waits_for_a_peer) {
  Pair pair;
  Listener listener = must(Listener::create(pair.engine, {.device = &pair.server}));
  Listener next = must(Listener::create(pair.engine, {.device = &pair.server}));
  const std::string place = next.address().to_string();
  listener.on_request([&] { listener = std::move(next); });
  Connection nobody = must(Connection::prepare(pair.engine));
  Task<Result<void>> asking = nobody.async_connect_to(listener.address().to_string());
  const auto [asked, waited] = pair.engine.run(when_all(std::move(asking), listener.async_accept()));
  expect_error(asked, ErrorCode::ConnectionRefused);
  expect_error(waited, ErrorCode::Cancelled, "was destroyed");
  EXPECT_EQ(listener.address().to_string(), place);
}

TEST(Connecting, an_operation_before_the_connection_is_refused) {
  Pair pair;
  Connection connection = must(Connection::prepare(pair.engine));
  expect_error(connection.send_inline(bytes_of("early")).wait(), ErrorCode::WrongState, "not established");
}

TEST(Connecting, receives_started_before_connecting_take_the_first_messages) {
  Pair pair;
  MemoryRegion in = must(pair.client.allocate_memory(64));
  Connection near = must(Connection::prepare(pair.engine));
  Operation receive = near.receive(in.local());
  must(near.connect_to(pair.listener->address().to_string()));
  must(pair.far_end().send_inline(bytes_of("welcome")).wait());
  EXPECT_EQ(must(receive.wait()).bytes, 7u);
}

// ---- Memory.

struct Memory : ::testing::Test {
  Pair pair;
  Connection near = pair.connect(impatient());
  MemoryRegion here = must(pair.client.allocate_memory(4096));
  MemoryRegion there = must(pair.server.allocate_memory(4096));
};

TEST_F(Memory, a_wrong_key_is_refused_by_the_peer) {
  RemoteMemory wrong = there.remote();
  wrong.rkey = RKey{wrong.rkey.value() ^ 0x5a5a};
  expect_error(near.write(here.local(), wrong).wait(), ErrorCode::RemoteAccessError,
               "WRITE of 4096 bytes to 127.0.0.", "rkey 0x", "wrong or stale");
  // Both ends are out of service, and both say why.
  expect_error(near.status(), ErrorCode::RemoteAccessError, "WRITE of 4096 bytes");
  expect_error(near.send_inline(bytes_of("x")).wait(), ErrorCode::ConnectionLost, "SEND of 1 byte",
               "WRITE of 4096");
  EXPECT_TRUE(pair.engine.run_until([&] { return pair.far_end().closed(); }, Duration::seconds(10)));
  expect_error(pair.far_end().status(), ErrorCode::ConnectionLost, "this side refused a request of the peer");
}

TEST_F(Memory, a_stale_key_is_refused_by_the_peer) {
  const RemoteMemory stale = there.remote();
  there = {};
  expect_error(near.read(here.local(), stale).wait(), ErrorCode::RemoteAccessError,
               "READ of 4096 bytes from");
}

TEST_F(Memory, a_range_outside_the_region_is_refused_here_when_it_shows) {
  expect_error(there.remote().sub_range(4000, 97), ErrorCode::InvalidArgument,
               "outside a memory of 4096 bytes");
  expect_error(near.write(here.local(), must(there.remote(0, 100))).wait(), ErrorCode::InvalidArgument,
               "only 100 bytes long");
  EXPECT_EQ(near.phase(), ConnectionPhase::Established);
}

TEST_F(Memory, a_range_outside_the_region_is_refused_by_the_peer_when_forged) {
  RemoteMemory forged = there.remote();
  forged.address += 1;
  expect_error(near.write(here.local(), forged).wait(), ErrorCode::RemoteAccessError, "outside its region");
}

TEST_F(Memory, a_permission_that_was_not_given_is_refused_by_the_peer) {
  MemoryRegion read_only = must(pair.server.allocate_memory(64, Access::RemoteRead));
  must(near.read(here.local(0, 64), read_only.remote()).wait());
  expect_error(near.write(here.local(0, 64), read_only.remote()).wait(), ErrorCode::RemoteAccessError,
               "permission");
}

TEST_F(Memory, a_local_range_outside_its_region_is_a_local_error) {
  expect_error(near.send(here.local(4090, 10)).wait(), ErrorCode::LocalProtectionError, "SEND of 10 bytes",
               "live region");
}

TEST_F(Memory, memory_of_another_device_is_a_local_error) {
  expect_error(near.write(there.local(), there.remote()).wait(), ErrorCode::LocalProtectionError);
}

TEST_F(Memory, an_atomic_wants_eight_aligned_bytes) {
  expect_error(near.fetch_and_add(must(there.remote(4, 8)), 1).wait(), ErrorCode::InvalidArgument,
               "multiple of 8");
  expect_error(near.fetch_and_add(must(there.remote(0, 4)), 1).wait(), ErrorCode::InvalidArgument,
               "4 bytes long");
}

TEST_F(Memory, values_for_the_peer_survive_the_way_and_say_when_they_did_not) {
  auto bytes = there.remote().to_bytes();
  EXPECT_EQ(must(RemoteMemory::from_bytes(bytes)), there.remote());
  bytes[3] ^= std::byte{1};
  expect_error(RemoteMemory::from_bytes(bytes), ErrorCode::CorruptData, "damaged");
  expect_error(RemoteMemory::from_bytes(std::array<std::byte, 24>{}), ErrorCode::CorruptData,
               "these bytes are none");
  expect_error(RemoteMemory::from_bytes(std::span{bytes}.first(23)), ErrorCode::InvalidArgument, "needs 24");
}

// ---- Messages and queues.

TEST_F(Memory, a_message_longer_than_its_receive_breaks_both_ends) {
  Operation receive = pair.far_end().receive(there.local(0, 100));
  Operation send = near.send(here.local(0, 101));
  expect_error(receive.wait(), ErrorCode::LocalLengthError, "RECEIVE into 100 bytes from",
               "longer than this buffer");
  expect_error(send.wait(), ErrorCode::RemoteInvalidRequest, "SEND of 101 bytes", "longer than the receive");
  expect_error(pair.far_end().status(), ErrorCode::LocalLengthError);
}

TEST_F(Memory, a_message_without_a_receive_is_given_up) {
  expect_error(near.send(here.local()).wait(), ErrorCode::RnrRetryExceeded, "no receive for it", "2 tries");
}

TEST_F(Memory, one_operation_more_than_the_queue_holds_is_refused) {
  std::vector<Operation> receives(65);
  for (Operation& receive : receives) near.receive(receive, here.local());
  expect_error(receives.back().wait(), ErrorCode::QueueFull, "64 are in flight", "deeper queues");
  EXPECT_FALSE(receives.front().done());
  EXPECT_EQ(near.phase(), ConnectionPhase::Established);
}

TEST_F(Memory, five_segments_are_one_too_many) {
  const std::vector<ScatterGather> pieces(5, here.local(0, 8));
  expect_error(near.send(pieces).wait(), ErrorCode::InvalidArgument, "5 segments, at most 4");
}

TEST_F(Memory, more_inline_bytes_than_the_queue_copies_are_refused) {
  const std::string text(5000, 'x');
  expect_error(near.send_inline(bytes_of(text)).wait(), ErrorCode::InvalidArgument, "registered memory");
}

// ---- Cancelling, deadlines, ends.

TEST_F(Memory, a_deadline_takes_the_connection_out_of_service) {
  Operation other = near.receive(here.local());
  Operation receive = near.receive(here.local());
  expect_error(receive.wait(Duration::milliseconds(10)), ErrorCode::DeadlineExceeded,
               "RECEIVE into 4096 bytes", "not done before its deadline");
  expect_error(other.wait(), ErrorCode::Flushed, "passed its deadline");
  expect_error(near.status(), ErrorCode::DeadlineExceeded);
}

TEST_F(Memory, a_deadline_that_is_met_has_no_effect) {
  std::vector<std::uint64_t> cell{1};
  MemoryRegion region = must(pair.server.register_memory(cell));
  for (int i = 0; i < 3; ++i) must(near.fetch_and_add(region.remote(), 1).wait(Duration::seconds(30)));
  EXPECT_EQ(near.phase(), ConnectionPhase::Established);
}

TEST_F(Memory, cancel_ends_the_operation_by_way_of_the_connection) {
  Operation receive = near.receive(here.local());
  receive.cancel();
  expect_error(receive.wait(), ErrorCode::Cancelled, "RECEIVE into 4096 bytes", "out of service");
  EXPECT_TRUE(pair.engine.run_until([&] { return pair.far_end().closed(); }, Duration::seconds(10)));
  expect_error(pair.far_end().status(), ErrorCode::Disconnected);
}

TEST_F(Memory, destroying_an_operation_in_flight_drains_it) {
  bool called = false;
  {
    Operation receive = near.receive(here.local());
    receive.on_done([&](Operation&) { called = true; });
  }
  EXPECT_FALSE(called);
  EXPECT_TRUE(near.closed());
}

TEST_F(Memory, an_operation_outlives_its_connection) {
  std::optional<Connection> short_lived{std::move(near)};
  Operation receive = short_lived->receive(here.local());
  short_lived.reset();
  ASSERT_TRUE(receive.done());
  expect_error(receive.result(), ErrorCode::Flushed, "destroyed here");
}

TEST_F(Memory, a_callback_may_destroy_the_connection_it_belongs_to) {
  std::optional<Connection> connection{std::move(near)};
  Operation receive;
  bool done = false;
  receive.on_done([&](Operation&) {
    connection.reset();
    done = true;
  });
  connection->receive(receive, here.local());
  must(pair.far_end().send_inline(bytes_of("bye")).wait());
  EXPECT_TRUE(pair.engine.run_until([&] { return done; }, Duration::seconds(10)));
}

// What had completed by then is told of that, and may go on as if nothing was.
TEST_F(Memory, a_callback_may_use_the_connection_that_is_being_destroyed) {
  std::optional<Connection> connection{std::move(near)};
  Connection& doomed = *connection;
  Operation first, second;
  std::vector<bool> told;
  first.on_done([&](Operation&) { connection.reset(); });
  second.on_done([&](Operation& receive) {
    told.push_back(receive.result().has_value());
    if (receive.result()) doomed.receive(receive, here.local());
  });
  connection->receive(first, here.local());
  connection->receive(second, here.local());
  Operation one = pair.far_end().send_inline(bytes_of("one"));
  Operation two = pair.far_end().send_inline(bytes_of("two"));
  const auto is_over = [&] { return !told.empty() && !told.back(); };  // the second may come too late to be a success
  EXPECT_TRUE(pair.engine.run_until(is_over, Duration::seconds(10)));
  EXPECT_FALSE(connection.has_value());
  expect_error(second.result(), ErrorCode::Flushed, "destroyed here");
}

// Nobody takes what is sent, so that close() waits for it.
TEST_F(Memory, a_callback_may_destroy_the_connection_that_close_waits_for) {
  std::optional<Connection> connection{std::move(near)};
  Operation receive, send;
  receive.on_done([&](Operation&) { connection.reset(); });
  connection->receive(receive, here.local());
  connection->send(send, here.local());
  Operation bye = pair.far_end().send_inline(bytes_of("bye"));
  expect_error(connection->close(Duration::seconds(60)), ErrorCode::Cancelled, "was destroyed");
  EXPECT_FALSE(connection.has_value());
  expect_error(send.result(), ErrorCode::Flushed, "destroyed here");
}

// What close() itself ends is told, and then it is over.
TEST_F(Memory, a_callback_that_close_flushes_may_destroy_the_connection) {
  std::optional<Connection> connection{std::move(near)};
  Operation receive;
  receive.on_done([&](Operation&) { connection.reset(); });
  connection->receive(receive, here.local());
  must(connection->close());
  EXPECT_FALSE(connection.has_value());
}

TEST_F(Memory, another_connection_may_take_the_place_of_the_one_that_close_waits_for) {
  Connection connection = std::move(near);
  Connection next = must(Connection::connect(pair.engine, pair.listener->address().to_string()));
  Operation receive, send;
  receive.on_done([&](Operation&) { connection = std::move(next); });
  connection.receive(receive, here.local());
  connection.send(send, here.local());
  Operation bye = pair.accepted.front().send_inline(bytes_of("bye"));
  expect_error(connection.close(Duration::seconds(60)), ErrorCode::Cancelled, "was destroyed");
  EXPECT_EQ(connection.phase(), ConnectionPhase::Established);
}

TEST_F(Memory, a_callback_uses_the_old_connection_while_another_takes_its_place) {
  Connection first = std::move(near);
  Connection second = must(Connection::connect(pair.engine, pair.listener->address().to_string()));
  Operation closing, going;
  std::vector<bool> told;
  closing.on_done([&](Operation&) { first = std::move(second); });
  going.on_done([&](Operation& receive) {
    told.push_back(receive.result().has_value());
    if (receive.result()) first.receive(receive, here.local());
  });
  first.receive(closing, here.local());
  first.receive(going, here.local());
  Operation one = pair.accepted.front().send_inline(bytes_of("one"));
  Operation two = pair.accepted.front().send_inline(bytes_of("two"));
  const auto is_over = [&] { return !told.empty() && !told.back(); };  // the second may come too late to be a success
  EXPECT_TRUE(pair.engine.run_until(is_over, Duration::seconds(10)));
  expect_error(going.result(), ErrorCode::Flushed, "destroyed here");
  EXPECT_FALSE(first.closed());
}

TEST_F(Memory, a_connection_that_the_peer_closes_says_so) {
  bool told = false;
  near.on_closed([&] { told = true; });
  Operation receive = near.receive(here.local());
  must(pair.far_end().send(Segments{}).wait());
  must(receive.wait());
  Operation waiting = near.receive(here.local());
  must(pair.far_end().close());
  expect_error(waiting.wait(), ErrorCode::Disconnected, "RECEIVE into 4096 bytes", "the peer closed it");
  EXPECT_EQ(near.phase(), ConnectionPhase::Closed);
  EXPECT_TRUE(pair.engine.run_until([&] { return told; }, Duration::seconds(10)));
  expect_error(near.send_inline(bytes_of("x")).wait(), ErrorCode::Disconnected);
  must(near.close());
}

TEST_F(Memory, what_is_called_on_closing_may_destroy_the_connection) {
  std::optional<Connection> doomed(std::move(near));
  int told = 0;
  doomed->on_closed([&doomed, &told, name = std::string(100, 'x')] {
    doomed.reset();
    told += name.size() == 100 ? 1 : 100;  // what it captured is still there
  });
  must(pair.far_end().close());
  pair.engine.run_until([&] { return told != 0; }, Duration::seconds(10));
  EXPECT_EQ(told, 1);
}

TEST_F(Memory, close_waits_for_what_was_sent) {
  std::vector<Operation> sends(8);
  std::vector<Operation> receives(8);
  for (Operation& receive : receives) pair.far_end().receive(receive, there.local());
  for (Operation& send : sends) near.send(send, here.local());
  must(near.close());
  for (Operation& send : sends) EXPECT_TRUE(send.done() && send.result());
  for (Operation& receive : receives) must(receive.wait());
}

TEST(KeepAlive, those_that_stay_are_asked_for_when_others_go) {
  Pair pair;
  ConnectionOptions options;
  options.keep_alive = pair.server_options.keep_alive = Duration{};
  const auto served = [&] {
    for (const NamedCounter& counter : pair.server.counters())
      if (counter.name == "served_writes") return counter.value;
    return std::uint64_t{0};
  };
  Connection silent = pair.connect(options);
  options.keep_alive = Duration::milliseconds(1);
  Connection stays = pair.connect(options);
  std::optional<Connection> goes{pair.connect(options)};
  Connection breaks = pair.connect(options);
  EXPECT_TRUE(pair.engine.run_until([&] { return served() >= 3; }, Duration::seconds(30)));
  goes.reset();
  breaks.receive(Segments{}).cancel();
  const std::uint64_t before = served();
  EXPECT_TRUE(pair.engine.run_until([&] { return served() >= before + 3; }, Duration::seconds(30)));
  must(stays.close());
  must(silent.close());
}

// ---- Devices and engines.

TEST(Devices, a_name_that_nobody_has_is_answered_with_those_there_are) {
  expect_error(Device::open("nosuch0"), ErrorCode::NotFound, "nosuch0", "soft-lo");
}

TEST(Devices, an_address_of_another_machine_is_not_available) {
  expect_error(Device::open("192.0.2.77"), ErrorCode::AddressNotAvailable);
}

TEST(Devices, an_address_that_is_named_may_be_opened_again) {
  const Device first = must(Device::open());
  const Device second = must(Device::open(first.address().to_string()));
  EXPECT_EQ(second.address(), first.address());
  EXPECT_NE(must(Device::open()).address(), first.address()) << "without a name each gets one of its own";
}

TEST(Devices, the_list_names_every_device_with_its_reason) {
  const auto devices = Device::list();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices.front().name, "soft-lo");
  EXPECT_TRUE(devices.front().usable) << devices.front().reason;
  for (const DeviceInfo& info : devices) EXPECT_FALSE(info.reason.empty()) << info.name;
  Device named = must(Device::open("soft-lo"));
  EXPECT_EQ(named.info().name, "soft-lo");
  EXPECT_FALSE(named.explain().empty());
  EXPECT_FALSE(named.counters().empty());
}

TEST(Devices, a_device_has_one_engine_at_a_time) {
  Device device = must(Device::open());
  {
    ProgressEngine engine = must(ProgressEngine::create(device));
    expect_error(ProgressEngine::create(device), ErrorCode::Busy, "has an engine already");
  }
  must(ProgressEngine::create(device));
}

TEST(Devices, a_thread_wakes_an_engine_that_sleeps) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  std::atomic<bool> stop{false};
  std::thread other([&] {
    stop = true;
    engine.wake();
  });
  EXPECT_TRUE(engine.run_until([&] { return stop.load(); }, Duration::seconds(60)));
  other.join();
}

}  // namespace
}  // namespace verbena
