// SPDX-License-Identifier: Apache-2.0
// A process copies a large table out of another's memory, piece by piece, four READs at a time. The table's
// owner does nothing for it: its device answers.
//
//   read                    lends its table and prints where
//   read 127.0.0.1:7471     copies it
#include <array>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::uint32_t kPieceBytes = 256 << 10;
constexpr std::uint32_t kPieces = 64;
constexpr std::size_t kBytes = std::size_t{kPieces} * kPieceBytes;

std::byte expected_at(std::size_t i) { return static_cast<std::byte>(i * 2654435761 >> 24); }

void lend(Device& device, ProgressEngine& engine) {
  // Peers may read it, and nothing else.
  const MemoryRegion table = or_exit(device.allocate_memory(kBytes, Access::RemoteRead));
  for (std::size_t i = 0; i < kBytes; ++i) table.bytes()[i] = expected_at(i);
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  ConnectionRequest request = or_exit(listener.wait_request());
  Connection connection = or_exit(request.accept({}, table.remote().to_bytes()));
  engine.run_until([&] { return connection.closed(); });
}

void copy(Device& device, ProgressEngine& engine, const char* address) {
  const MemoryRegion ours = or_exit(device.allocate_memory(kBytes));
  Connection connection = or_exit(Connection::connect(engine, address));
  const RemoteMemory theirs = or_exit(RemoteMemory::from_bytes(connection.private_data()));

  std::array<Operation, 4> reads;
  for (std::uint32_t piece = 0; piece < kPieces; ++piece) {
    Operation& read = reads[piece % reads.size()];
    if (piece >= reads.size()) or_exit(read.wait());  // the one before it in this place
    const std::uint64_t offset = std::uint64_t{piece} * kPieceBytes;
    connection.read(read, ours.local(offset, kPieceBytes), or_exit(theirs.sub_range(offset, kPieceBytes)));
  }
  for (Operation& read : reads) or_exit(read.wait());

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kBytes; ++i) wrong += ours.bytes()[i] != expected_at(i);
  std::printf("read %zu bytes, %zu of them wrong\n", kBytes, wrong);
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    copy(device, engine, peer);
  else
    lend(device, engine);
}
