// SPDX-License-Identifier: Apache-2.0
// Requests that programs post themselves: they share queues with operations, and completion queues with everybody.
#include <atomic>
#include <chrono>
#include <thread>

#include "async/engine_state.h"
#include "device/queue_pair_steps.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;

struct Posting : ::testing::Test {
  // Until it is refused; how many were not.
  static std::uint32_t post_sends(Connection& connection, SendFlags flags, std::uint32_t most) {
    for (std::uint32_t i = 0; i < most; ++i) {
      SendRequest request;
      request.id = i;
      request.opcode = SendOpcode::RdmaWrite;
      request.flags = flags;
      if (const PostResult result = connection.post_send({&request, 1}); !result) {
        EXPECT_EQ(result.status, PostStatus::QueueFull);
        return i;
      }
    }
    return most;
  }
  static std::uint32_t post_receives(Connection& connection, std::uint32_t most) {
    for (std::uint32_t i = 0; i < most; ++i) {
      const ReceiveRequest request{i, {}};
      if (const PostResult result = connection.post_receive({&request, 1}); !result) {
        EXPECT_EQ(result.status, PostStatus::QueueFull);
        return i;
      }
    }
    return most;
  }
  void expect_alive(Connection& connection) {
    std::vector<std::uint64_t> cell{7};
    MemoryRegion region = must(pair.server.register_memory(cell));
    EXPECT_EQ(must(connection.fetch_and_add(region.remote(), 1).wait()).value, 7u);
  }

  Pair pair;
  Connection bystander = pair.connect();
};

TEST_F(Posting, sends_nobody_took_the_completions_of_fill_the_queue) {
  ConnectionOptions options;
  options.queues.max_send_requests = 100;  // the device's ring has more room
  Connection near = pair.connect(options);
  std::uint32_t told = 0;
  near.on_completion([&](const Completion& c) {
    EXPECT_EQ(c.status, CompletionStatus::Success);
    EXPECT_EQ(c.id, told++);
  });
  EXPECT_EQ(post_sends(near, SendFlags::Signaled, 6000), 100u);
  EXPECT_TRUE(pair.engine.run_until([&] { return told == 100; }, Duration::seconds(30)));
  told = 0;
  EXPECT_EQ(post_sends(near, SendFlags::Signaled, 100), 100u);
  EXPECT_TRUE(pair.engine.run_until([&] { return told == 100; }, Duration::seconds(30)));
  expect_alive(near);
  expect_alive(bystander);
}

TEST_F(Posting, sends_that_are_not_signaled_count_until_the_engine_saw_them_done) {
  Connection near = pair.connect();
  bool told = false;
  near.on_completion([&](const Completion&) { told = true; });
  EXPECT_EQ(post_sends(near, SendFlags::None, 6000), 64u);
  expect_error(near.write(Segments{}, RemoteMemory{}).wait(), ErrorCode::QueueFull, "64 are in flight");
  constexpr std::uint32_t kMore = 200;
  std::uint32_t posted = 0;
  EXPECT_TRUE(pair.engine.run_until(
      [&] { return (posted += post_sends(near, SendFlags::None, kMore - posted)) == kMore; },
      Duration::seconds(30)));
  must(near.close());
  EXPECT_FALSE(told);
  expect_alive(bystander);
}

TEST_F(Posting, receives_share_their_queue_with_operations) {
  Connection near = pair.connect();
  std::vector<Operation> receives(60);
  for (Operation& receive : receives) near.receive(receive, Segments{});
  EXPECT_EQ(post_receives(near, 6000), 4u);
}

