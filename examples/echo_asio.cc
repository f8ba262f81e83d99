// SPDX-License-Identifier: Apache-2.0
// An echo server in a program built on Asio: the engine lives in the io_context, beside sockets and timers.
//
//   echo_asio                      serves twenty clients and prints where
//   echo_asio 127.0.0.1:7471       is twenty clients
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include "echo_client.h"
#include "peer_argument.h"
#include "verbena/async/asio.h"

namespace {

using namespace verbena;
using asio_adapter::Service;

asio::awaitable<void> serve(Service& rdma, Connection client, MemoryRegion memory, int& gone) {
  for (;;) {
    auto message = co_await rdma.async_wait(client.receive(memory.local()));
    if (!message) break;  // the client has closed
    auto sent = co_await rdma.async_wait(client.send(memory.local(0, message->bytes)));
    if (!sent) break;
  }
  if (++gone == echo::kClients) rdma.stop();  // the io_context is out of work
}

asio::awaitable<void> listen(asio::io_context& io, Service& rdma, Device& device, Listener& listener,
                             int& gone) {
  for (int came = 0; came < echo::kClients;) {
    auto client = co_await rdma.async_run(listener.async_accept());
    if (!client) {
      print_error(client.error());  // that client has given up
      continue;
    }
    ++came;
    MemoryRegion memory = or_exit(device.allocate_memory(echo::kMessageBytes));
    asio::co_spawn(io, serve(rdma, std::move(*client), std::move(memory), gone), asio::detached);
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
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  asio::io_context io;
  Service rdma(io, engine);
  int gone = 0;
  asio::co_spawn(io, listen(io, rdma, device, listener, gone), asio::detached);
  io.run();
  std::printf("all %d clients are gone\n", gone);
}
