// SPDX-License-Identifier: Apache-2.0
// A server with as many connections as come, and memory for the messages of the busy ones only: all draw their
// receives from one pool.
//
//   many_clients                    serves until its clients are gone, and prints where
//   many_clients 127.0.0.1:7471     200 connections, five messages on each
#include <array>
#include <map>
#include <string>
#include <vector>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::uint32_t kReceives = 32, kMessageBytes = 64;
constexpr std::size_t kConnections = 200, kMessages = 5;

class Server {
 public:
  explicit Server(ProgressEngine& engine)
      : pool_(or_exit(ReceivePool::create(engine, {.max_receives = kReceives}))),
        memory_(or_exit(engine.device().allocate_memory(kReceives * kMessageBytes))),
        listener_(or_exit(Listener::create(engine))) {
    for (std::uint32_t i = 0; i < kReceives; ++i) {
      receives_[i].on_done([this](Operation& receive) { take(receive); });
      pool_.receive(receives_[i], memory_.local(std::uint64_t{i} * kMessageBytes, kMessageBytes));
    }
    listener_.on_request([this] { welcome(); });
  }

  std::string address() const { return listener_.address().to_string(); }
  bool is_done() const { return !heard_.empty() && open_ == 0; }
  void report() const {
    std::size_t messages = 0;
    for (const auto& [connection, count] : heard_) messages += count;
    std::printf("%zu messages of %zu connections in %u receives\n", messages, heard_.size(), kReceives);
  }

 private:
  void welcome() {
    while (auto request = listener_.poll_request()) {
      auto connection = request->accept({.receive_pool = &pool_});
      if (!connection) {
        print_error(connection.error());  // that client has given up
        continue;
      }
      connection->on_closed([this] { --open_; });
      connections_.push_back(std::move(*connection));
      ++open_;
    }
  }
  // The outcome says on which connection the message came.
  void take(Operation& receive) {
    if (!receive.result()) return;
    ++heard_[receive.result()->qpn.value()];
    receive.submit();
  }

  ReceivePool pool_;
  MemoryRegion memory_;
  std::array<Operation, kReceives> receives_;
  Listener listener_;
  std::vector<Connection> connections_;
  std::map<std::uint32_t, std::size_t> heard_;
  std::size_t open_ = 0;
};

void call(ProgressEngine& engine, const char* address) {
  std::vector<Connection> connections;
  for (std::size_t i = 0; i < kConnections; ++i) connections.push_back(or_exit(Connection::connect(engine, address)));
  const std::string text = "one of many";
  for (std::size_t round = 0; round < kMessages; ++round)
    for (Connection& connection : connections)
      or_exit(connection.send_inline(std::as_bytes(std::span{text})).wait());
  for (Connection& connection : connections) or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr) return call(engine, peer), 0;
  Server server(engine);
  std::printf("listening on %s\n", server.address().c_str());
  std::fflush(stdout);
  engine.run_until([&] { return server.is_done(); });
  server.report();
}
