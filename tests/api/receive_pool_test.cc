// SPDX-License-Identifier: Apache-2.0
// Many connections, one pool of receives.
#include <array>
#include <deque>
#include <map>

#include "test_pair.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;

// Clients of one device, accepted by a server whose connections share one pool.
struct Pooled {
  explicit Pooled(std::size_t clients, const ReceivePoolOptions& options = {}, const OpenOptions& device = {})
      : pair({}, device) {
    ReceivePoolOptions here = options;
    here.device = &pair.server;
    pool.emplace(must(ReceivePool::create(pair.engine, here)));
    pair.server_options.receive_pool = &*pool;
    pair.server_options.queues.max_send_requests = 4;
    connect(clients);
  }
  ~Pooled() {
    near.clear();
    pair.accepted.clear();
  }
  Pooled(const Pooled&) = delete;
  Pooled& operator=(const Pooled&) = delete;

  void connect(std::size_t clients) {
    ConnectionOptions options;
    options.queues.max_send_requests = 8;
    options.queues.max_receive_requests = 1;
    options.reliability.timeout = 18;
    for (std::size_t i = 0; i < clients; ++i) near.push_back(pair.connect(options));
    ASSERT_EQ(pair.accepted.size(), near.size());
  }
  bool run_until_done(const Operation& operation) {
    return pair.engine.run_until([&] { return operation.done(); }, Duration::seconds(10));
  }

  Pair pair;
  std::optional<ReceivePool> pool;
  std::deque<Connection> near;  // near[i] speaks with pair.accepted[i]
};

TEST(ReceivePool, serves_two_thousand_connections_and_says_whose_each_message_is) {
  constexpr std::size_t kClients = 2000, kBuffers = 64, kMessages = 2;
  Pooled world(kClients, {.max_receives = kBuffers});
  MemoryRegion inbox = must(world.pair.server.allocate_memory(kBuffers * 64));
  std::map<std::uint32_t, std::size_t> client_of;
  for (std::size_t i = 0; i < kClients; ++i) {
    client_of[world.pair.accepted[i].local_qpn().value()] = i;
    EXPECT_EQ(world.pair.accepted[i].local_qpn(), world.near[i].remote_qpn());
  }

  std::vector<std::size_t> heard(kClients, 0);
  std::size_t total = 0;
  std::array<Operation, kBuffers> receives;
  for (std::uint32_t b = 0; b < kBuffers; ++b) {
    receives[b].on_done([&, b](Operation& self) {
      const OperationOutcome outcome = must(self.result());
      const std::size_t client = client_of.at(outcome.qpn.value());
      EXPECT_EQ(test::text_of(inbox.bytes().subspan(b * 64, outcome.bytes)),
                std::to_string(client) + "/" + std::to_string(heard[client]));
      ++heard[client];
      ++total;
      self.submit();
    });
    world.pool->receive(receives[b], inbox.local(b * 64, 64));
  }
  // More at once than there are receives, but no more than a socket's buffer holds.
  constexpr std::size_t kAtOnce = 2 * kBuffers;
  for (std::size_t m = 0; m < kMessages; ++m)
    for (std::size_t first = 0; first < kClients; first += kAtOnce) {
      std::deque<Operation> sends;
      for (std::size_t i = first; i < std::min(first + kAtOnce, kClients); ++i)
        world.near[i].send_inline(sends.emplace_back(),
                                  test::bytes_of(std::to_string(i) + "/" + std::to_string(m)));
      for (std::size_t k = 0; k < sends.size(); ++k)
        EXPECT_EQ(must(sends[k].wait(Duration::seconds(30))).qpn, world.near[first + k].local_qpn());
    }
  EXPECT_TRUE(
      world.pair.engine.run_until([&] { return total == kClients * kMessages; }, Duration::seconds(30)));
  for (std::size_t i = 0; i < kClients; ++i) EXPECT_EQ(heard[i], kMessages) << i;
  EXPECT_EQ(world.pool->receives_in_flight(), kBuffers);
}

TEST(ReceivePool, brings_immediates_and_writes_too) {
  Pooled world(1);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  MemoryRegion source = must(world.pair.client.allocate_memory(64));
  Operation first = world.pool->receive(inbox.local());
  Operation second = world.pool->receive(Segments{});
  Operation sent = world.near[0].send_with_immediate(source.local(0, 8), 77);
  Operation written = world.near[0].write_with_immediate(source.local(0, 16), inbox.remote(), 78);
  const OperationOutcome a = must(first.wait(Duration::seconds(10)));
  EXPECT_EQ(a.immediate, 77u);
  EXPECT_EQ(a.bytes, 8u);
  const OperationOutcome b = must(second.wait(Duration::seconds(10)));
  EXPECT_EQ(b.immediate, 78u);
  EXPECT_EQ(b.kind, CompletionOpcode::ReceiveRdmaWithImmediate);
  EXPECT_EQ(b.qpn, world.pair.accepted[0].local_qpn());
  must(sent.wait());
  must(written.wait());
}

