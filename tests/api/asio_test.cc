// SPDX-License-Identifier: Apache-2.0
// An engine served by an io_context.
#include "verbena/async/asio.h"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_future.hpp>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "test_pair.h"

namespace verbena {
namespace {

using asio_adapter::Service;
using test::expect_error;
using test::must;

struct Hosted {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  MemoryRegion here = must(device.allocate_memory(64));
  MemoryRegion there = must(device.allocate_memory(64));
  asio::io_context io;  // goes before the engine that has unfinished work
  Service rdma{io, engine};

  // Until it is stopped or out of work.
  void run() {
    io.restart();
    io.run_for(std::chrono::seconds(30));
    EXPECT_TRUE(io.stopped()) << "what was waited for never came";
  }
};

asio::awaitable<void> echo_once(Hosted& h) {
  auto connection = co_await h.rdma.async_run(h.listener.async_accept());
  auto message = co_await h.rdma.async_wait(connection->receive(h.there.local()));
  auto sent = co_await h.rdma.async_wait(connection->send(h.there.local(0, message->bytes)));
  EXPECT_TRUE(sent);
  auto end = co_await h.rdma.async_wait(connection->receive(h.there.local()));
  expect_error(end, ErrorCode::Disconnected);
}

asio::awaitable<void> call_once(Hosted& h, std::string& answer) {
  const std::string address = h.listener.address().to_string();
  auto connection = co_await h.rdma.async_run(Connection::async_connect(h.engine, address));
  Operation receive;
  connection->receive(receive, h.here.local());
  auto sent = co_await h.rdma.async_wait(connection->send_inline(test::bytes_of("over and out")));
  EXPECT_TRUE(sent);
  auto got = co_await h.rdma.async_wait(receive);
  answer = test::text_of(h.here.bytes().first(got->bytes));
  auto again = co_await h.rdma.async_wait(receive);  // it is done: at once
  EXPECT_EQ(again->bytes, 12u);
  must(co_await h.rdma.async_run(connection->async_close()));
  h.io.stop();
}

TEST(Asio, awaitables_speak_to_each_other) {
  Hosted h;
  std::string answer;
  asio::co_spawn(h.io, echo_once(h), asio::detached);
  asio::co_spawn(h.io, call_once(h, answer), asio::detached);
  h.run();
  EXPECT_EQ(answer, "over and out");
}

TEST(Asio, callbacks_are_posted_and_errors_come_as_values) {
  Hosted h;
  Operation idle;
  int order = 0;
  h.rdma.async_wait(idle, [&](Result<OperationOutcome> outcome) {
    EXPECT_EQ(++order, 2) << "called from inside async_wait()";
    expect_error(outcome, ErrorCode::WrongState, "never started");
    h.io.stop();
  });
  EXPECT_EQ(++order, 1);
  h.run();
  EXPECT_EQ(order, 2);
}

TEST(Asio, work_begun_while_the_descriptor_is_waited_for_is_not_forgotten) {
  Hosted h;
  int steps = 0;
  asio::steady_timer later(h.io, std::chrono::milliseconds(20));  // the engine sleeps by then
  later.async_wait([&](const std::error_code&) {
    const auto step = [](ProgressEngine& engine, int& n) -> Task<int> {
      co_await engine.sleep(Duration::milliseconds(5));
      co_return ++n;
    };
    h.rdma.async_run(step(h.engine, steps), [&](std::exception_ptr e, int value) {
      EXPECT_FALSE(e);
      EXPECT_EQ(value, 1);
      h.io.stop();
    });
  });
  h.run();
  EXPECT_EQ(steps, 1);
}

Task<void> nap(ProgressEngine& engine) { co_await engine.sleep(Duration::milliseconds(1)); }

TEST(Asio, an_engine_that_was_moved_is_served_on) {
  Hosted h;
  ProgressEngine here = std::move(h.engine);
  bool slept = false;
  h.rdma.async_run(nap(here), [&](std::exception_ptr) {
    slept = true;
    h.io.stop();
  });
  h.run();
  EXPECT_TRUE(slept);
  h.engine = std::move(here);
}

TEST(Asio, an_exception_of_a_task_comes_to_its_handler) {
  Hosted h;
  const auto fail = []() -> Task<Result<int>> {
    co_await std::suspend_never{};
    throw std::runtime_error("no");
  };
  bool caught = false;
  asio::co_spawn(
      h.io,
      [&]() -> asio::awaitable<void> {
        try {
          static_cast<void>(co_await h.rdma.async_run(fail()));
        } catch (const std::runtime_error&) {
          caught = true;
        }
        h.io.stop();
      },
      asio::detached);
  h.run();
  EXPECT_TRUE(caught);
}

TEST(Asio, an_exception_of_a_callback_leaves_through_the_io_context_and_the_engine_is_served_on) {
  Hosted h;
  int finished = 0;
  h.engine.spawn([]() -> Task<void> {
    co_await std::suspend_never{};
    throw std::runtime_error("no");
  }());
  h.engine.spawn([](Hosted& on, int& n) -> Task<void> {
    co_await on.engine.sleep(Duration::milliseconds(5));
    ++n;
    on.io.stop();
  }(h, finished));
  EXPECT_THROW(h.run(), std::runtime_error);
  h.run();
  EXPECT_EQ(finished, 1);
}

TEST(Asio, stop_lets_the_io_context_run_out_of_work_and_the_engine_live_on) {
  Hosted h;
  asio::post(h.io, [&] { h.rdma.stop(); });
  h.run();
  EXPECT_GE(h.engine.fd(), 0);
  h.engine.run([](ProgressEngine& engine) -> Task<void> {
    co_await engine.sleep(Duration::milliseconds(1));
  }(h.engine));
}

TEST(Asio, what_waits_when_everything_goes_is_destroyed_not_called) {
  auto life = std::make_shared<int>(0);
  {
    Hosted h;
    Connection near = must(Connection::prepare(h.engine));
    Operation receive;
    near.receive(receive, h.here.local());
    h.rdma.async_wait(receive, [life](Result<OperationOutcome>) { ++*life; });
    h.rdma.async_run(h.listener.async_accept(), [life](std::exception_ptr, Result<Connection>) { ++*life; });
    h.io.poll();
    EXPECT_EQ(life.use_count(), 3);
  }
  EXPECT_EQ(*life, 0);
  EXPECT_EQ(life.use_count(), 1);
}

// Nobody would come back to it.
TEST(Asio, what_is_started_after_the_service_was_stopped_is_refused_by_its_handler) {
  Hosted h;
  Connection near = must(Connection::prepare(h.engine));
  Operation receive;
  near.receive(receive, h.here.local());
  auto before = std::make_optional<Service>(std::move(h.rdma));
  auto late = before->async_run(h.listener.async_accept(), asio::experimental::deferred);
  before->stop();
  int refused = 0;
  const auto expect_aborted = [&](const std::exception_ptr& why) {
    try {
      if (why) std::rethrow_exception(why);
    } catch (const std::system_error& error) {
      refused += error.code() == asio::error::operation_aborted;
    }
  };
  bool ran = false;
  const auto run = [](bool& r) -> Task<void> {
    r = true;
    co_return;
  };
  before->async_run(run(ran), expect_aborted);
  before->async_wait(receive, [&](Result<OperationOutcome> outcome) {
    expect_error(outcome, ErrorCode::Cancelled, "stopped");
    ++refused;
  });
  const auto succeed = []() -> Task<Result<void>> { co_return Result<void>{}; };
  before->async_run(succeed(), [&](const std::exception_ptr& why, const Result<void>& got) {
    expect_aborted(why);
    expect_error(got, ErrorCode::Cancelled, "stopped");
  });
  EXPECT_EQ(refused, 0);  // posted, as always
  h.run();
  EXPECT_EQ(refused, 3);
  EXPECT_TRUE(receive.in_flight());
  before.reset();
  std::move(late)([&](const std::exception_ptr& why, Result<Connection> got) {
    expect_aborted(why);
    expect_error(got, ErrorCode::Cancelled, "stopped");
  });
  h.run();
  EXPECT_EQ(refused, 4);
  EXPECT_FALSE(ran);
}

TEST(AsioDeathTest, a_service_that_was_moved_from_is_used) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Hosted h;
  const Service kept = std::move(h.rdma);
  const auto stop = [](Service& moved) { moved.stop(); };
  EXPECT_DEATH(stop(h.rdma), "uses an asio_adapter::Service that was moved from");
}

// The engine goes on with what it has long after Service and io_context went.
TEST(Asio, the_end_of_the_service_drops_handlers_and_what_they_waited_for_ends_without_them) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  MemoryRegion memory = must(device.allocate_memory(64));
  Connection near = must(Connection::prepare(engine)), other = must(Connection::prepare(engine));
  Operation receive;
  near.receive(receive, memory.local());
  auto life = std::make_shared<int>(0);
  int steps = 0;
  {
    asio::io_context io;
    Service rdma(io, engine);
    rdma.async_wait(receive, [life](Result<OperationOutcome>) { ++*life; });
    const auto step = [](ProgressEngine& on, int& n) -> Task<void> {
      co_await on.sleep(Duration::milliseconds(5));
      ++n;
    };
    rdma.async_run(step(engine, steps), [life](std::exception_ptr) { ++*life; });
    // A handler that has the operation it waits for: destroying it ends that.
    asio::co_spawn(
        io,
        [](Service& s, Connection& on, ScatterGather where, std::shared_ptr<int> alive) -> asio::awaitable<void> {
          Operation own;
          on.receive(own, where);
          static_cast<void>(co_await s.async_wait(own));
          ++*alive;
        }(rdma, other, memory.local(), life),
        asio::detached);
    io.poll();
    EXPECT_EQ(life.use_count(), 4);
    EXPECT_EQ(steps, 0);
  }
  EXPECT_EQ(life.use_count(), 1);
  EXPECT_TRUE(engine.run_until([&] { return steps == 1; }, Duration::seconds(30)));
  receive.cancel();
  expect_error(receive.wait(), ErrorCode::Cancelled);
  EXPECT_EQ(*life, 0);
}

