// SPDX-License-Identifier: Apache-2.0
// Coroutines over operations, and what they make of each other.
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;

struct Wired : Pair {
  explicit Wired(const EngineOptions& options = {}) : Pair(options), near(connect()) {}
  Connection near;
  MemoryRegion here = must(client.allocate_memory(4096));
  MemoryRegion there = must(server.allocate_memory(4096));
};

Task<int> value_of(int value) { co_return value; }
Task<int> sum_of_values(int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await value_of(i % 3);
  co_return sum;
}
Task<int> nested(int depth) {
  if (depth == 0) co_return 0;
  const int below = co_await nested(depth - 1);
  co_return below + 1;
}
Task<int> nested_over_sleep(ProgressEngine& engine, int depth) {
  if (depth == 0) {
    co_await engine.sleep(Duration::microseconds(1));
    co_return 0;
  }
  const int below = co_await nested_over_sleep(engine, depth - 1);
  co_return below + 1;
}

TEST(Task, gives_its_value_to_whoever_awaits_it) {
  Pair pair;
  EXPECT_EQ(pair.engine.run(value_of(42)), 42);
}

TEST(Task, moves_values_that_cannot_be_copied) {
  Pair pair;
  const auto make = [](int v) -> Task<std::unique_ptr<int>> { co_return std::make_unique<int>(v); };
  EXPECT_EQ(*pair.engine.run(make(7)), 7);
}