TEST(ReceivePool, connection_on_a_pool_refuses_receives_of_its_own) {
  Pooled world(1);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  Connection& far = world.pair.accepted[0];
  expect_error(far.receive(inbox.local()).wait(), ErrorCode::InvalidArgument, "ReceivePool",
               "start them there");
  const ReceiveRequest request{1, {}};
  EXPECT_EQ(far.post_receive({&request, 1}).status, PostStatus::SharedReceives);
  EXPECT_EQ(far.phase(), ConnectionPhase::Established);
  EXPECT_EQ(far.queues().max_receive_requests, 0u);
  bool said = false;
  for (const std::string& line : far.explain()) said = said || line.find("pool of 1024") != std::string::npos;
  EXPECT_TRUE(said);
}

TEST(ReceivePool, cancelled_expired_and_destroyed_receives_leave_every_connection_alone) {
  Pooled world(2);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  Operation cancelled = world.pool->receive(inbox.local());
  Operation expiring = world.pool->receive(inbox.local());
  { Operation destroyed = world.pool->receive(inbox.local()); }
  Operation waiting = world.pool->receive(inbox.local());
  EXPECT_EQ(world.pool->receives_in_flight(), 3u);
  cancelled.cancel();
  cancelled.cancel();
  expect_error(expiring.wait(Duration::milliseconds(5)), ErrorCode::DeadlineExceeded,
               "RECEIVE into 64 bytes");
  expect_error(cancelled.wait(), ErrorCode::Cancelled, "RECEIVE into 64 bytes");
  EXPECT_EQ(world.pool->receives_in_flight(), 1u);
  {
    Operation gone_before_it_was_told = world.pool->receive(inbox.local());
    gone_before_it_was_told.cancel();
  }
  Operation sent = world.near[1].send_inline(test::bytes_of("still here"));
  EXPECT_EQ(must(waiting.wait(Duration::seconds(10))).bytes, 10u);
  EXPECT_EQ(test::text_of(inbox.bytes()), "still here");
  must(sent.wait());
  for (const Connection& far : world.pair.accepted) EXPECT_EQ(far.phase(), ConnectionPhase::Established);
}

TEST(ReceivePool, deadlines_of_many_receives_pass_one_after_the_other) {
  Pooled world(1);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  std::array<Operation, 20> receives;
  std::size_t expired = 0;
  for (std::size_t i = 0; i < receives.size(); ++i) {
    receives[i].on_done([&](Operation& self) {
      expect_error(self.result(), ErrorCode::DeadlineExceeded);
      ++expired;
    });
    receives[i].expires_at(world.pair.engine.now() +
                           Duration::milliseconds(static_cast<std::int64_t>(i % 3)));
    world.pool->receive(receives[i], inbox.local());
  }
  EXPECT_TRUE(world.pair.engine.run_until([&] { return expired == receives.size(); }, Duration::seconds(10)));
  EXPECT_EQ(world.pool->receives_in_flight(), 0u);
}

TEST(ReceivePool, message_that_is_too_long_breaks_its_own_connection_only) {
  Pooled world(2);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(128));
  Operation small = world.pool->receive(inbox.local(0, 4));
  Operation next = world.pool->receive(inbox.local(64, 64));
  Operation sent = world.near[0].send_inline(test::bytes_of("too long"));
  expect_error(small.wait(Duration::seconds(10)), ErrorCode::LocalLengthError, "RECEIVE into 4 bytes", "qpn");
  expect_error(sent.wait(Duration::seconds(10)), ErrorCode::RemoteInvalidRequest);
  EXPECT_EQ(world.pair.accepted[0].phase(), ConnectionPhase::Broken);
  expect_error(world.pair.accepted[0].status().error(), ErrorCode::LocalLengthError);
  Operation fine = world.near[1].send_inline(test::bytes_of("fits"));
  EXPECT_EQ(must(next.wait(Duration::seconds(10))).qpn, world.pair.accepted[1].local_qpn());
  must(fine.wait());
  EXPECT_EQ(world.pair.accepted[1].phase(), ConnectionPhase::Established);
}

