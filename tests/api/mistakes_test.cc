// SPDX-License-Identifier: Apache-2.0
// What a program gets wrong while it runs is a named error, and harms nothing else.
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <stdexcept>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;

TEST(Mistakes, an_operation_is_submitted_when_its_connection_is_gone) {
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64));
  Operation operation;
  int told = 0;
  operation.on_done([&](Operation&) { ++told; });
  {
    Connection connection = pair.connect();
    connection.receive(operation, memory.local());
  }
  EXPECT_EQ(told, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(operation.submit());
    ASSERT_TRUE(operation.done());
    expect_error(operation.result(), ErrorCode::Flushed, "was destroyed");
  }
  EXPECT_EQ(told, 1);
  // It works elsewhere.
  const MemoryRegion there = must(pair.server.allocate_memory(64));
  Connection other = pair.connect();
  must(other.write(operation, memory.local(), there.remote()).wait());
}

TEST(Mistakes, an_operation_that_is_waited_for_is_destroyed_by_its_callback) {
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64)), there = must(pair.server.allocate_memory(64));
  Connection connection = pair.connect();
  auto operation = std::make_unique<Operation>();
  operation->on_done([&](Operation&) { operation.reset(); });
  connection.write(*operation, memory.local(), there.remote());
  expect_error(operation->wait(), ErrorCode::Cancelled, "destroyed");
  EXPECT_EQ(operation, nullptr);
}

// It would break the connection.
TEST(Mistakes, a_read_where_a_side_allows_none_is_refused) {
  for (const bool here : {true, false}) {
    Pair pair;
    ConnectionOptions options;
    (here ? options : pair.server_options).reliability.max_rd_atomic = 0;
    (here ? options : pair.server_options).reliability.max_dest_rd_atomic = 0;
    const MemoryRegion memory = must(pair.client.allocate_memory(64)), there = must(pair.server.allocate_memory(64));
    Connection near = pair.connect(options);
    expect_error(near.read(memory.local(), there.remote()).wait(), ErrorCode::InvalidArgument, "max_rd_atomic");
    expect_error(near.fetch_and_add(there.remote(), 1).wait(), ErrorCode::InvalidArgument, "max_rd_atomic");
    must(near.write(memory.local(), there.remote()).wait());
  }
}

TEST(Mistakes, an_operation_on_a_connection_without_a_peer_says_so) {
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64));
  Connection prepared = must(Connection::prepare(pair.engine));
  expect_error(prepared.send(memory.local()).wait(), ErrorCode::WrongState, "no peer yet");
}

TEST(Mistakes, an_operation_outlives_its_engine_and_device) {
  Operation operation;
  {
    Pair pair;
    const MemoryRegion memory = must(pair.client.allocate_memory(64));
    const MemoryRegion there = must(pair.server.allocate_memory(64));
    Connection connection = pair.connect();
    must(connection.write(operation, memory.local(), there.remote()).wait());
  }
  must(operation.result());
  EXPECT_TRUE(operation.submit());
  expect_error(operation.wait(), ErrorCode::Flushed);
}

TEST(Mistakes, a_receive_is_submitted_when_its_pool_is_gone) {
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64));
  Operation receive;
  {
    ReceivePool pool = must(ReceivePool::create(pair.engine));
    pool.receive(receive, memory.local());
  }
  EXPECT_TRUE(receive.submit());
  expect_error(receive.result(), ErrorCode::Flushed);
}

TEST(Mistakes, the_outcome_of_an_operation_is_asked_for_too_early) {
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64));
  Operation operation;
  expect_error(operation.result(), ErrorCode::WrongState);
  EXPECT_FALSE(operation.submit());
  Connection connection = pair.connect();
  connection.receive(operation, memory.local());
  expect_error(operation.result(), ErrorCode::WrongState, "not done");
  ASSERT_NE(operation.error(), nullptr);
  EXPECT_FALSE(operation.submit());
  EXPECT_TRUE(operation.in_flight());
  operation.cancel();
  expect_error(operation.wait(), ErrorCode::Cancelled);
}