TEST_F(Posting, of_a_list_what_fits_is_posted_and_told_of_by_its_own_ids) {
  Connection near = pair.connect();
  std::vector<std::uint64_t> told;
  near.on_completion([&](const Completion& c) { told.push_back(c.id); });
  std::vector<SendRequest> sends(100);
  std::vector<ReceiveRequest> receives(100);
  for (std::uint64_t i = 0; i < 100; ++i) {
    sends[i].id = 1000 + i;
    sends[i].opcode = SendOpcode::RdmaWrite;
    sends[i].flags = i % 2 == 0 ? SendFlags::Signaled : SendFlags::None;
    receives[i].id = 2000 + i;
  }
  EXPECT_EQ(post_sends(near, SendFlags::Signaled, 3), 3u);
  const PostResult sent = near.post_send(sends), received = near.post_receive(receives);
  EXPECT_EQ(sent.status, PostStatus::QueueFull);
  EXPECT_EQ(sent.posted, 61u);
  EXPECT_EQ(received.status, PostStatus::QueueFull);
  EXPECT_EQ(received.posted, 64u);
  EXPECT_EQ(near.post_send(std::span(sends).first(0)).status, PostStatus::Ok);
  EXPECT_TRUE(pair.engine.run_until([&] { return told.size() == 3 + 31; }, Duration::seconds(30)));
  for (std::size_t i = 3; i < told.size(); ++i) EXPECT_EQ(told[i], 1000 + 2 * (i - 3));
  // One that the device refuses ends what is posted of the list, and takes no room.
  told.clear();
  sends[5].local = std::span<const ScatterGather>(static_cast<const ScatterGather*>(nullptr), 1000);
  const PostResult refused = near.post_send(std::span(sends).first(10));
  EXPECT_EQ(refused.status, PostStatus::TooManySegments);
  EXPECT_EQ(refused.posted, 5u);
  EXPECT_TRUE(pair.engine.run_until([&] { return told.size() == 3; }, Duration::seconds(30)));
  EXPECT_EQ(post_sends(near, SendFlags::Signaled, 6000), 64u);
  expect_alive(bystander);
}

TEST_F(Posting, receives_left_behind_take_no_room_from_others) {
  for (int i = 0; i < 80; ++i) {
    Connection left = must(Connection::prepare(pair.engine));
    EXPECT_EQ(post_receives(left, 6000), 64u);
  }
  expect_alive(bystander);
}

TEST_F(Posting, a_handler_may_destroy_the_connection) {
  std::optional<Connection> near{pair.connect()};
  int told = 0;
  near->on_completion([&, name = std::string(100, 'x')](const Completion&) {
    near.reset();
    told += name.size() == 100 ? 1 : 100;  // what it captured is still there
  });
  EXPECT_EQ(post_sends(*near, SendFlags::Signaled, 5), 5u);
  EXPECT_TRUE(pair.engine.run_until([&] { return told != 0; }, Duration::seconds(30)));
  EXPECT_EQ(told, 1);
}

// What is gathered leaves when anybody waits, and may go with its connection before.
TEST(Gathered, what_is_waited_for_leaves_and_what_is_destroyed_does_not_matter) {
  for (const WaitMode mode : {WaitMode::Busy, WaitMode::Event, WaitMode::Adaptive}) {
    Pair pair({mode});
    Connection near = pair.connect();
    std::optional<Connection> other{pair.connect()};
    std::vector<std::uint64_t> cell{0};
    MemoryRegion region = must(pair.server.register_memory(cell));
    Operation lost, first, second;
    const ProgressEngine::Gathered together(pair.engine);
    other->fetch_and_add(lost, region.remote(), 100);
    other.reset();
    EXPECT_TRUE(lost.done());
    near.fetch_and_add(first, region.remote(), 1);
    near.fetch_and_add(second, region.remote(), 1);
    EXPECT_EQ(must(second.wait()).value % 100, 1u);
    EXPECT_EQ(cell[0] % 100, 2u);
  }
}

// One thread at a time, but not always the same.
TEST(Gathered, what_one_thread_began_another_waits_for) {
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    OpenOptions open;
    open.path = path;
    Pair pair({WaitMode::Busy}, open);
    std::optional<Connection> near{pair.connect()};
    std::vector<std::uint64_t> cell{0};
    MemoryRegion region = must(pair.server.register_memory(cell));
    for (const bool destroys : {false, true}) {
      std::optional<ProgressEngine::Gathered> together;
      Operation operation;
      std::thread([&] {
        together.emplace(pair.engine);
        near->fetch_and_add(operation, region.remote(), 1);
      }).join();
      if (destroys)
        near.reset();
      else
        must(operation.wait());
      EXPECT_TRUE(operation.done());
      together.reset();
    }
    pair.engine.run_once();
  }
}

// Of a program that posts one request at a time, as many do.
struct Deferred : ::testing::TestWithParam<std::tuple<PathChoice, bool>> {
  static OpenOptions options() {
    OpenOptions open;
    open.path = std::get<0>(GetParam());
    return open;
  }
  static OpenOptions options_of_client() {
    OpenOptions open = options();
    open.service_thread = std::get<1>(GetParam());
    return open;
  }
  bool post_write(std::byte value) {
    here.bytes()[0] = value;
    const ScatterGather piece = here.local();
    SendRequest request;
    request.opcode = SendOpcode::RdmaWrite;
    request.flags = SendFlags::Inline;
    request.local = {&piece, 1};
    request.remote_address = there.remote().address;
    request.rkey = there.rkey();
    return static_cast<bool>(near.post_send({&request, 1}));
  }
  std::uint64_t send_calls() const {
    std::uint64_t calls = 0;
    for (const NamedCounter& counter : pair.client.counters())
      if (counter.name == "udp_send_calls") calls += counter.value;
    return calls;
  }