TEST(ReceivePool, receives_outlive_a_connection_and_serve_the_next) {
  Pooled world(2);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  Operation receive = world.pool->receive(inbox.local());
  must(world.near[0].close());
  EXPECT_TRUE(
      world.pair.engine.run_until([&] { return world.pair.accepted[0].closed(); }, Duration::seconds(10)));
  EXPECT_TRUE(receive.in_flight());
  Operation sent = world.near[1].send_inline(test::bytes_of("mine"));
  EXPECT_EQ(must(receive.wait(Duration::seconds(10))).qpn, world.pair.accepted[1].local_qpn());
  must(sent.wait());
}

TEST(ReceivePool, sender_waits_while_the_pool_is_empty) {
  Pooled world(2);
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  Operation sent = world.near[0].send_inline(test::bytes_of("patience"));
  world.pair.engine.run_until([] { return false; }, Duration::milliseconds(20));
  EXPECT_FALSE(sent.done());
  Operation receive = world.pool->receive(inbox.local());
  must(sent.wait(Duration::seconds(10)));
  EXPECT_EQ(must(receive.wait()).bytes, 8u);
}

TEST(ReceivePool, says_once_that_it_runs_low) {
  Pooled world(1, {.max_receives = 8});
  MemoryRegion inbox = must(world.pair.server.allocate_memory(64));
  std::array<Operation, 8> receives;
  for (Operation& receive : receives) world.pool->receive(receive, inbox.local());
  int told = 0;
  must(world.pool->on_low(7, [&] { ++told; }));
  const auto send = [&] { must(world.near[0].send_inline(test::bytes_of("x")).wait(Duration::seconds(10))); };
  send();
  world.pair.engine.run_until([&] { return receives[0].done(); }, Duration::seconds(10));
  EXPECT_EQ(told, 0) << "seven are left";
  send();
  EXPECT_TRUE(world.pair.engine.run_until([&] { return told == 1; }, Duration::seconds(10)));
  send();
  world.pair.engine.run_until([&] { return receives[2].done(); }, Duration::seconds(10));
  EXPECT_EQ(told, 1);
  // Armed again from inside: it is low already.
  must(world.pool->on_low(8, [&] { must(world.pool->on_low(8, [&] { told += 10; })); }));
  EXPECT_TRUE(world.pair.engine.run_until([&] { return told == 11; }, Duration::seconds(10)));
  must(world.pool->on_low(1, [&] { told += 100; }));
  must(world.pool->on_low(0, {}));
  for (int i = 0; i < 5; ++i) send();
  EXPECT_EQ(told, 11);
  expect_error(world.pool->on_low(9, {}).error(), ErrorCode::InvalidArgument, "9", "8");
}

TEST(ReceivePool, refuses_what_it_has_no_room_for) {
  Pair pair;
  expect_error(ReceivePool::create(pair.engine, {.max_receives = 0}), ErrorCode::InvalidArgument);
  Device stranger = must(Device::open());
  expect_error(ReceivePool::create(pair.engine, {.device = &stranger}), ErrorCode::InvalidArgument,
               "attached");
  ReceivePool pool = must(ReceivePool::create(pair.engine, {.max_receives = 2, .max_segments = 1}));
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation a = pool.receive(inbox.local()), b = pool.receive(inbox.local());
  expect_error(pool.receive(inbox.local()).wait(), ErrorCode::QueueFull, "2 are in flight");
  expect_error(pool.receive({inbox.local(0, 8), inbox.local(8, 8)}).wait(), ErrorCode::InvalidArgument,
               "at most 1");
  ConnectionOptions options;
  options.receive_pool = &pool;
  options.device = &pair.server;
  expect_error(Connection::prepare(pair.engine, options), ErrorCode::InvalidArgument, "another device");
}

TEST(ReceivePool, its_end_is_the_end_of_its_receives) {
  Pair pair;
  MemoryRegion inbox = must(pair.client.allocate_memory(64));
  Operation first, second;
  {
    ReceivePool pool = must(ReceivePool::create(pair.engine));
    pool.receive(first, inbox.local());
    first.on_done([&](Operation&) { pool.receive(second, inbox.local()); });
  }
  expect_error(first.result(), ErrorCode::Flushed, "destroyed here");
  expect_error(second.result(), ErrorCode::Flushed, "destroyed here");
}