// Asio's way: the first of two that ends cancels the other.
TEST(Asio, what_is_awaited_beside_a_timer_is_cancelled_by_it) {
  Hosted h;
  ErrorCode ended{};
  asio::co_spawn(
      h.io,
      [](Hosted& host, ErrorCode& how) -> asio::awaitable<void> {
        using namespace asio::experimental::awaitable_operators;
        const std::string address = host.listener.address().to_string();
        auto connection = co_await host.rdma.async_run(Connection::async_connect(host.engine, address));
        Operation receive;
        connection->receive(receive, host.here.local());
        asio::steady_timer timer(host.io, std::chrono::milliseconds(1));
        co_await (host.rdma.async_wait(receive) || timer.async_wait(asio::use_awaitable));
        how = receive.result().error().code();
        host.io.stop();
      }(h, ended),
      asio::detached);
  std::optional<Connection> far_end;
  h.rdma.async_run(h.listener.async_accept(),
                   [&](std::exception_ptr, Result<Connection> got) { far_end.emplace(must(std::move(got))); });
  h.run();
  EXPECT_EQ(ended, ErrorCode::Cancelled);
}

TEST(Asio, an_operation_may_outlive_the_signal_that_could_cancel_it) {
  Hosted h;
  std::optional<Connection> near, far_end;
  const auto keep_in = [&](std::optional<Connection>& place) {
    return [&, into = &place](std::exception_ptr, Result<Connection> made) {
      into->emplace(must(std::move(made)));
      if (near && far_end) h.io.stop();
    };
  };
  h.rdma.async_run(h.listener.async_accept(), keep_in(far_end));
  Operation receive;
  int called = 0;
  const auto wait = [&] {
    auto signal = std::make_unique<asio::cancellation_signal>();
    near->receive(receive, h.here.local());
    h.rdma.async_wait(receive, asio::bind_cancellation_slot(signal->slot(), [&](Result<OperationOutcome> outcome) {
                        EXPECT_TRUE(outcome);
                        ++called;
                        h.io.stop();
                      }));
  };
  h.rdma.async_run(Connection::async_connect(h.engine, h.listener.address().to_string()), keep_in(near));
  h.run();
  wait();
  const SendRequest empty;
  EXPECT_TRUE(far_end->post_send({&empty, 1}));
  h.run();
  EXPECT_EQ(called, 1);
}

