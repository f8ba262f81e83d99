// SPDX-License-Identifier: Apache-2.0
// Several tasks at a time, and connections that are awaited.
#include <memory>
#include <stdexcept>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::kMs;
using test::must;
using test::Pair;

Task<int> value_after(ProgressEngine& engine, int value, Duration time) {
  if (time > Duration{}) co_await engine.sleep(time);
  co_return value;
}
Task<void> nothing_after(ProgressEngine& engine, Duration time) { co_await engine.sleep(time); }
Task<int> throws_after(ProgressEngine& engine, const char* what, Duration time) {
  co_await engine.sleep(time);
  throw std::runtime_error(what);
}

TEST(WhenAll, gives_every_value_in_the_order_of_arguments) {
  Pair pair;
  auto& e = pair.engine;
  const auto [a, b, c] =
      e.run(when_all(value_after(e, 1, kMs * 3), nothing_after(e, kMs), value_after(e, 3, {})));
  static_assert(std::is_same_v<decltype(b), const std::monostate>);
  EXPECT_EQ(a, 1);
  EXPECT_EQ(c, 3);
  std::vector<Task<int>> many;
  for (int i = 0; i < 100; ++i) many.push_back(value_after(e, i, kMs * (i % 4)));
  const std::vector<int> values = e.run(when_all(std::move(many)));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(e.run(when_all(std::vector<Task<int>>{})).empty());
  e.run(when_all(std::vector<Task<void>>{}));
}