// A message that takes long, of which something has arrived: by packets, which are counted.
struct Begun {
  Begun() {
    world.pool->receive(receive, inbox.local());
    const std::uint64_t before = arrived();
    world.near[0].send(sent, source.local());
    EXPECT_TRUE(world.pair.engine.run_until([&] { return arrived() > before + 20; }, Duration::seconds(10)));
    EXPECT_TRUE(receive.in_flight());
  }
  std::uint64_t arrived() {
    for (const NamedCounter& counter : world.pair.server.counters())
      if (counter.name == "rcvd_pkts") return counter.value;
    ADD_FAILURE() << "no counter of packets";
    return 0;
  }

  static constexpr std::size_t kBytes = 32u << 20;
  Pooled world{2, {}, {.path = PathChoice::Roce}};
  MemoryRegion source = must(world.pair.client.allocate_memory(kBytes));
  MemoryRegion inbox = must(world.pair.server.allocate_memory(kBytes));
  Operation receive, sent;
};

TEST(ReceivePool, receive_that_a_message_has_begun_to_fill_ends_with_that_message) {
  Begun begun;
  begun.receive.cancel();
  EXPECT_EQ(begun.world.pool->receives_in_flight(), 1u) << "it cannot be taken back";
  EXPECT_EQ(must(begun.receive.wait()).bytes, Begun::kBytes);
  must(begun.sent.wait(Duration::seconds(30)));
  EXPECT_EQ(begun.world.pair.accepted[0].phase(), ConnectionPhase::Established);
}

TEST(ReceivePool, receive_that_a_message_has_begun_to_fill_ends_with_its_connection) {
  for (const bool cancelled : {false, true}) {
    Begun begun;
    if (cancelled) begun.receive.cancel();
    begun.world.pair.accepted.erase(begun.world.pair.accepted.begin());
    const auto outcome = begun.receive.wait(Duration::seconds(10));
    expect_error(outcome, cancelled ? ErrorCode::Cancelled : ErrorCode::Flushed,
                 "RECEIVE into 33554432 bytes");
    EXPECT_EQ(begun.world.pair.accepted[0].phase(), ConnectionPhase::Established);
  }
}

// The same by hand.
TEST(SharedReceiveQueue, serves_queue_pairs_made_by_hand) {
  Device client = must(Device::open()), server = must(Device::open());
  CompletionQueue near_queue = must(client.create_completion_queue(16));
  CompletionQueue far_queue = must(server.create_completion_queue(16));
  SharedReceiveQueue shared =
      must(server.create_shared_receive_queue({.max_requests = 4, .max_segments = 1}));
  EXPECT_EQ(must(shared.query()).max_requests, 4u);
  MemoryRegion inbox = must(server.allocate_memory(256));
  QueuePairOptions on_shared;
  on_shared.shared_receive_queue = &shared;
  std::vector<QueuePair> near, far;
  for (int i = 0; i < 2; ++i) {
    near.push_back(must(client.create_queue_pair(near_queue)));
    far.push_back(must(server.create_queue_pair(far_queue, on_shared)));
    must(near.back().connect(far.back().address()));
    must(far.back().connect(near.back().address()));
    EXPECT_EQ(far.back().capabilities().max_receive_requests, 0u);
    EXPECT_EQ(far.back().post_receive(ReceiveRequest{}).status, PostStatus::SharedReceives);
  }
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const ScatterGather place = inbox.local((id - 1) * 64, 64);
    ASSERT_TRUE(shared.post({id, {&place, 1}}));
  }
  EXPECT_TRUE(shared.withdraw(2));
  EXPECT_FALSE(shared.withdraw(2));
  must(shared.arm_limit(1));
  EXPECT_EQ(must(shared.query()).limit, 1u);
  for (std::size_t i = 0; i < 2; ++i) {
    SendRequest request;
    request.flags = SendFlags::Signaled;
    ASSERT_TRUE(near[1 - i].post_send(request));
    std::optional<Completion> done;
    while (!(done = far_queue.poll_one())) client.progress();
    EXPECT_EQ(done->id, i == 0 ? 1u : 3u);
    EXPECT_EQ(done->qpn, far[1 - i].qpn());
  }
  const Instant until = server.now() + Duration::seconds(10);
  std::optional<DeviceEvent> event;
  while (!(event && event->async == AsyncEventType::SrqLimitReached) && server.now() < until) {
    server.progress();
    event = server.poll_event();
  }
  ASSERT_TRUE(event);
  EXPECT_EQ(event->async, AsyncEventType::SrqLimitReached);
  EXPECT_EQ(event->shared_receive_queue, shared.id());
}

}  // namespace
}  // namespace verbena
