// SPDX-License-Identifier: Apache-2.0
// One process writes into another's memory and reads it back. The server only learns that it happened by the immediate
// that comes with the WRITE.
//
//   remote_memory                    offers a megabyte and prints where
//   remote_memory 127.0.0.1:7471     writes and reads there
#include <cstring>
#include <numeric>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::size_t kBytes = 1 << 20;
constexpr std::uint32_t kReady = 42;

void serve(Device& device, ProgressEngine& engine) {
  MemoryRegion memory = or_exit(device.allocate_memory(kBytes));
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  // The client gets the address and key of the memory with the acceptance.
  ConnectionRequest request = or_exit(listener.wait_request());
  Connection prepared = or_exit(Connection::prepare(engine));
  Operation notice = prepared.receive(Segments{});
  Connection connection = or_exit(request.accept(std::move(prepared), memory.remote().to_bytes()));

  const OperationOutcome written = or_exit(notice.wait());
  if (!written.immediate) {  // a SEND of nothing finishes the receive, too
    std::fprintf(stderr, "the peer did not write\n");
    std::exit(1);
  }
  const auto sum =
      std::accumulate(memory.bytes().begin(), memory.bytes().end(), std::uint64_t{0},
                      [](std::uint64_t s, std::byte b) { return s + std::to_integer<std::uint64_t>(b); });
  std::printf("a peer wrote %u bytes here, immediate %u, sum %llu\n", written.bytes, *written.immediate,
              static_cast<unsigned long long>(sum));
  engine.run_until([&] { return connection.closed(); });  // the peer reads meanwhile
}

void use(Device& device, ProgressEngine& engine, const char* address) {
  Connection connection = or_exit(Connection::connect(engine, address));
  const RemoteMemory remote = or_exit(RemoteMemory::from_bytes(connection.private_data()));

  MemoryRegion ours = or_exit(device.allocate_memory(kBytes));
  for (std::size_t i = 0; i < kBytes; ++i) ours.bytes()[i] = static_cast<std::byte>(i * 7);
  or_exit(connection.write_with_immediate(ours.local(), remote, kReady).wait());

  // The second half, read back by range.
  MemoryRegion copy = or_exit(device.allocate_memory(kBytes / 2));
  or_exit(connection.read(copy.local(), or_exit(remote.sub_range(kBytes / 2, kBytes / 2))).wait());
  const bool same = std::memcmp(copy.data(), ours.data() + kBytes / 2, kBytes / 2) == 0;
  std::printf("wrote %zu bytes, read %zu back: %s\n", kBytes, kBytes / 2, same ? "equal" : "different");
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    use(device, engine, peer);
  else
    serve(device, engine);
}
