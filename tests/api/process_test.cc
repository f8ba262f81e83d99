// SPDX-License-Identifier: Apache-2.0
// Two processes: what one sees of the other's death, sleep and return.
#include <sys/resource.h>

#include "test_process.h"

namespace verbena {
namespace {

using test::expect_error;
using test::kLentBytes;
using test::must;
using test::Process;
using test::Reception;

// Where the peer dies: budget without progress 3 periods of 0.5 s, as a loaded machine may hold a process up for long.
ConnectionOptions quick() {
  ConnectionOptions options;
  options.reliability.timeout = 17;
  options.reliability.retry_count = 2;
  options.keep_alive = Duration::milliseconds(50);
  return options;
}
// Where it lives: 8 periods of 2 s.
ConnectionOptions unhurried() {
  ConnectionOptions options;
  options.reliability.timeout = 19;
  return options;
}

// Serves one peer: gives it memory in the private data, then keeps receives up until the peer is gone.
void serve_one_peer(const std::function<void(const std::string&)>& say) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  ConnectionRequest request = must(listener.wait_request());
  const auto key = memory.remote().to_bytes();
  Connection connection = must(request.accept(quick(), key));
  must(connection.wait_established());
  engine.run_until([&] { return connection.closed(); });
  say(connection.status().error().to_string());
}

// Writes to the peer for ever, each megabyte with an immediate; says its first line when the first has arrived.
void write_for_ever(const std::string& address, const std::function<void(const std::string&)>& say) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Connection connection = must(Connection::connect(engine, address, quick()));
  const RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
  for (std::uint32_t i = 0;; ++i) {
    if (auto done = connection.write_with_immediate(memory.local(), remote, i).wait(); !done) {
      say(done.error().to_string());
      return;
    }
    if (i == 0) say("first");
  }
}

struct Client {
  Client(const std::string& address, const ConnectionOptions& options, std::optional<PathChoice> path = {})
      : device(must(Device::open(OpenOptions{.path = path}))),
        connection(must(Connection::connect(engine, address, options))) {}
  Device device;
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Connection connection;
  RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
};

TEST(Processes, writes_reach_another_process_and_a_close_is_seen_there) {
  Process server(serve_one_peer);
  const std::string address = server.hear();
  {
    Client client(address, unhurried());
    for (int i = 0; i < 8; ++i) must(client.connection.write(client.memory.local(), client.remote).wait());
    must(client.connection.close());
  }
  EXPECT_THAT(server.hear(), ::testing::HasSubstr("the peer closed it"));
  EXPECT_EQ(server.wait(), 0);
}

void write_until_the_peer_is_killed(PathChoice path, const char* how_it_shows) {
  Process server(serve_one_peer);
  Client client(server.hear(), quick(), path);
  must(client.connection.write(client.memory.local(), client.remote).wait());
  Operation write;
  int rounds = 0;
  write.on_done([&](Operation& self) {
    if (++rounds == 3) server.signal(SIGKILL);
    if (self.result()) self.submit();
  });
  client.connection.write(write, client.memory.local(), client.remote);
  EXPECT_TRUE(client.engine.run_until([&] { return write.done(); }, Duration::seconds(60)));
  expect_error(write.result(), ErrorCode::RetryExceeded, "WRITE of 1048576 bytes to 127.0.0.",
               "the peer stopped answering", how_it_shows);
  expect_error(client.connection.send(Segments{}).wait(), ErrorCode::ConnectionLost,
               "the peer stopped answering");
  EXPECT_EQ(server.wait(), -SIGKILL);
}

TEST(Processes, a_peer_killed_while_we_write_to_it_by_packets_stops_answering) {
  write_until_the_peer_is_killed(PathChoice::Roce, "3 periods of 536 ms");
}

TEST(Processes, a_peer_killed_while_we_write_to_it_through_shared_memory_stops_answering) {
  write_until_the_peer_is_killed(PathChoice::Local, "its process ended");
}

TEST(Processes, a_peer_killed_while_we_read_from_it_stops_answering) {
  Process server(serve_one_peer);
  Client client(server.hear(), quick());
  must(client.connection.read(client.memory.local(), client.remote).wait());
  server.signal(SIGKILL);
  Operation read = client.connection.read(client.memory.local(), client.remote);
  Result<OperationOutcome> result = read.wait();
  while (result) {
    read.submit();
    result = read.wait();
  }
  expect_error(result, ErrorCode::RetryExceeded, "READ of 1048576 bytes from 127.0.0.");
  EXPECT_EQ(server.wait(), -SIGKILL);
}

