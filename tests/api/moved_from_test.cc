// SPDX-License-Identifier: Apache-2.0
// What was moved from is used: the program ends, and says which object it was.
#include <memory>
#include <optional>
#include <vector>

#include "test_pair.h"
#include "verbena/connection/retry.h"
#include "verbena/messaging/receiver.h"
#include "verbena/messaging/sender.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;

template <class T>
T take(T& object) {
  return std::move(object);
}

class MovedFromDeathTest : public ::testing::Test {
 protected:
  MovedFromDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(MovedFromDeathTest, a_device_and_an_engine) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  const ProgressEngine kept_engine = take(engine);
  EXPECT_DEATH(engine.run_once(), "uses a ProgressEngine that was moved from");
  EXPECT_DEATH(static_cast<void>(Connection::prepare(engine)), "uses a ProgressEngine that was moved from");
  Device idle = must(Device::open());
  const Device kept = take(idle);
  EXPECT_DEATH(static_cast<void>(idle.info()), "uses a Device that was moved from");
  EXPECT_DEATH(static_cast<void>(idle.allocate_memory(64)), "uses a Device that was moved from");
  EXPECT_DEATH(static_cast<void>(ProgressEngine::create(idle)), "uses a Device that was moved from");
}

TEST_F(MovedFromDeathTest, a_connection) {
  Pair pair;
  Connection connection = pair.connect();
  const Connection kept = take(connection);
  EXPECT_DEATH(static_cast<void>(connection.phase()), "uses a Connection that was moved from");
  EXPECT_DEATH(static_cast<void>(connection.send_inline(test::bytes_of("x"))), "uses a Connection that was moved from");
  EXPECT_DEATH(static_cast<void>(connection.async_close()), "uses a Connection that was moved from");
}

TEST_F(MovedFromDeathTest, a_listener_a_request_and_a_pool_of_receives) {
  Pair pair;
  Listener listener = must(Listener::create(pair.engine));
  const Listener kept = take(listener);
  EXPECT_DEATH(static_cast<void>(listener.port()), "uses a Listener that was moved from");
  EXPECT_DEATH(static_cast<void>(listener.poll_request()), "uses a Listener that was moved from");
  ReceivePool pool = must(ReceivePool::create(pair.engine));
  const ReceivePool kept_pool = take(pool);
  EXPECT_DEATH(static_cast<void>(pool.receive({})), "uses a ReceivePool that was moved from");
  EXPECT_DEATH(static_cast<void>(Connection::prepare(pair.engine, {.receive_pool = &pool})),
               "uses a ReceivePool that was moved from");
  Listener other = must(Listener::create(pair.engine));
  std::vector<ConnectionRequest> asked;
  other.on_request([&] {
    asked.push_back(std::move(*other.poll_request()));
    const ConnectionRequest kept_request = take(asked.back());
    EXPECT_DEATH(static_cast<void>(asked.back().peer()), "uses a ConnectionRequest that was moved from");
  });
  static_cast<void>(Connection::connect(pair.engine, other.address().to_string()));
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(MovedFromDeathTest, objects_of_verbs) {
  Device device = must(Device::open());
  ProtectionDomain domain = must(device.create_protection_domain());
  CompletionQueue completions = must(device.create_completion_queue(16));
  QueuePair pair = must(device.create_queue_pair(domain, completions, completions));
  SharedReceiveQueue shared = must(device.create_shared_receive_queue(domain));
  const ProtectionDomain kept_domain = take(domain);
  const CompletionQueue kept_completions = take(completions);
  const QueuePair kept_pair = take(pair);
  const SharedReceiveQueue kept_shared = take(shared);
  EXPECT_DEATH(static_cast<void>(domain.allocate_memory(64)), "uses a ProtectionDomain that was moved from");
  EXPECT_DEATH(static_cast<void>(device.create_queue_pair(domain, completions, completions)),
               "uses a ProtectionDomain that was moved from");
  EXPECT_DEATH(static_cast<void>(completions.poll_one()), "uses a CompletionQueue that was moved from");
  EXPECT_DEATH(static_cast<void>(pair.query()), "uses a QueuePair that was moved from");
  EXPECT_DEATH(static_cast<void>(pair.post_send(std::span<const SendRequest>{})),
               "uses a QueuePair that was moved from");
  EXPECT_DEATH(static_cast<void>(shared.withdraw(1)), "uses a SharedReceiveQueue that was moved from");
}

TEST_F(MovedFromDeathTest, a_buffer_pool_and_a_registration_cache) {
  Device device = must(Device::open());
  BufferPool pool = must(BufferPool::create(device.protection_domain(), {.classes = {{64, 4}}}));
  const BufferPool kept_pool = take(pool);
  EXPECT_DEATH(static_cast<void>(pool.acquire(64)), "uses a BufferPool that was moved from");
  RegistrationCache cache(device.protection_domain());
  std::vector<std::byte> memory(64);
  Registration registration = must(cache.acquire(memory));
  const Registration kept_registration = take(registration);
  EXPECT_EQ(registration.bytes().size(), 0u);
  EXPECT_DEATH(static_cast<void>(registration.local()), "uses a Registration that is empty");
  const RegistrationCache kept_cache = take(cache);
  EXPECT_DEATH(static_cast<void>(cache.statistics()), "uses a RegistrationCache that was moved from");
}

TEST_F(MovedFromDeathTest, ends_of_messages) {
  Pair pair;
  messaging::Receiver receiver =
      must(messaging::Receiver::create(pair.engine, {.connection = {.device = &pair.server}}));
  pair.listener->on_request([&] { static_cast<void>(receiver.accept(std::move(*pair.listener->poll_request()))); });
  messaging::Sender sender = must(messaging::Sender::connect(pair.engine, pair.listener->address().to_string()));
  const messaging::Sender kept_sender = take(sender);
  const messaging::Receiver kept_receiver = take(receiver);
  EXPECT_DEATH(static_cast<void>(sender.try_send(test::bytes_of("x"))), "uses a Sender that was moved from");
  EXPECT_DEATH(static_cast<void>(sender.async_close()), "uses a Sender that was moved from");
  EXPECT_DEATH(static_cast<void>(receiver.try_receive()), "uses a Receiver that was moved from");
}

// They are empty, as their headers say.
TEST(MovedFrom, memory_buffers_and_messages_are_empty) {
  Device device = must(Device::open());
  MemoryRegion region = must(device.allocate_memory(64));
  const MemoryRegion kept = take(region);
  EXPECT_TRUE(region.empty());
  EXPECT_EQ(region.local().length, 0u);
  EXPECT_EQ(region.remote().length, 0u);
  BufferPool pool = must(BufferPool::create(device.protection_domain(), {.classes = {{64, 4}}}));
  Buffer buffer = must(pool.acquire(64));
  const Buffer kept_buffer = take(buffer);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.local().length, 0u);
  buffer.release();
}