// As the io_context allows: it is run by one thread after the other, and posted to by any meanwhile.
TEST(Asio, an_io_context_is_run_by_one_thread_after_the_other) {
  constexpr int kMessages = 100;
  Hosted h;
  int heard = 0, posted = 0;
  asio::co_spawn(
      h.io,
      [](Hosted& host, int& count) -> asio::awaitable<void> {
        auto connection = co_await host.rdma.async_run(host.listener.async_accept());
        while (co_await host.rdma.async_wait(connection->receive(host.there.local()))) ++count;
        host.io.stop();
      }(h, heard),
      asio::detached);
  asio::co_spawn(
      h.io,
      [](Hosted& host) -> asio::awaitable<void> {
        const std::string address = host.listener.address().to_string();
        auto connection = co_await host.rdma.async_run(Connection::async_connect(host.engine, address));
        asio::steady_timer timer(host.io);
        for (int i = 0; i < kMessages; ++i) {
          EXPECT_TRUE(co_await host.rdma.async_wait(connection->send(host.here.local())));
          if (i % 10 != 0) continue;
          timer.expires_after(std::chrono::milliseconds(1));  // so that it sleeps, too
          co_await timer.async_wait(asio::use_awaitable);
        }
        must(co_await host.rdma.async_run(connection->async_close()));
      }(h),
      asio::detached);
  std::mutex turn;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      for (bool more = true; more && std::chrono::steady_clock::now() < limit;) {
        asio::post(h.io, [&posted] { ++posted; });
        {
          const std::lock_guard lock(turn);
          h.io.run_for(std::chrono::microseconds(300));
          more = !h.io.stopped();
        }
        std::this_thread::yield();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heard, kMessages);
  EXPECT_GT(posted, 0);
}

