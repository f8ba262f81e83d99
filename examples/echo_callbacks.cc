// SPDX-License-Identifier: Apache-2.0
// An echo server in callbacks: two operations for each client start each other, and nothing is allocated on
// the way.
//
//   echo_callbacks                      serves twenty clients and prints where
//   echo_callbacks 127.0.0.1:7471       is twenty clients
#include <list>

#include "echo_client.h"
#include "peer_argument.h"

namespace {

using namespace verbena;

struct Session {
  Session(Device& device, ProgressEngine& engine)
      : memory(or_exit(device.allocate_memory(echo::kMessageBytes))),
        client(or_exit(Connection::prepare(engine))) {
    receive.on_done([this](Operation&) {
      if (auto message = receive.result()) client.send(send, memory.local(0, message->bytes));
    });
    send.on_done([this](Operation&) {
      if (send.result()) receive.submit();
    });
    client.receive(receive, memory.local());  // before the client can send
  }

  MemoryRegion memory;
  Connection client;
  Operation receive, send;
};

void serve(Device& device, ProgressEngine& engine) {
  int gone = 0;
  std::list<Session> sessions;
  Listener listener = or_exit(Listener::create(engine));
  listener.on_request([&] {
    while (auto request = listener.poll_request()) {
      Session& session = sessions.emplace_back(device, engine);
      auto client = request->accept(std::move(session.client));
      if (!client) {
        print_error(client.error());  // that client has given up
        sessions.pop_back();
        continue;
      }
      session.client = std::move(*client);
      session.client.on_closed([&gone, &session] {
        const auto end = session.client.status();  // ConnectionLost: it had given up, and was not connected
        if (!end && end.error().code() == ErrorCode::Disconnected) ++gone;
      });
    }
  });
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  engine.run_until([&] { return gone == echo::kClients; });
  std::printf("all %d clients are gone\n", gone);
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    echo::call_many(device, engine, peer);
  else
    serve(device, engine);
}