// Numbers of domains and queues are of a device: those of another one mean something else.
TEST(Mistakes, what_belongs_to_another_device_is_given) {
  Pair pair;
  ProtectionDomain domain = must(pair.client.create_protection_domain());
  ProtectionDomain foreign = must(pair.server.create_protection_domain());
  EXPECT_EQ(domain.id(), foreign.id());
  expect_error(Connection::prepare(pair.engine, {.protection_domain = &foreign}), ErrorCode::InvalidArgument,
               "another device");
  expect_error(ReceivePool::create(pair.engine, {.protection_domain = &foreign}), ErrorCode::InvalidArgument,
               "another device");
  expect_error(pair.client.create_shared_receive_queue(foreign), ErrorCode::InvalidArgument, "another device");
  CompletionQueue ours = must(pair.client.create_completion_queue(16));
  CompletionQueue theirs = must(pair.server.create_completion_queue(16));
  SharedReceiveQueue shared = must(pair.server.create_shared_receive_queue(foreign));
  expect_error(pair.client.create_queue_pair(foreign, ours, ours), ErrorCode::InvalidArgument, "protection domain");
  expect_error(pair.client.create_queue_pair(domain, theirs, ours), ErrorCode::InvalidArgument, "completion queue");
  expect_error(pair.client.create_queue_pair(domain, ours, theirs), ErrorCode::InvalidArgument, "completion queue");
  expect_error(pair.client.create_queue_pair(domain, ours, ours, {.shared_receive_queue = &shared}),
               ErrorCode::InvalidArgument, "shared receive queue");
  must(pair.client.create_queue_pair(domain, ours, ours));
}

// Behind it lies another buffer of the same registration.
TEST(Mistakes, more_of_a_buffer_is_sent_than_there_is) {
  Pair pair;
  BufferPool pool = must(BufferPool::create(pair.client.protection_domain(), {.classes = {{64, 4}}}));
  const Buffer buffer = must(pool.acquire(64));
  const MemoryRegion there = must(pair.server.allocate_memory(256));
  Connection connection = pair.connect();
  must(connection.write(buffer.local(64), there.remote()).wait());
  expect_error(connection.write(buffer.local(65), there.remote()).wait(), ErrorCode::LocalProtectionError);
}

TEST(Mistakes, options_are_out_of_range) {
  Pair pair;
  const Duration negative{-1};
  expect_error(Connection::prepare(pair.engine, {.keep_alive = negative}), ErrorCode::InvalidArgument, "negative");
  expect_error(Connection::prepare(pair.engine, {.connect_timeout = negative}), ErrorCode::InvalidArgument, "negative");
  expect_error(ReceivePool::create(pair.engine, {.max_segments = 9}), ErrorCode::InvalidArgument, "at most 4");
  expect_error(Listener::create(pair.engine, {.backlog = 0}), ErrorCode::InvalidArgument, "backlog");
  Device third = must(Device::open());
  expect_error(ProgressEngine::create(third, {.spin = negative}), ErrorCode::InvalidArgument, "spin");
}

// More than the device has would be cut down without a word, and who counts on it would wait.
TEST(Mistakes, more_reads_at_once_are_asked_for_than_the_device_has) {
  Pair pair;
  const std::uint8_t most = pair.client.info().max_rd_atomic;
  const auto more = static_cast<std::uint8_t>(most + 1);
  const std::string limit = "at most " + std::to_string(most);
  for (const std::uint8_t asked : {more, std::uint8_t{255}}) {
    const std::string value = std::to_string(asked);
    expect_error(Connection::prepare(pair.engine, {.reliability = {.max_rd_atomic = asked}}),
                 ErrorCode::InvalidArgument, "max_rd_atomic", value.c_str(), limit.c_str());
    expect_error(Connection::prepare(pair.engine, {.reliability = {.max_dest_rd_atomic = asked}}),
                 ErrorCode::InvalidArgument, "max_dest_rd_atomic", value.c_str(), limit.c_str());
  }
  must(Connection::prepare(pair.engine, {.reliability = {.max_rd_atomic = most, .max_dest_rd_atomic = most}}));
  must(Connection::prepare(pair.engine, {.reliability = {.max_rd_atomic = 0, .max_dest_rd_atomic = 0}}));
}

TEST(Mistakes, a_path_mtu_that_no_path_has_is_refused_and_one_above_the_devices_is_its_own) {
  Pair pair;
  for (const std::uint32_t wrong : {1u, 128u, 1500u, 8192u}) {
    const std::string value = std::to_string(wrong);
    expect_error(Connection::prepare(pair.engine, {.path_mtu = wrong}), ErrorCode::InvalidArgument, "path_mtu",
                 value.c_str());
  }
  Connection connection = must(Connection::prepare(pair.engine, {.path_mtu = 4096}));
  const auto bytes = must(connection.describe()).to_bytes();
  EXPECT_EQ(must(ConnectionDescription::from_bytes(bytes)).address.mtu,
            std::min(4096u, pair.client.info().active_mtu));
}

