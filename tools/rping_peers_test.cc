// SPDX-License-Identifier: Apache-2.0
// Both ends of rping against peers that do not keep to it, over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/rping_client.h"
#include "tools/rping_server.h"

namespace verbena::tools {
namespace {

constexpr auto kPatience = Duration::seconds(30);

// A device and its engine on a loopback address of their own.
struct Side {
  Side() : device(*Device::open()), engine(*ProgressEngine::create(device)) {}
  Device device;
  ProgressEngine engine;
};

// Runs a server of one client in a thread; outcome() waits for the end of the visit.
class RpingServerThread {
 public:
  explicit RpingServerThread(const RpingSettings& settings)
      : server_(*RpingServer::create(side_.engine, side_.device, 0, false, settings)), address_(server_->address()) {
    thread_ = std::jthread([this] { run(); });
  }
  const Endpoint& address() const { return address_; }
  std::optional<Error> outcome() {
    thread_.join();
    EXPECT_TRUE(over_);
    return error_;
  }

 private:
  void run() {
    const auto on_over = [this](const RpingVisit& visit) {
      over_ = true;
      if (const auto status = visit.status(); !status) error_ = status.error();
    };
    const Instant deadline = side_.engine.now() + kPatience;
    while (!over_ && side_.engine.now() < deadline)
      if (!side_.engine.run_once() && !server_->pump(on_over))
        side_.engine.wait(side_.engine.now() + Duration::milliseconds(10));
  }

  Side side_;
  std::unique_ptr<RpingServer> server_;
  const Endpoint address_;
  bool over_ = false;
  std::optional<Error> error_;
  std::jthread thread_;
};

// A client that says what it likes: `pings` bytes of memory, and messages as they are given.
class FalseClient {
 public:
  explicit FalseClient(const Endpoint& server)
      : memory_(*side_.device.allocate_memory(256)),
        connection_(*Connection::connect(side_.engine, server.to_string())) {
    for (Operation& receive : receives_) connection_.receive(receive, memory_.local(192, 16));
  }
  std::span<std::byte> payload() const { return memory_.bytes().first(64); }
  RpingAdvertisement source() const { return {memory_.remote().address, memory_.rkey(), 64}; }
  RpingAdvertisement sink() const { return {memory_.remote().address + 64, memory_.rkey(), 64}; }
  void say(std::span<const std::byte> bytes) { (void)connection_.send_inline(bytes).wait(); }
  void say(const RpingAdvertisement& advertisement) { say(advertisement.to_bytes()); }
  void await_answer(std::size_t number) {
    EXPECT_TRUE(side_.engine.run_until([&] { return receives_[number].done(); }, kPatience));
  }
  void await_end() {
    EXPECT_TRUE(side_.engine.run_until([&] { return connection_.closed(); }, kPatience));
  }

