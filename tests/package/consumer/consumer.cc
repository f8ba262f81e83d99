// SPDX-License-Identifier: Apache-2.0
// Two devices of one process: one writes into the memory of the other.
#include <verbena/testing/virtual_network.h>
#include <verbena/verbena.h>

#include <cstdio>
#include <string>

using namespace verbena;

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

int main() {
  Device near = must(Device::open()), far = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(near));
  must(engine.add(far));
  MemoryRegion source = must(near.allocate_memory(64)), target = must(far.allocate_memory(64));

  Listener listener = must(Listener::create(engine, {.device = &far}));
  std::optional<Connection> accepted;
  listener.on_request(
      [&] { accepted = must(listener.poll_request()->accept({}, target.remote().to_bytes())); });
  Connection connection = must(Connection::connect(engine, listener.address().to_string()));

  const std::string text = "written by RDMA";
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(source.data()));
  must(connection.write(source.local(), must(RemoteMemory::from_bytes(connection.private_data()))).wait());
  must(connection.close());
  must(messaging::Receiver::create(engine, {.kind = must(messaging::recommend({})).kind}));

  auto network = must(testing::VirtualNetwork::create(1, {.loss = 0.1}));
  testing::VirtualHost host = must(network.add_host());
  must(network.run(host, [](ProgressEngine& its) -> Task<void> { co_await its.sleep(Duration::seconds(3600)); }(
                             host.engine())));
  std::printf("%s\n", reinterpret_cast<const char*>(target.data()));
}
