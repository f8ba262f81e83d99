// SPDX-License-Identifier: Apache-2.0
// Two processes exchange a message each.
//
//   hello                    waits for a client and prints where
//   hello 127.0.0.1:7471     connects there
#include <string>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

std::string text_of(const MemoryRegion& region, const OperationOutcome& outcome) {
  return {reinterpret_cast<const char*>(region.data()), outcome.bytes};
}

// Both sides do the same once they are connected; the receive is up before the peer can send.
void greet(Connection& connection, Operation& receive, const MemoryRegion& inbox,
           const std::string& greeting) {
  or_exit(connection.send_inline(std::as_bytes(std::span{greeting})).wait());
  const OperationOutcome message = or_exit(receive.wait());
  std::printf("%s says: %s\n", connection.peer().to_string().c_str(), text_of(inbox, message).c_str());
}

void serve(ProgressEngine& engine, const MemoryRegion& inbox) {
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  ConnectionRequest request = or_exit(listener.wait_request());
  Connection prepared = or_exit(Connection::prepare(engine));
  Operation receive = prepared.receive(inbox.local());
  Connection connection = or_exit(request.accept(std::move(prepared)));
  greet(connection, receive, inbox, "hello from the server");
  engine.run_until([&] { return connection.closed(); });
}

void call(ProgressEngine& engine, const MemoryRegion& inbox, const char* address) {
  Connection connection = or_exit(Connection::prepare(engine));
  Operation receive = connection.receive(inbox.local());
  or_exit(connection.connect_to(address));
  greet(connection, receive, inbox, "hello from the client");
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  const MemoryRegion inbox = or_exit(device.allocate_memory(256));
  if (peer != nullptr)
    call(engine, inbox, peer);
  else
    serve(engine, inbox);
}
