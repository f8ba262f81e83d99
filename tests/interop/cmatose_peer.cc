// SPDX-License-Identifier: Apache-2.0
// A peer of rdma-core's ucmatose: N connections, C messages of S bytes each way on each. The server sends first, on all
// of them; the client answers when it has everything; then the server disconnects.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr auto kPatience = Duration::seconds(60);

struct Options {
  std::string server, own;  // server empty: be the server
  std::uint32_t connections = 1, messages = 10, bytes = 100, port = 7471;
};

// One connection with its messages.
struct Node {
  MemoryRegion memory;  // bytes that come, bytes that go
  std::vector<Operation> receives, sends;
  std::optional<Connection> connection;  // ends first: afterwards no operation is in flight
};

Segments segments(const ScatterGather& piece) {
  return piece.length == 0 ? Segments(std::span<const ScatterGather>{}) : Segments(piece);
}

class Cmatose {
 public:
  Cmatose(const Options& options, Device& device, ProgressEngine& engine)
      : options_(options), device_(device), engine_(engine) {}

  Result<void> run() {
    auto met = options_.server.empty() ? listen() : connect();
    if (!met) return met;
    return options_.server.empty() ? serve() : answer();
  }

 private:
  // A node with its receives posted.
  Result<std::unique_ptr<Node>> prepare() {
    auto node = std::make_unique<Node>();
    auto memory = device_.allocate_memory(2 * std::max<std::size_t>(options_.bytes, 1), Access::LocalWrite);
    if (!memory) return std::move(memory).error();
    node->memory = std::move(*memory);
    ConnectionOptions options;
    options.queues.max_send_requests = options.queues.max_receive_requests = std::max(options_.messages, 1u);
    auto connection = Connection::prepare(engine_, options);
    if (!connection) return std::move(connection).error();
    node->receives = std::vector<Operation>(options_.messages);
    node->sends = std::vector<Operation>(options_.messages);
    for (Operation& receive : node->receives)
      connection->receive(receive, segments(node->memory.local(0, options_.bytes)));
    node->connection.emplace(std::move(*connection));
    return node;
  }

  Result<void> connect() {
    const std::string address = Endpoint{options_.server, static_cast<std::uint16_t>(options_.port)}.to_string();
    for (std::uint32_t i = 0; i < options_.connections; ++i) {
      auto node = prepare();
      if (!node) return std::move(node).error();
      if (auto done = (*node)->connection->connect_to(address); !done) return done;
      nodes_.push_back(std::move(*node));
    }
    return {};
  }

  Result<void> listen() {
    ListenOptions listening;
    listening.port = static_cast<std::uint16_t>(options_.port);
    auto listener = Listener::create(engine_, listening);
    if (!listener) return std::move(listener).error();
    std::printf("listening on %s\n", listener->address().to_string().c_str());
    std::fflush(stdout);
    for (std::uint32_t i = 0; i < options_.connections; ++i) {
      auto node = prepare();
      if (!node) return std::move(node).error();
      auto request = listener->wait_request(kPatience);
      if (!request) return std::move(request).error();
      auto accepted = request->accept(std::move(*(*node)->connection));
      if (!accepted) return std::move(accepted).error();
      (*node)->connection.emplace(std::move(*accepted));
      nodes_.push_back(std::move(*node));
    }
    for (auto& node : nodes_)
      if (auto done = node->connection->wait_established(kPatience); !done) return done;
    return {};
  }

  void send() {
    for (auto& node : nodes_)
      for (Operation& operation : node->sends)
        node->connection->send(operation, segments(node->memory.local(options_.bytes, options_.bytes)));
  }

  Result<void> finish(std::vector<Operation> Node::*operations, const char* what) {
    for (auto& node : nodes_) {
      for (Operation& operation : (*node).*operations) {
        if (!engine_.run_until([&] { return operation.done(); }, kPatience))
          return Error(ErrorCode::TimedOut, what);
        const auto outcome = operation.result();
        if (!outcome) return outcome.error();
        if (operation.result()->kind == CompletionOpcode::Receive && outcome->bytes != options_.bytes)
          return Error(ErrorCode::ProtocolError, "a message of " + std::to_string(outcome->bytes) + " bytes, not " +
                                                     std::to_string(options_.bytes));
      }
    }
    return {};
  }

  Result<void> serve() {
    send();
    if (auto done = finish(&Node::sends, "a message is not taken"); !done) return done;
    if (auto done = finish(&Node::receives, "no answer"); !done) return done;
    for (auto& node : nodes_)
      if (auto closed = node->connection->close(kPatience); !closed) return closed;
    return {};
  }

  Result<void> answer() {
    if (auto done = finish(&Node::receives, "no message"); !done) return done;
    send();
    if (auto done = finish(&Node::sends, "an answer is not taken"); !done) return done;
    for (auto& node : nodes_) {
      Connection& connection = *node->connection;
      if (!engine_.run_until([&] { return connection.closed(); }, kPatience))
        return Error(ErrorCode::TimedOut, "the server does not disconnect");
      if (const auto ended = connection.status(); !ended && ended.error().code() != ErrorCode::Disconnected)
        return ended;
    }
    return {};
  }

  const Options& options_;
  Device& device_;
  ProgressEngine& engine_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

bool parse_number(std::string_view text, std::uint32_t most, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number <= most;
}

bool parse(int argc, char** argv, Options& options) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i], value = argv[i + 1];
    bool good = true;
    if (flag == "-s") options.server = value;
    else if (flag == "-b") options.own = value;
    else if (flag == "-c") good = parse_number(value, 1000, options.connections);
    else if (flag == "-C") good = parse_number(value, 1000, options.messages);
    else if (flag == "-S") good = parse_number(value, 1u << 24, options.bytes);
    else if (flag == "-p") good = parse_number(value, 65535, options.port);
    else good = false;
    if (!good) return false;
  }
  return options.connections != 0;
}

int fail(const Error& error) {
  std::fprintf(stderr, "cmatose_peer: %s\n", error.to_string().c_str());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: cmatose_peer [-s SERVER] [-b OWN_ADDRESS] [-c CONNECTIONS] [-C MESSAGES] [-S BYTES] "
                 "[-p PORT]\n");
    return 2;
  }
  auto device = Device::open(options.own);
  if (!device) return fail(device.error());
  auto engine = ProgressEngine::create(*device);
  if (!engine) return fail(engine.error());
  Cmatose cmatose(options, *device, *engine);
  if (const auto done = cmatose.run(); !done) return fail(done.error());
  std::printf("%s: %u connections, %u messages of %u bytes each way on each, disconnected\n",
              options.server.empty() ? "server" : "client", options.connections, options.messages, options.bytes);
  return EXIT_SUCCESS;
}