// The handler that is replaced held the connection, with which the operation ends.
TEST(Asio, a_handler_that_ends_the_operation_as_it_goes_leaves_its_outcome_to_the_next) {
  Hosted h;
  std::optional<Connection> served;
  std::shared_ptr<Connection> connection;
  const auto accept = [&]() -> asio::awaitable<void> {
    served.emplace(must(co_await h.rdma.async_run(h.listener.async_accept())));
  };
  asio::co_spawn(h.io, accept, asio::detached);
  asio::co_spawn(
      h.io,
      [&]() -> asio::awaitable<void> {
        auto made = co_await h.rdma.async_run(Connection::async_connect(h.engine, h.listener.address().to_string()));
        connection = std::make_shared<Connection>(must(std::move(made)));
      },
      asio::detached);
  while (!connection || !served) h.io.run_one();
  Operation receive;
  connection->receive(receive, h.here.local());
  bool before = false;
  std::optional<Result<OperationOutcome>> outcome;
  h.rdma.async_wait(receive, [&before, connection](const Result<OperationOutcome>&) { before = true; });
  connection.reset();
  h.rdma.async_wait(receive, [&outcome](Result<OperationOutcome> told) { outcome = std::move(told); });
  while (!outcome) h.io.run_one();
  EXPECT_FALSE(before);
  expect_error(*outcome, ErrorCode::Flushed);
}

}  // namespace
}  // namespace verbena
