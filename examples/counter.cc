// SPDX-License-Identifier: Apache-2.0
// A counter that any number of processes increment, by atomics, with callbacks: sixteen operations are always in flight
// and start themselves again. The server serves whoever comes, and computes nothing.
//
//   counter                          keeps a counter until two peers have come and gone
//   counter 127.0.0.1:7471           adds 10,000 to it
#include <algorithm>
#include <array>
#include <list>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr int kAdditions = 10'000;
constexpr int kPeers = 2;

void serve(Device& device, ProgressEngine& engine) {
  std::array<std::uint64_t, 1> counter{};
  MemoryRegion memory = or_exit(device.register_memory(counter));
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  std::list<Connection> peers;
  int gone = 0;
  listener.on_request([&] {
    while (auto request = listener.poll_request()) {
      auto connection = request->accept({}, memory.remote().to_bytes());
      if (!connection) continue;  // that peer has given up
      Connection& peer = peers.emplace_back(std::move(*connection));
      peer.on_closed([&gone, &peer] {
        const auto end = peer.status();  // ConnectionLost: it had given up, and was not connected
        if (!end && end.error().code() == ErrorCode::Disconnected) ++gone;
      });
    }
  });
  engine.run_until([&] { return gone == kPeers; });
  std::printf("the counter stands at %llu\n", static_cast<unsigned long long>(counter[0]));
}

void add(ProgressEngine& engine, const char* address) {
  Connection connection = or_exit(Connection::connect(engine, address));
  const RemoteMemory counter = or_exit(RemoteMemory::from_bytes(connection.private_data()));

  int started = 0, finished = 0;
  std::uint64_t highest = 0;
  std::array<Operation, 16> operations;
  for (Operation& operation : operations) {
    operation.on_done([&](Operation& self) {
      highest = std::max(highest, or_exit(self.result()).value + 1);
      ++finished;
      if (started == kAdditions) return;
      ++started;
      self.submit();
    });
    ++started;
    connection.fetch_and_add(operation, counter, 1);
  }
  engine.run_until([&] { return finished == kAdditions; });
  std::printf("added %d, the last saw %llu\n", kAdditions, static_cast<unsigned long long>(highest));
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    add(engine, peer);
  else
    serve(device, engine);
}