TEST(Task, a_hundred_thousand_that_finish_at_once_need_no_stack) {
  Pair pair;
  EXPECT_EQ(pair.engine.run(sum_of_values(100'000)), 99'999);
}

TEST(Task, ten_thousand_inside_each_other_need_no_stack) {
  Pair pair;
  EXPECT_EQ(pair.engine.run(nested(10'000)), 10'000);
  EXPECT_EQ(pair.engine.run(nested_over_sleep(pair.engine, 10'000)), 10'000);
}

TEST(Task, ten_thousand_inside_each_other_are_destroyed_while_suspended) {
  Pair pair;
  const auto forever = [](ProgressEngine& engine, int depth, auto& self) -> Task<int> {
    if (depth == 0) co_await engine.sleep(Duration::forever());
    if (depth != 0) co_await self(engine, depth - 1, self);
    co_return 0;
  };
  pair.engine.spawn([](auto& f, ProgressEngine& engine) -> Task<void> { co_await f(engine, 10'000, f); }(
                                                            forever, pair.engine));
  for (int i = 0; i < 200; ++i) pair.engine.run_once();
}

// ---- Operations.

Task<std::uint64_t> add_twice(Connection& connection, RemoteMemory counter) {
  auto first = co_await connection.fetch_and_add(counter, 5);
  EXPECT_TRUE(first);
  Operation second;
  connection.fetch_and_add(second, counter, 1);
  auto outcome = co_await second;
  EXPECT_TRUE(outcome);
  co_return outcome->value;
}

TEST(Await, an_operation_gives_its_outcome_as_temporary_and_as_object) {
  for (const WaitMode mode : {WaitMode::Busy, WaitMode::Adaptive, WaitMode::Event}) {
    Wired pair({.wait = mode});
    EXPECT_EQ(pair.engine.run(add_twice(pair.near, pair.there.remote())), 5u);
  }
}

TEST(Await, errors_come_as_values) {
  Wired pair;
  const auto write = [](Wired& p) -> Task<Result<OperationOutcome>> {
    RemoteMemory wrong = p.there.remote();
    wrong.length = 1;
    co_return co_await p.near.write(p.here.local(), wrong);
  };
  expect_error(pair.engine.run(write(pair)), ErrorCode::InvalidArgument, "only 1 bytes");
}

TEST(Await, one_that_is_done_does_not_suspend) {
  Wired pair;
  Operation write;
  must(pair.near.write(write, pair.here.local(), pair.there.remote()).wait());
  const auto again = [](Operation& operation, int times) -> Task<int> {
    int seen = 0;
    for (int i = 0; i < times; ++i) {
      auto outcome = co_await operation;
      seen += outcome ? 1 : 0;
    }
    co_return seen;
  };
  // Without the engine ever running: all of it happens in the start of the task.
  Task<int> task = again(write, 100'000);
  detail::Join end(1);
  const detail::Child child = task.child();
  child.promise->start(pair.engine.state(), 0, end, child.handle);
  EXPECT_TRUE(task.done());
  EXPECT_EQ(task.take(), 100'000);
}

TEST(Await, one_that_was_never_started_is_an_error) {
  Pair pair;
  const auto idle = []() -> Task<Result<OperationOutcome>> {
    Operation operation;
    co_return co_await operation;
  };
  expect_error(pair.engine.run(idle()), ErrorCode::WrongState, "never started");
}

Task<Result<OperationOutcome>> outcome_of(Operation& operation) { co_return co_await operation; }

TEST(Await, a_second_coroutine_at_the_same_operation_is_an_error) {
  Wired pair;
  Operation receive;
  pair.near.receive(receive, pair.here.local());
  bool first_done = false;
  pair.engine.spawn([](Operation& o, bool& done) -> Task<void> {
    auto outcome = co_await o;
    done = outcome.has_value();
  }(receive, first_done));
  pair.engine.run_once();
  expect_error(pair.engine.run(outcome_of(receive)), ErrorCode::Busy, "another coroutine");
  EXPECT_FALSE(first_done);
  must(pair.far_end().send(pair.there.local()).wait());
  pair.engine.run_until([&] { return first_done; }, Duration::seconds(10));
  EXPECT_TRUE(first_done);
}

TEST(Await, callback_first_then_coroutine_and_a_callback_may_submit_anew) {
  Wired pair;
  Operation add;
  int calls = 0;
  add.on_done([&](Operation& self) {
    if (++calls < 5) self.submit();
  });
  pair.near.fetch_and_add(add, pair.there.remote(), 1);
  EXPECT_EQ(must(pair.engine.run(outcome_of(add))).value, 4u);
  EXPECT_EQ(calls, 5);
}

TEST(Await, a_coroutine_goes_on_behind_a_callback_that_runs_the_engine) {
  Wired pair;
  bool is_inside = false, was_inside = false, over = false;
  const auto add = [&]() -> Task<void> {
    Operation one;
    one.on_done([&, kept = std::string(100, 'k')](Operation&) {
      is_inside = true;
      pair.engine.run_until([] { return false; }, Duration::milliseconds(5));
      EXPECT_EQ(kept, std::string(100, 'k'));
      is_inside = false;
    });
    pair.near.fetch_and_add(one, pair.there.remote(), 1);
    static_cast<void>(co_await one);
    was_inside = is_inside;
    over = true;
  };
  pair.engine.spawn(add());
  EXPECT_TRUE(pair.engine.run_until([&] { return over && !is_inside; }, Duration::seconds(10)));
  EXPECT_FALSE(was_inside);
}

// wait() is no callback: what awaits the same operation goes on, and others may wait for that.
TEST(Await, a_coroutine_goes_on_while_somebody_waits_for_its_operation) {
  Wired w;
  Operation receive = w.far_end().receive(w.there.local());
  int told = 0;
  receive.on_done([&](Operation&) { ++told; });
  bool resumed = false;
  w.engine.spawn([](Operation& of, bool& done) -> Task<void> {
    must(co_await of);
    done = true;
  }(receive, resumed));
  Operation other = w.far_end().send(w.there.local(0, 8)), answer = w.near.receive(w.here.local());
  other.on_done([&](Operation&) {
    const Operation sent = w.near.send_inline(test::bytes_of("what it waits for"));
    EXPECT_TRUE(w.engine.run_until([&] { return resumed; }, Duration::seconds(10)));
  });
  must(receive.wait());
  EXPECT_TRUE(w.engine.run_until([&] { return other.done(); }, Duration::seconds(10)));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(resumed);
}

TEST(Await, a_callback_that_throws_lets_the_coroutine_behind_it_go_on) {
  Wired pair;
  Operation write;
  write.on_done([](Operation&) { throw std::runtime_error("no"); });
  pair.near.write(write, pair.here.local(), pair.there.remote());
  bool over = false;
  const auto await = [&]() -> Task<void> {
    EXPECT_TRUE(co_await write);
    over = true;
  };
  pair.engine.spawn(await());
  EXPECT_THROW(pair.engine.run_until([&] { return over; }, Duration::seconds(10)), std::runtime_error);
  EXPECT_TRUE(pair.engine.run_until([&] { return over; }, Duration::seconds(10)));
}

TEST(Await, a_callback_may_destroy_what_a_coroutine_awaits) {
  Wired pair;
  auto write = std::make_unique<Operation>();
  write->on_done([&](Operation&) { write.reset(); });
  pair.near.write(*write, pair.here.local(), pair.there.remote());
  expect_error(pair.engine.run(outcome_of(*write)), ErrorCode::Cancelled, "destroyed");
}

TEST(Await, an_operation_that_outlives_its_connection_ends_as_flushed) {
  Wired pair;
  std::optional<Connection> connection{std::move(pair.near)};
  Operation receive;
  connection->receive(receive, pair.here.local());
  std::optional<Result<OperationOutcome>> outcome;
  pair.engine.spawn([](Operation& o, auto& into) -> Task<void> {
    auto got = co_await o;
    into.emplace(std::move(got));
  }(receive, outcome));
  pair.engine.run_once();
  connection.reset();
  EXPECT_FALSE(outcome) << "a coroutine resumed inside a destructor";
  pair.engine.run_until([&] { return outcome.has_value(); }, Duration::seconds(10));
  expect_error(*outcome, ErrorCode::Flushed);
  expect_error(receive.result(), ErrorCode::Flushed);
}

// ---- Ends that nobody wants.

TEST(Task, destroying_a_suspended_one_cancels_its_operation_and_breaks_the_connection) {
  Wired pair;
  {
    const auto receive = [](Wired& p) -> Task<void> {
      static_cast<void>(co_await p.near.receive(p.here.local()));
    };
    Task<void> waiting = receive(pair);
    detail::Join end(1);
    waiting.child().promise->start(pair.engine.state(), 0, end, waiting.child().handle);
    EXPECT_FALSE(waiting.done());
  }
  EXPECT_EQ(pair.near.phase(), ConnectionPhase::Broken);
  expect_error(pair.near.status(), ErrorCode::Cancelled, "RECEIVE");
}

Task<int> throws() {
  co_await std::suspend_never{};
  throw std::runtime_error("from the child");
}
Task<std::string> catches() {
  try {
    co_return std::to_string(co_await throws());
  } catch (const std::runtime_error& e) {
    co_return e.what();
  }
}

TEST(Task, an_exception_goes_to_the_awaiter) {
  Pair pair;
  EXPECT_EQ(pair.engine.run(catches()), "from the child");
  EXPECT_THROW(pair.engine.run(throws()), std::runtime_error);
}

TEST(Spawn, runs_begin_with_the_engine_and_end_with_it) {
  Wired pair;
  auto alive = std::make_shared<int>(1);
  const auto hold = [](std::shared_ptr<int> life, ProgressEngine& engine, Duration time) -> Task<void> {
    *life += 1;
    co_await engine.sleep(time);
    *life += 1;
  };
  {
    Device device = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(device));
    engine.spawn(hold(alive, engine, Duration::forever()));
    engine.spawn(hold(alive, engine, Duration::milliseconds(1)));
    EXPECT_EQ(*alive, 1);
    engine.run_until([&] { return *alive == 4; }, Duration::seconds(10));
    EXPECT_EQ(alive.use_count(), 2) << "the finished one is gone";
    engine.spawn(hold(alive, engine, Duration{}));  // never begins
  }
  EXPECT_EQ(*alive, 4);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(Spawn, an_exception_leaves_through_the_driving_call_and_the_engine_goes_on) {
  Pair pair;
  int finished = 0;
  const auto count = [](int& n) -> Task<void> {
    ++n;
    co_return;
  };
  pair.engine.spawn([]() -> Task<void> { static_cast<void>(co_await throws()); }());
  pair.engine.spawn(count(finished));
  EXPECT_THROW(pair.engine.run_until([] { return false; }, Duration::seconds(10)), std::runtime_error);
  pair.engine.run_until([&] { return finished == 1; }, Duration::seconds(10));
  EXPECT_EQ(finished, 1);
}

TEST(Callback, an_exception_leaves_through_the_driving_call_and_nothing_is_lost) {
  Wired pair;
  std::array<Operation, 8> operations;
  int done = 0;
  for (Operation& operation : operations) {
    operation.on_done([&](Operation&) {
      ++done;
      throw std::runtime_error("from a callback");
    });
    pair.near.fetch_and_add(operation, pair.there.remote(), 1);
  }
  int caught = 0;
  while (caught < 8) {
    try {
      ASSERT_FALSE(pair.engine.run_until([] { return false; }, Duration::seconds(10)));
    } catch (const std::runtime_error&) {
      ++caught;
    }
  }
  EXPECT_EQ(done, 8);
  for (const Operation& operation : operations) EXPECT_TRUE(operation.result());
  EXPECT_TRUE(pair.near.status());
}

TEST(Sleep, those_that_are_due_first_go_on_first) {
  Pair pair;
  std::vector<int> order;
  const auto sleeper = [](ProgressEngine& engine, int ms, std::vector<int>& into) -> Task<void> {
    co_await engine.sleep(Duration::milliseconds(ms));
    into.push_back(ms);
  };
  for (const int ms : {5, 1, 4, 2, 3, 0}) pair.engine.spawn(sleeper(pair.engine, ms, order));
  pair.engine.run_until([&] { return order.size() == 6; }, Duration::seconds(10));
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Task, one_that_is_moved_while_it_is_awaited_is_awaited_still) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  const auto slow = [](ProgressEngine& on) -> Task<int> {
    co_await on.sleep(Duration::milliseconds(1));
    co_return 7;
  };
  const auto await_it = [](Task<int>& task, int& got) -> Task<void> { got = co_await task; };
  Task<int> task = slow(engine);
  int got = 0;
  engine.spawn(await_it(task, got));
  engine.run_once();
  const Task<int> elsewhere = std::move(task);
  engine.run_until([&] { return got != 0; }, Duration::seconds(5));
  EXPECT_EQ(got, 7);
}

TEST(Task, one_that_outlives_who_awaits_it_finishes_by_itself) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  bool finished = false;
  const auto slow = [](ProgressEngine& on, bool& done) -> Task<int> {
    co_await on.sleep(Duration::milliseconds(20));
    done = true;
    co_return 7;
  };
  const auto await_it = [](Task<int>& task, bool& resumed) -> Task<int> {
    const int value = co_await task;
    resumed = true;
    co_return value;
  };
  bool resumed = false;
  Task<int> task = slow(engine, finished);
  const auto nap = [](ProgressEngine& on) -> Task<void> { co_await on.sleep(Duration::milliseconds(1)); };
  EXPECT_EQ(engine.run(when_any(await_it(task, resumed), nap(engine))).index(), 1u);
  engine.run_until([&] { return finished; }, Duration::seconds(5));
  EXPECT_TRUE(finished);
  for (int i = 0; i < 100; ++i) engine.run_once();
  EXPECT_TRUE(task.done());
  EXPECT_FALSE(resumed);
}

TEST(Task, one_that_sleeps_may_be_destroyed_after_its_engine) {
  Device device = must(Device::open());
  std::optional<ProgressEngine> engine(must(ProgressEngine::create(device)));
  const auto slow = [](ProgressEngine& on) -> Task<int> {
    co_await on.sleep(Duration::forever());
    co_return 7;
  };
  const auto await_it = [](Task<int>& task) -> Task<int> { co_return co_await task; };
  const auto nap = [](ProgressEngine& on) -> Task<void> { co_await on.sleep(Duration::milliseconds(1)); };
  const Task<int> task = [&] {
    Task<int> begun = slow(*engine);
    EXPECT_EQ(engine->run(when_any(await_it(begun), nap(*engine))).index(), 1u);
    return begun;
  }();
  engine.reset();
  EXPECT_FALSE(task.done());
}

}  // namespace
}  // namespace verbena