 private:
  Side side_;
  MemoryRegion memory_;
  std::array<Operation, 4> receives_;
  Connection connection_;
};

// What the server says of a client that does `act`.
std::optional<Error> server_meets(const std::function<void(FalseClient&)>& act) {
  RpingSettings settings;
  settings.validate = true;
  RpingServerThread server(settings);
  {
    FalseClient client(server.address());
    fill_rping_payload(client.payload(), 0);
    act(client);
  }
  return server.outcome();
}

void expect_error(const std::optional<Error>& error, ErrorCode code, const std::string& text) {
  ASSERT_TRUE(error.has_value()) << text;
  EXPECT_EQ(error->code(), code) << error->to_string();
  EXPECT_NE(error->to_string().find(text), std::string::npos) << error->to_string();
}

TEST(RpingServer, is_content_with_a_client_that_keeps_to_it) {
  EXPECT_FALSE(server_meets([](FalseClient& client) {
    client.say(client.source());
    client.await_answer(0);
    client.say(client.sink());
    client.await_answer(1);
  }));
}

TEST(RpingServer, refuses_messages_that_are_no_advertisements) {
  const std::vector<std::byte> short_one(15), empty;
  for (const auto& message : {short_one, empty})
    expect_error(server_meets([&](FalseClient& client) {
                   client.say(message);
                   client.await_end();
                 }),
                 ErrorCode::ProtocolError, "where those of rping have 16");
  const std::vector<std::byte> long_one(17);
  EXPECT_TRUE(server_meets([&](FalseClient& client) {
    client.say(long_one);
    client.await_end();
  }));
}

TEST(RpingServer, refuses_sizes_it_has_no_room_for) {
  for (const std::uint32_t size : {0u, kDefaultRpingBytes + 1, 0xffffffffu})
    expect_error(server_meets([&](FalseClient& client) {
                   auto source = client.source();
                   source.size = size;
                   client.say(source);
                   client.await_end();
                 }),
                 ErrorCode::ProtocolError, std::to_string(size) + " bytes, at most 64");
  expect_error(server_meets([](FalseClient& client) {
                 client.say(client.source());
                 client.await_answer(0);
                 auto sink = client.sink();
                 sink.size = 63;
                 client.say(sink);
                 client.await_end();
               }),
               ErrorCode::ProtocolError, "64 bytes do not fit its sink of 63");
}

TEST(RpingServer, tells_of_memory_that_the_client_does_not_lend) {
  expect_error(server_meets([](FalseClient& client) {
                 auto source = client.source();
                 source.rkey = RKey{source.rkey.value() ^ 1};
                 client.say(source);
                 client.await_end();
               }),
               ErrorCode::RemoteAccessError, "READ of 64 bytes");
  expect_error(server_meets([](FalseClient& client) {
                 client.say(client.source());
                 client.await_answer(0);
                 auto sink = client.sink();
                 sink.address += 200;
                 client.say(sink);
                 client.await_end();
               }),
               ErrorCode::RemoteAccessError, "WRITE of 64 bytes");
}

TEST(RpingServer, tells_of_wrong_data) {
  expect_error(server_meets([](FalseClient& client) {
                 client.payload()[20] ^= std::byte{1};
                 client.say(client.source());
                 client.await_end();
               }),
               ErrorCode::CorruptData, "byte 20 of 64");
}

TEST(RpingServer, tells_of_a_client_that_leaves_in_the_middle) {
  expect_error(server_meets([](FalseClient& client) {
                 client.say(client.source());
                 client.await_answer(0);
               }),
               ErrorCode::Disconnected, "in the middle of ping 0");
}

// A ping that has come, and was not seen, when the server ends is nobody's to answer.
TEST(RpingServer, does_nothing_more_when_it_ends_in_the_middle) {
  std::vector<std::string> told;
  RpingSettings settings;
  settings.tell = [&](const std::string& text) { told.push_back(text); };
  Side side;
  auto server = *RpingServer::create(side.engine, side.device, 0, false, settings);
  const Endpoint address = server->address();
  std::atomic<bool> said{false}, over{false};
  std::jthread other([&] {
    FalseClient client(address);
    client.say(client.source());
    said.store(true);
    said.notify_one();
    over.wait(false);
  });
  const auto welcomed = [&] { return server->pump([](const RpingVisit&) {}), !told.empty(); };
  EXPECT_TRUE(side.engine.run_until(welcomed, kPatience));
  said.wait(false);
  EXPECT_EQ(told.size(), 1u);
  server.reset();
  EXPECT_EQ(told.size(), 1u) << told.back();
  over.store(true);
  over.notify_one();
}

// What the client says of a server that answers every message with `answer_bytes` bytes, and moves no data.
std::optional<Error> client_meets(std::uint32_t answer_bytes) {
  Side there;
  auto listener = *Listener::create(there.engine);
  const Endpoint address = listener.address();
  std::atomic<bool> over{false};
  std::jthread server([&] {
    const MemoryRegion memory = *there.device.allocate_memory(128);
    std::array<Operation, 2> receives, sends;
    auto connection = *Connection::prepare(there.engine);
    for (std::size_t i = 0; i < 2; ++i) {
      receives[i].on_done([&, i](Operation& receive) {
        if (receive.result()) connection.send(sends[i], memory.local(64, answer_bytes));
      });
      connection.receive(receives[i], memory.local(0, 16));
    }
    auto request = listener.wait_request(kPatience);
    connection = *request->accept(std::move(connection));
    there.engine.run_until([&] { return over.load() && connection.closed(); }, kPatience);
  });
  std::optional<Error> error;
  {
    Side here;
    RpingSettings settings;
    settings.validate = true;
    auto client = *RpingClient::connect(here.engine, here.device, address, settings);
    if (const auto done = client->ping(0, kPatience); !done) error = done.error();
  }
  over.store(true);
  there.engine.wake();
  return error;
}

TEST(RpingClient, tells_of_wrong_data) { expect_error(client_meets(16), ErrorCode::CorruptData, "byte 0 of 64"); }

TEST(RpingClient, refuses_answers_of_another_length) {
  expect_error(client_meets(8), ErrorCode::ProtocolError, "8 bytes, where those of rping have 16");
  const auto error = client_meets(17);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::LocalLengthError) << error->to_string();
}

}  // namespace
}  // namespace verbena::tools