TEST(WhenAll, waits_for_all_and_passes_on_the_first_exception_in_order) {
  Pair pair;
  auto& e = pair.engine;
  int finished = 0;
  const auto last = [](ProgressEngine& engine, int& n) -> Task<int> {
    co_await engine.sleep(kMs * 5);
    co_return ++n;
  };
  try {
    e.run(when_all(throws_after(e, "first", kMs * 2), throws_after(e, "second", kMs), last(e, finished)));
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(finished, 1);
}

TEST(WhenAny, gives_the_first_and_destroys_the_others_before_it_returns) {
  Pair pair;
  auto& e = pair.engine;
  auto life = std::make_shared<int>(0);
  const auto hold = [](ProgressEngine& engine, std::shared_ptr<int> held, Duration time) -> Task<int> {
    const auto own = held;
    co_await engine.sleep(time);
    co_return ++*own;
  };
  const auto body = [&hold](ProgressEngine& engine, std::shared_ptr<int>& held) -> Task<long> {
    auto any = when_any(hold(engine, held, Duration::forever()), hold(engine, held, kMs));
    const auto first = co_await any;
    EXPECT_EQ(first.index(), 1u);
    co_return held.use_count();
  };
  EXPECT_EQ(e.run(body(e, life)), 1);
  EXPECT_EQ(*life, 1);
  std::vector<Task<int>> many;
  for (int i = 0; i < 10; ++i) many.push_back(value_after(e, i, i == 7 ? kMs : Duration::seconds(100)));
  const FirstOf<int> first = e.run(when_any(std::move(many)));
  EXPECT_EQ(first.index, 7u);
  EXPECT_EQ(first.value, 7);
}

TEST(WhenAny, those_behind_one_that_finishes_at_once_never_begin) {
  Pair pair;
  auto& e = pair.engine;
  bool began = false;
  const auto begin = [](bool& flag) -> Task<int> {
    flag = true;
    co_return 1;
  };
  EXPECT_EQ(std::get<0>(e.run(when_any(value_after(e, 5, {}), begin(began)))), 5);
  EXPECT_FALSE(began);
}

TEST(WhenAny, an_exception_of_the_first_passes_on) {
  Pair pair;
  auto& e = pair.engine;
  EXPECT_THROW(e.run(when_any(throws_after(e, "x", kMs), value_after(e, 1, Duration::forever()))),
               std::runtime_error);
}

Task<Result<OperationOutcome>> receive_own(Connection& connection, MemoryRegion& into) {
  co_return co_await connection.receive(into.local());
}
Task<Result<OperationOutcome>> await_operation(Operation& operation) { co_return co_await operation; }

TEST(WhenAny, a_loser_with_an_operation_of_its_own_takes_the_connection_along_one_by_reference_does_not) {
  Pair pair;
  auto& e = pair.engine;
  Connection near = pair.connect();
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation receive;
  near.receive(receive, inbox.local());
  EXPECT_EQ(e.run(when_any(await_operation(receive), value_after(e, 1, kMs))).index(), 1u);
  EXPECT_TRUE(receive.in_flight());
  EXPECT_EQ(near.phase(), ConnectionPhase::Established);
  must(pair.far_end().send_inline(test::bytes_of("still here")).wait());
  EXPECT_EQ(must(e.run(await_operation(receive))).bytes, 10u);

  EXPECT_EQ(e.run(when_any(receive_own(near, inbox), value_after(e, 1, kMs))).index(), 1u);
  EXPECT_EQ(near.phase(), ConnectionPhase::Broken);
  expect_error(near.status(), ErrorCode::Cancelled, "RECEIVE");
}

// ---- Connections.

Task<std::string> serve_one(Listener& listener, MemoryRegion& inbox) {
  auto connection = co_await listener.async_accept();
  EXPECT_TRUE(connection);
  auto message = co_await connection->receive(inbox.local());
  EXPECT_TRUE(message);
  co_return test::text_of(inbox.bytes().first(message->bytes));
}
Task<Result<void>> greet(ProgressEngine& engine, std::string address) {
  auto connection = co_await Connection::async_connect(engine, address);
  if (!connection) co_return connection.error();
  auto sent = co_await connection->send_inline(test::bytes_of("hello"));
  EXPECT_TRUE(sent);
  co_return co_await connection->async_close();
}

struct ListeningDevice {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  MemoryRegion inbox = must(device.allocate_memory(64));
};

Task<void> receive_there(Connection& connection, MemoryRegion& into) {
  static_cast<void>(co_await connection.receive(into.local(8, 8)));
}
Task<void> first_of_two(Connection& connection, MemoryRegion& into, ProgressEngine& engine, int& resumed) {
  co_await when_any(receive_there(connection, into), nothing_after(engine, kMs * 20));
  ++resumed;
}

// The first drains an operation, whose flush runs a callback that waits, in which the second finishes.
TEST(WhenAny, is_not_resumed_by_one_that_finishes_while_it_is_destroyed) {
  Pair pair;
  Connection connection = pair.connect();
  MemoryRegion into = must(pair.client.allocate_memory(64));
  Operation other;
  connection.receive(other, into.local(0, 8));
  other.on_done([&](Operation&) { pair.engine.run(nothing_after(pair.engine, kMs * 60)); });
  int resumed = 0;
  const auto outcome = pair.engine.run(
      when_any(nothing_after(pair.engine, kMs * 5), first_of_two(connection, into, pair.engine, resumed)));
  EXPECT_EQ(outcome.index(), 0u);
  EXPECT_EQ(resumed, 0);
}

TEST(AsyncConnect, accept_connect_and_close_side_by_side_on_one_engine) {
  ListeningDevice s;
  const auto [text, closed] = s.engine.run(
      when_all(serve_one(s.listener, s.inbox), greet(s.engine, s.listener.address().to_string())));
  EXPECT_EQ(text, "hello");
  must(closed);
}

TEST(AsyncConnect, many_at_once_on_one_engine) {
  ListeningDevice s;
  constexpr int kClients = 50;
  const auto serve = [](ListeningDevice& on) -> Task<int> {
    int good = 0;
    for (int i = 0; i < kClients; ++i) good += co_await serve_one(on.listener, on.inbox) == "hello" ? 1 : 0;
    co_return good;
  };
  std::vector<Task<Result<void>>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(greet(s.engine, s.listener.address().to_string()));
  const auto [good, closed] = s.engine.run(when_all(serve(s), when_all(std::move(clients))));
  EXPECT_EQ(good, kClients);
  for (const auto& each : closed) must(each);
}

TEST(AsyncConnect, errors_are_those_of_the_blocking_forms) {
  ListeningDevice s;
  expect_error(s.engine.run(greet(s.engine, "no port")), ErrorCode::InvalidArgument, "no port");
  expect_error(s.engine.run(greet(s.engine, s.device.address().to_string() + ":9")),
               ErrorCode::ConnectionRefused);
  expect_error(s.engine.run(s.listener.async_accept({}, kMs * 20)), ErrorCode::TimedOut, "nobody connected");
  ConnectionOptions strange;
  strange.queues.max_send_requests = 0;
  expect_error(s.engine.run(Connection::async_connect(s.engine, "127.0.0.1:1", strange)),
               ErrorCode::InvalidArgument, "no length");
}

TEST(AsyncConnect, giving_up_is_destroying_the_task) {
  ListeningDevice s;
  Device silent = must(Device::open());  // no engine: nobody answers requests there at once
  const auto connect = [](ListeningDevice& on, const Device& there) -> Task<bool> {
    auto connection = co_await Connection::async_connect(on.engine, there.address().to_string() + ":7471");
    co_return connection.has_value();
  };
  for (int i = 0; i < 20; ++i) {
    const auto first =
        s.engine.run(when_any(connect(s, silent), nothing_after(s.engine, Duration::microseconds(i * 20))));
    EXPECT_TRUE(first.index() == 1 || !std::get<0>(first));
  }
}

TEST(AsyncConnect, who_waits_for_a_connection_that_is_destroyed_is_told) {
  ListeningDevice s;
  const std::string nowhere = "127.200.1.2:7471";
  const auto destroy = [](ProgressEngine& engine, std::optional<Connection>& connection) -> Task<void> {
    co_await engine.sleep(kMs);
    connection.reset();
  };
  const ConnectionOptions patient{.connect_timeout = Duration::seconds(60)};
  std::optional<Connection> connection = must(Connection::prepare(s.engine, patient));
  s.engine.spawn(destroy(s.engine, connection));
  expect_error(connection->connect_to(nowhere), ErrorCode::Cancelled, "was destroyed");
  EXPECT_FALSE(connection.has_value());

  connection = must(Connection::prepare(s.engine, patient));
  Task<Result<void>> connecting = connection->async_connect_to(nowhere);
  Task<Result<void>> closing = connection->async_close();
  connection.reset();
  expect_error(s.engine.run(std::move(connecting)), ErrorCode::Cancelled, "was destroyed");
  expect_error(s.engine.run(std::move(closing)), ErrorCode::Cancelled, "was destroyed");
}

TEST(AsyncConnect, a_callback_in_a_draining_destructor_may_block) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  bool told = false;
  Operation other;
  other.on_done([&](Operation&) {
    told = true;
    expect_error(near.close(), ErrorCode::Cancelled);
    pair.engine.run(nothing_after(pair.engine, kMs));
  });
  near.receive(other, inbox.local());
  { const Operation dropped = near.receive(inbox.local()); }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace verbena