TEST(MovedFrom, a_device_that_is_moved_keeps_its_listener) {
  std::optional<Device> server;  // outlives the engine
  Device client = must(Device::open()), first = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(client));
  must(engine.add(first));
  Listener listener = must(Listener::create(engine, {.device = &first}));
  server = std::move(first);
  std::optional<Connection> accepted;
  listener.on_request([&] { accepted = must(listener.poll_request()->accept()); });
  Connection near = must(Connection::connect(engine, listener.address().to_string()));
  must(accepted->wait_established());
}

// ---- And what was made with it goes on.

TEST(Moved, a_device_whose_engine_asks_in_vain) {
  Device device = must(Device::open());
  std::unique_ptr<Device> here;
  ProgressEngine engine = must(ProgressEngine::create(device));
  here = std::make_unique<Device>(std::move(device));
  expect_error(Connection::connect(engine, here->address().to_string() + ":1"), ErrorCode::ConnectionRefused,
               "this program's own device");
  EXPECT_EQ(&engine.device(), here.get());
}

TEST(Moved, a_device_between_which_messages_go) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  for (const char* const name : {"send-receive", "buffered-write", "buffered-read", "shared-receive"}) {
    messaging::Options options;
    options.kind = must(messaging::parse_kind(name));
    messaging::Receiver receiver = must(messaging::Receiver::create(engine, options));
    auto here = std::make_unique<Device>(std::move(device));
    Listener listener = must(Listener::create(engine));
    listener.on_request([&] { must(receiver.accept(*listener.poll_request())); });
    messaging::Sender sender = must(messaging::Sender::connect(engine, listener.address().to_string(), options));
    must(sender.send(test::bytes_of("moved")));
    EXPECT_EQ(test::text_of(must(receiver.receive()).bytes()), "moved") << name;
    must(sender.close());
    device = std::move(*here);
  }
}

TEST(Moved, a_device_that_was_named) {
  Device first = must(Device::open());
  std::vector<Device> others;
  others.push_back(must(Device::open()));
  ProgressEngine engine = must(ProgressEngine::create(first));
  must(engine.add(others.front()));
  messaging::Options options;
  options.connection.device = &others.front();
  messaging::Receiver receiver = must(messaging::Receiver::create(engine, options));
  Listener listener = must(Listener::create(engine, {.device = &others.front()}));
  listener.on_request([&] { must(receiver.accept(*listener.poll_request())); });
  Reconnector reconnector(engine, listener.address().to_string(), {.device = &others.front()});
  others.push_back(must(Device::open()));
  Task<Result<messaging::Sender>> connecting = messaging::Sender::async_connect(engine, listener.address().to_string());
  ProgressEngine here = std::move(engine);
  messaging::Sender sender = must(here.run(std::move(connecting)));
  must(sender.send(test::bytes_of("moved")));
  EXPECT_EQ(test::text_of(must(receiver.receive()).bytes()), "moved");
  must(sender.close());
  std::vector<Connection> accepted;
  listener.on_request([&] { accepted.push_back(must(listener.poll_request()->accept())); });
  EXPECT_TRUE(reconnector.connect());
  accepted.clear();
  engine = std::move(here);
}

TEST(Moved, an_engine_by_which_somebody_connects_again) {
  Pair pair;
  Reconnector reconnector(pair.engine, pair.listener->address().to_string());
  ProgressEngine here = std::move(pair.engine);
  EXPECT_EQ(must(reconnector.connect()).phase(), ConnectionPhase::Established);
  pair.engine = std::move(here);
}

}  // namespace
}  // namespace verbena