TEST(Mistakes, what_goes_before_what_was_made_with_it_says_so) {
  auto device = std::make_unique<Device>(must(Device::open()));
  auto engine = std::make_unique<ProgressEngine>(must(ProgressEngine::create(*device)));
  EXPECT_DEATH(device.reset(), "destroys a Device before the ProgressEngine");
  {
    const Connection connection = must(Connection::prepare(*engine));
    EXPECT_DEATH(engine.reset(), "destroys a ProgressEngine before a Connection");
  }
  {
    const ReceivePool pool = must(ReceivePool::create(*engine));
    EXPECT_DEATH(engine.reset(), "destroys a ProgressEngine before a Connection or ReceivePool");
  }
  {
    const Listener listener = must(Listener::create(*engine));
    EXPECT_DEATH(engine.reset(), "destroys a ProgressEngine before a Listener");
  }
  engine.reset();
  {
    const MemoryRegion memory = must(device->allocate_memory(64));
    EXPECT_DEATH(device.reset(), "destroys a Device before the memory or queues");
  }
  {
    auto domain = std::make_unique<ProtectionDomain>(must(device->create_protection_domain()));
    const MemoryRegion memory = must(domain->allocate_memory(64));
    EXPECT_DEATH(domain.reset(), "destroys a ProtectionDomain before a region");
  }
  {
    CompletionQueue completions = must(device->create_completion_queue(16));
    EXPECT_DEATH(device.reset(), "destroys a Device before the memory or queues");
  }
}

// A registration names addresses, but those of a program that made a mistake stand for nothing.
TEST(Mistakes, memory_is_registered_where_none_is_mapped) {
  Device device = must(Device::open());
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const place = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  std::byte* const begin = static_cast<std::byte*>(place);
  must(device.register_memory(std::span(begin, 4 * page)));
  ASSERT_EQ(::munmap(begin + page, page), 0);
  expect_error(device.register_memory(std::span(begin, 4 * page)), ErrorCode::InvalidArgument, "not mapped");
  expect_error(device.register_memory(std::span(begin + page - 1, 2)), ErrorCode::InvalidArgument, "not mapped");
  expect_error(device.register_memory(std::span(begin + page, 1)), ErrorCode::InvalidArgument, "not mapped");
  must(device.register_memory(std::span(begin + 1, page - 1)));
  must(device.register_memory(std::span(begin + 2 * page, 2 * page)));
  ASSERT_EQ(::munmap(begin, 4 * page), 0);
}

TEST(MistakesDeathTest, what_no_error_can_be_returned_for_ends_the_program_and_says_what_it_did) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Pair pair;
        const MemoryRegion memory = must(pair.client.allocate_memory(64));
        Connection connection = pair.connect();
        Operation operation;
        connection.receive(operation, memory.local());
        connection.receive(operation, memory.local());
      },
      "the program starts an Operation that is in flight");
}

Task<void> nothing() { co_return; }
Task<int> one() { co_return 1; }
Task<void> await_twice(ProgressEngine& engine, bool at_once) {
  Task<void> inner = [](ProgressEngine& e) -> Task<void> { co_await e.sleep(Duration::milliseconds(1)); }(engine);
  const auto await = [](Task<void>& task) -> Task<void> { co_await task; };
  if (at_once) {
    co_await when_all(await(inner), await(inner));
  } else {
    co_await inner;
    co_await inner;
  }
}
Task<void> await_it(Task<void>& task) { co_await task; }

// A task that does not exist, or was run already, has nobody to tell.
TEST(MistakesDeathTest, tasks_that_are_none_end_the_program_and_it_says_why) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Task<void> moved = nothing();
  engine.run(std::move(moved));
  Task<void> never;
  constexpr const char* kEmpty = "the program runs or awaits a Task that is empty: never made, or moved from";
  EXPECT_DEATH(engine.run(Task<int>{}), kEmpty);
  EXPECT_DEATH(engine.run(std::move(moved)), kEmpty);
  EXPECT_DEATH(engine.run(await_it(never)), kEmpty);
  EXPECT_DEATH(engine.spawn(Task<void>{}), kEmpty);  // at once: later nobody knows who did it
  EXPECT_DEATH(engine.run(when_all(one(), Task<int>{})), kEmpty);
  EXPECT_DEATH(engine.run(when_any(one(), Task<int>{})), kEmpty);
  std::vector<Task<int>> some(2);
  EXPECT_DEATH(engine.run(when_all(std::move(some))), kEmpty);
  constexpr const char* kTwice = "the program awaits a Task a second time";
  EXPECT_DEATH(engine.run(await_twice(engine, false)), kTwice);
  EXPECT_DEATH(engine.run(await_twice(engine, true)), kTwice);
  EXPECT_DEATH(engine.run(when_any(std::vector<Task<int>>{})), "the program awaits when_any.. of no tasks");
  EXPECT_EQ(engine.run(when_all(std::vector<Task<int>>{})).size(), 0u);
}