  Pair pair{{WaitMode::Busy}, options(), options_of_client()};
  MemoryRegion here = must(pair.client.allocate_memory(1)), there = must(pair.server.allocate_memory(1));
  Connection near = pair.connect({.queues = {.max_send_requests = 128, .max_inline_bytes = 1}});
};
INSTANTIATE_TEST_SUITE_P(Api, Deferred,
                         ::testing::Combine(::testing::Values(PathChoice::Roce, PathChoice::Local),
                                            ::testing::Bool()),
                         [](const auto& way) {
                           return std::string(std::get<0>(way.param) == PathChoice::Local ? "local" : "roce") +
                                  (std::get<1>(way.param) ? "" : "_without_service_thread");
                         });

// Behind the first eight, where this thread is not kept from the processor for longer than a lease.
TEST_P(Deferred, posts_behind_many_under_way_share_their_way) {
  const auto [path, is_served] = GetParam();
  if (!is_served || path == PathChoice::Local) GTEST_SKIP() << "nobody else would send them, or they are not counted";
  constexpr std::uint64_t kPosts = 16, kFew = 12;
  const auto shares_calls = [this] {
    const std::uint64_t before = send_calls();
    std::uint64_t posted = 0;
    while (posted < kPosts && post_write(std::byte{1})) ++posted;
    return posted == kPosts && send_calls() - before < kFew;
  };
  EXPECT_TRUE(pair.engine.run_until(shares_calls, Duration::seconds(60)));
  must(near.close());
}

TEST_P(Deferred, a_list_leaves_together) {
  if (std::get<0>(GetParam()) == PathChoice::Local) GTEST_SKIP() << "not counted";
  std::vector<SendRequest> writes(32);
  for (SendRequest& write : writes) {
    write.opcode = SendOpcode::RdmaWrite;
    write.remote_address = there.remote().address;
    write.rkey = there.rkey();
  }
  const std::uint64_t before = send_calls();
  ASSERT_TRUE(near.post_send(writes));
  EXPECT_LT(send_calls() - before, 8u);
  must(near.close());
}

TEST_P(Deferred, posts_leave_though_nobody_polls_again) {
  for (int round = 1; round < 20; ++round) {
    // Also who slept meanwhile, as the service thread does, learns of them.
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int i = 0; i < (round % 2 == 0 ? 1 : 200); ++i) pair.engine.run_once();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(post_write(static_cast<std::byte>(i == 19 ? round : 0)));
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto arrived = [&] {
      return std::atomic_ref(there.bytes()[0]).load(std::memory_order_acquire) == static_cast<std::byte>(round);
    };
    while (!arrived() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    ASSERT_TRUE(arrived()) << "round " << round;
  }
}

TEST_F(Posting, close_waits_for_requests_as_for_operations) {
  constexpr std::uint32_t kRequests = 32, kBytes = 1u << 20;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(kBytes)), there = must(pair.server.allocate_memory(kBytes));
  std::vector<CompletionStatus> told;
  near.on_completion([&](const Completion& c) { told.push_back(c.status); });
  const ScatterGather piece = here.local();
  SendRequest request;
  request.opcode = SendOpcode::RdmaWrite;
  request.local = {&piece, 1};
  request.remote_address = there.remote().address;
  request.rkey = there.rkey();
  for (std::uint32_t i = 0; i < kRequests; ++i) ASSERT_TRUE(near.post_send({&request, 1}));
  must(near.close(Duration::seconds(60)));
  EXPECT_THAT(told, ::testing::ElementsAreArray(std::vector(kRequests, CompletionStatus::Success)));
}

TEST_F(Posting, a_request_that_fails_breaks_its_connection) {
  Connection near = pair.connect();
  std::vector<CompletionStatus> told;
  near.on_completion([&](const Completion& c) { told.push_back(c.status); });
  SendRequest request;
  request.id = 5;
  request.opcode = SendOpcode::FetchAndAdd;
  ASSERT_EQ(near.post_send({&request, 1}).status, PostStatus::InvalidRequest);
  MemoryRegion result = must(pair.client.allocate_memory(8));
  const ScatterGather piece = result.local();
  request.local = {&piece, 1};
  request.flags = SendFlags::None;
  request.remote_address = 64;
  ASSERT_TRUE(near.post_send({&request, 1}));
  EXPECT_TRUE(pair.engine.run_until([&] { return near.closed(); }, Duration::seconds(30)));
  expect_error(near.status(), ErrorCode::RemoteAccessError, "request posted to 127.0.0.");
  EXPECT_THAT(told, ::testing::ElementsAre(CompletionStatus::RemoteAccessError));
}