TEST(Processes, a_peer_killed_while_it_writes_to_us_is_missed_by_a_receive_that_waits) {
  Reception reception;
  Process writer([&](const auto& say) { write_for_ever(reception.hear(), say); });
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Listener listener = must(Listener::create(engine));
  reception.say(listener.address().to_string());
  const auto key = memory.remote().to_bytes();
  Connection connection = must(must(listener.wait_request()).accept(quick(), key));
  int arrived = 0;
  Operation receive;
  receive.on_done([&](Operation& self) {
    if (++arrived == 3) writer.signal(SIGKILL);
    if (self.result()) self.submit();
  });
  connection.receive(receive, Segments{});
  EXPECT_TRUE(engine.run_until([&] { return receive.done(); }, Duration::seconds(60)));
  expect_error(receive.result(), ErrorCode::ConnectionLost, "RECEIVE into 0 bytes from 127.0.0.",
               "keep-alive", "the peer stopped answering");
  EXPECT_EQ(connection.phase(), ConnectionPhase::Broken);
  EXPECT_EQ(writer.wait(), -SIGKILL);
}

TEST(Processes, a_peer_killed_while_we_only_lend_it_memory_is_missed) {
  Reception reception;
  Process borrower([&](const auto& say) {
    Client client(reception.hear(), quick());
    must(client.connection.write(client.memory.local(), client.remote).wait());
    say("wrote");
    ::pause();
  });
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Listener listener = must(Listener::create(engine));
  reception.say(listener.address().to_string());
  const auto key = memory.remote().to_bytes();
  Connection connection = must(must(listener.wait_request()).accept(quick(), key));
  must(connection.wait_established(Duration::seconds(60)));
  bool told = false;
  connection.on_closed([&] { told = true; });
  EXPECT_EQ(borrower.hear(), "wrote");
  borrower.signal(SIGKILL);
  EXPECT_TRUE(engine.run_until([&] { return told; }, Duration::seconds(60)));
  expect_error(connection.status(), ErrorCode::RetryExceeded, "keep-alive", "the peer stopped answering");
  EXPECT_EQ(borrower.wait(), -SIGKILL);
}

TEST(Processes, a_peer_that_sleeps_longer_than_the_budget_is_given_up_and_learns_of_it) {
  Process server(serve_one_peer);
  Client client(server.hear(), quick());
  must(client.connection.write(client.memory.local(), client.remote).wait());
  server.stop();
  expect_error(client.connection.write(client.memory.local(), client.remote).wait(), ErrorCode::RetryExceeded,
               "the peer stopped answering");
  server.signal(SIGCONT);
  EXPECT_THAT(server.hear(), ::testing::HasSubstr("127.0.0."));
  EXPECT_EQ(server.wait(), 0);
}

TEST(Processes, a_peer_that_sleeps_within_the_budget_is_waited_for) {
  Process server(serve_one_peer);
  const std::string address = server.hear();
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Connection connection = must(Connection::connect(engine, address, unhurried()));
  const RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
  server.stop();
  Operation write = connection.write(memory.local(), remote);
  EXPECT_FALSE(engine.run_until([&] { return write.done(); }, Duration::milliseconds(200)));
  server.signal(SIGCONT);
  must(write.wait());
  must(connection.close());
}

TEST(Processes, one_sided_operations_proceed_while_the_application_sleeps) {
  Process server([](const auto& say) {
    Device device = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(device));
    MemoryRegion memory = must(device.allocate_memory(kLentBytes));
    Listener listener = must(Listener::create(engine));
    say(listener.address().to_string());
    const auto key = memory.remote().to_bytes();
    Connection connection = must(must(listener.wait_request()).accept(unhurried(), key));
    must(connection.wait_established());
    ::pause();  // the service thread serves alone
  });
  Client client(server.hear(), unhurried());
  must(client.connection.write(client.memory.local(), client.remote).wait());
  must(client.connection.read(client.memory.local(), client.remote).wait());
}

// Of all limits, so that each of what takes a descriptor is once the first that gets none.
TEST(Descriptors, where_there_are_too_few_a_device_is_refused) {
  Process child([](const auto& say) {
    std::string other = "no other";
    int opened = 0, refused = 0;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    for (limit.rlim_cur = 8; limit.rlim_cur < 80; ++limit.rlim_cur) {
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto device = Device::open({.device = "127.0.0.78"});
      if (device)
        ++opened;
      else if (device.error().code() == ErrorCode::ResourceExhausted)
        ++refused;
      else
        other = device.error().to_string();
    }
    say(other);
    say(opened != 0 && refused > 10 ? "some" : std::to_string(opened) + " and " + std::to_string(refused));
  });
  EXPECT_EQ(child.hear(), "no other");
  EXPECT_EQ(child.hear(), "some");
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace verbena
