// SPDX-License-Identifier: Apache-2.0
// An echo server in coroutines: one accepts, and one for each client receives and sends.
//
//   echo_coroutines                      serves twenty clients and prints where
//   echo_coroutines 127.0.0.1:7471       is twenty clients
#include "echo_client.h"
#include "peer_argument.h"

namespace {

using namespace verbena;

Task<void> serve(Connection client, MemoryRegion memory, int& gone) {
  for (;;) {
    auto message = co_await client.receive(memory.local());
    if (!message) break;  // the client has closed
    auto sent = co_await client.send(memory.local(0, message->bytes));
    if (!sent) break;
  }
  ++gone;
}

Task<void> listen(Device& device, ProgressEngine& engine, int& gone) {
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  for (;;) {
    auto client = co_await listener.async_accept();
    if (client)
      engine.spawn(serve(std::move(*client), or_exit(device.allocate_memory(echo::kMessageBytes)), gone));
    else
      print_error(client.error());  // that client has given up
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr) {
    echo::call_many(device, engine, peer);
    return 0;
  }
  int gone = 0;
  engine.spawn(listen(device, engine, gone));
  engine.run_until([&] { return gone == echo::kClients; });
  std::printf("all %d clients are gone\n", gone);
}
