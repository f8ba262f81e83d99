// SPDX-License-Identifier: Apache-2.0
// A device inside a program built on Asio: it writes into memory of its own.
#include <verbena/async/asio.h>
#include <verbena/verbena.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace verbena;

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

int main() {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  MemoryRegion source = must(device.allocate_memory(64)), target = must(device.allocate_memory(64));
  std::strcpy(reinterpret_cast<char*>(source.data()), "written by RDMA");

  asio::io_context io;
  asio_adapter::Service rdma(io, engine);
  const auto accept = [&]() -> asio::awaitable<void> {
    Connection accepted = must(co_await rdma.async_run(listener.async_accept()));
    (void)co_await rdma.async_wait(accepted.receive(target.local()));  // until the peer goes
    io.stop();
  };
  const auto write = [&]() -> asio::awaitable<void> {
    const std::string address = listener.address().to_string();
    Connection connection = must(co_await rdma.async_run(Connection::async_connect(engine, address)));
    must(co_await rdma.async_wait(connection.write(source.local(), target.remote())));
  };
  asio::co_spawn(io, accept, asio::detached);
  asio::co_spawn(io, write, asio::detached);
  io.run();
  std::printf("%s\n", reinterpret_cast<const char*>(target.data()));
}