// Fills a completion queue that connections share with completions of a queue pair that nobody promised room to.
void overrun(AttachedDevice& device, CompletionShard& shard) {
  constexpr std::uint64_t kNobody = std::uint64_t{0xfff00000} << 32;
  provider::Context& context = device.context();
  provider::QueuePairSpec spec;
  spec.pd = provider::PdId{device.state().domain->id()};
  spec.capabilities.max_receive_requests = shard.capacity + 1;
  spec.send_cq = spec.receive_cq = shard.id;
  const Qpn intruder = must(context.create_qp(spec)).qpn;
  must(queue_pair_steps::to_init(context, intruder, spec.type, Access::All));
  for (std::uint32_t i = 0; i <= shard.capacity; ++i) {
    const ReceiveRequest request{kNobody, {}};
    ASSERT_TRUE(context.qp(intruder)->post_receive({&request, 1}));
  }
  must(queue_pair_steps::to_error(context, intruder));
  must(context.destroy_qp(intruder));
}

TEST_F(Posting, what_waits_for_lost_completions_fails) {
  AttachedDevice& device = *pair.engine.state().find(&pair.client);
  std::optional<Connection> raw{pair.connect()}, dropped{pair.connect()};
  std::vector<std::uint64_t> flushed;
  raw->on_completion([&](const Completion& c) {
    EXPECT_EQ(c.status, CompletionStatus::Flushed);
    flushed.push_back(c.id);
  });
  EXPECT_EQ(post_receives(*raw, 3), 3u);
  Operation first = bystander.receive(Segments{}), second = bystander.receive(Segments{});
  Operation doomed = dropped->receive(Segments{});
  Operation with_it = dropped->receive(Segments{});
  doomed.on_done([&](Operation&) { dropped.reset(); });
  overrun(device, *device.shards().front());
  expect_error(first.wait(), ErrorCode::ConnectionLost, "RECEIVE into 0 bytes", "completion queue");
  expect_error(second.wait(), ErrorCode::ConnectionLost);
  expect_error(with_it.wait(), ErrorCode::ConnectionLost);
  EXPECT_FALSE(dropped);
  EXPECT_TRUE(pair.engine.run_until([&] { return flushed.size() == 3; }, Duration::seconds(30)));
  EXPECT_THAT(flushed, ::testing::UnorderedElementsAre(0, 1, 2));
  expect_error(bystander.status(), ErrorCode::ConnectionLost, "completion queue");
  const ReceiveRequest late;
  EXPECT_EQ(raw->post_receive({&late, 1}).status, PostStatus::WrongState);
  // Who comes later has another queue.
  Connection fresh = pair.connect();
  expect_alive(fresh);
}

TEST_F(Posting, what_waits_for_lost_completions_fails_though_many_callbacks_throw) {
  std::array<Operation, 12> throwing;
  Operation last;
  for (Operation& each : throwing) {
    each.on_done([](Operation&) { throw std::runtime_error("out of a callback"); });
    bystander.receive(each, Segments{});
  }
  bystander.receive(last, Segments{});
  AttachedDevice& device = *pair.engine.state().find(&pair.client);
  overrun(device, *device.shards().front());
  for (std::size_t i = 0; i < throwing.size(); ++i)
    EXPECT_THROW(pair.engine.run_until([&] { return last.done(); }, Duration::seconds(20)), std::runtime_error);
  EXPECT_TRUE(pair.engine.run_until([&] { return last.done(); }, Duration::seconds(20)));
}

TEST_F(Posting, an_operation_is_destroyed_though_its_completion_is_lost) {
  AttachedDevice& device = *pair.engine.state().find(&pair.client);
  Operation receive = bystander.receive(Segments{});
  overrun(device, *device.shards().front());
}

TEST_F(Posting, a_connection_is_destroyed_though_completions_are_lost) {
  AttachedDevice& device = *pair.engine.state().find(&pair.client);
  Connection near = pair.connect();
  Operation receive = near.receive(Segments{});
  EXPECT_EQ(post_receives(near, 3), 3u);
  overrun(device, *device.shards().front());
}

}  // namespace
}  // namespace verbena
