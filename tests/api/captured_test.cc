// SPDX-License-Identifier: Apache-2.0
// Callbacks that hold, by what they captured, what they are called about.
#include <memory>
#include <string>

#include "test_pair.h"
#include "verbena/async/receive_pool.h"
#include "verbena/testing/virtual_network.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using verbena::testing::VirtualHost;
using verbena::testing::VirtualNetwork;

// A connection that callbacks share.
struct Shared {
  Shared() {
    listener.on_request([this] { served.emplace(must(listener.poll_request()->accept())); });
    connection = std::make_shared<Connection>(must(Connection::connect(client.engine(), "10.0.0.1:7471")));
  }
  VirtualNetwork network = must(VirtualNetwork::create(1));
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  std::optional<Connection> served;
  MemoryRegion inbox = must(client.device().allocate_memory(64));
  std::shared_ptr<Connection> connection;
};

TEST(Captured, a_connection_that_goes_with_the_callback_of_its_operation_calls_it_no_more) {
  Shared shared;
  bool called = false;
  {
    Operation receive;
    shared.connection->receive(receive, shared.inbox.local());
    receive.on_done([&called, connection = shared.connection](Operation&) { called = true; });
    shared.connection.reset();
  }
  EXPECT_FALSE(called);
}

TEST(Captured, a_connection_that_goes_with_a_callback_that_is_replaced_ends_its_operation) {
  Shared shared;
  bool called = false;
  Operation receive;
  shared.connection->receive(receive, shared.inbox.local());
  receive.on_done([&called, connection = shared.connection,
                   text = std::make_unique<std::string>("long enough to stand on the heap, not in place")](
                      Operation&) { called = !text->empty(); });
  shared.connection.reset();
  receive.on_done([](Operation&) {});
  EXPECT_FALSE(called);
  ASSERT_TRUE(receive.done());
  ASSERT_NE(receive.error(), nullptr);
  EXPECT_EQ(receive.error()->code(), ErrorCode::Flushed);
}

TEST(Captured, a_pool_may_go_with_the_callback_that_watches_it) {
  Shared shared;
  auto pool = std::make_shared<ReceivePool>(must(ReceivePool::create(shared.client.engine())));
  ReceivePool& itself = *pool;
  Operation receive;
  itself.receive(receive, shared.inbox.local());
  must(itself.on_low(1, [pool] {}));
  pool.reset();
  static_cast<void>(itself.on_low(0, {}));
  EXPECT_TRUE(receive.done());
}

TEST(Captured, a_connection_that_its_own_end_moves_away_is_named_when_it_is_used) {
  Shared shared;
  std::optional<Connection> own(std::move(*shared.connection)), saved;
  Operation receive;
  own->receive(receive, shared.inbox.local());
  receive.on_done([&](Operation&) { saved.emplace(std::move(*own)); });
  own.reset();
  ASSERT_TRUE(saved);
  EXPECT_TRUE(saved->closed());
  EXPECT_DEATH(static_cast<void>(saved->local_qpn()), "moved away while it was destroyed");
}

}  // namespace
}  // namespace verbena