// As ProgressEngine says: there is no call that the exception could leave through.
TEST(MistakesDeathTest, a_callback_that_throws_while_a_destructor_drains_ends_the_program) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto throw_in = [](Operation& operation) {
    operation.on_done([](Operation&) { throw std::runtime_error("out of a callback"); });
  };
  EXPECT_DEATH(
      {
        Pair pair;
        const MemoryRegion memory = must(pair.client.allocate_memory(64));
        Operation operation;
        throw_in(operation);
        Connection connection = pair.connect();
        connection.receive(operation, memory.local());
      },
      "terminate called");
  EXPECT_DEATH(
      {
        Pair pair;
        const MemoryRegion memory = must(pair.client.allocate_memory(64));
        Operation operation;
        throw_in(operation);
        ReceivePool pool = must(ReceivePool::create(pair.engine));
        pool.receive(operation, memory.local());
      },
      "terminate called");
  // An operation that is destroyed in flight does not call its own.
  Pair pair;
  const MemoryRegion memory = must(pair.client.allocate_memory(64));
  Connection connection = pair.connect();
  {
    Operation operation;
    throw_in(operation);
    connection.receive(operation, memory.local());
  }
  // Out of the engine it leaves through the call that drives.
  Connection other = pair.connect();
  Operation operation;
  throw_in(operation);
  other.receive(operation, memory.local());
  operation.cancel();
  EXPECT_THROW(static_cast<void>(operation.wait()), std::runtime_error);
  EXPECT_TRUE(operation.done());
}

TEST(Mistakes, inline_bytes_beyond_4_gib_are_refused) {
  constexpr std::size_t kBytes = (std::size_t{1} << 32) + 8;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  {
    Pair pair;
    Connection near = pair.connect();
    MemoryRegion inbox = must(pair.server.allocate_memory(64));
    Operation receive = pair.far_end().receive(inbox.local());
    expect_error(near.send_inline({static_cast<const std::byte*>(memory), kBytes}).wait(), ErrorCode::InvalidArgument);
    pair.engine.run_until([&] { return receive.done(); }, Duration::milliseconds(50));
    EXPECT_FALSE(receive.done() && !receive.error()) << "a message of " << receive.result()->bytes << " bytes came";
  }
  ::munmap(memory, kBytes);
}

TEST(Mistakes, queues_of_absurd_length_are_refused) {
  Pair pair;
  for (const std::uint32_t length :
       {std::numeric_limits<std::uint32_t>::max(), std::numeric_limits<std::uint32_t>::max() - 1, 1u << 31}) {
    ConnectionOptions options;
    options.queues.max_send_requests = length;
    expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, "max_send_requests");
    options = {};
    options.queues.max_receive_requests = length;
    expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, "max_receive_requests");
  }
}

TEST(Mistakes, queues_as_long_as_the_device_says_are_made_and_longer_ones_named) {
  Pair pair;
  ConnectionOptions options;
  options.queues.max_receive_requests = pair.client.info().max_requests;
  options.queues.max_send_requests = pair.client.info().max_requests - 1;
  must(Connection::prepare(pair.engine, options));
  ++options.queues.max_send_requests;
  expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, "one is for keep-alives");
}

TEST(Mistakes, reliability_for_ever_is_explained_as_such) {
  Pair pair;
  ConnectionOptions options;
  options.reliability.timeout = 0;
  const Connection near = pair.connect(options);
  EXPECT_THAT(near.explain(), ::testing::Contains("requests wait for the peer's answer without end"));
}

TEST(Mistakes, reliability_that_no_queue_pair_has_is_refused) {
  Pair pair;
  const auto with = [](auto change) {
    ConnectionOptions options;
    change(options.reliability);
    return options;
  };
  const ConnectionOptions all[] = {
      with([](ReliabilityOptions& r) { r.timeout = 32; }), with([](ReliabilityOptions& r) { r.retry_count = 8; }),
      with([](ReliabilityOptions& r) { r.rnr_retry = 8; }), with([](ReliabilityOptions& r) { r.min_rnr_timer = 32; })};
  for (const ConnectionOptions& options : all)
    expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, ", at most ");
}

}  // namespace
}  // namespace verbena
