// SPDX-License-Identifier: Apache-2.0
// A table that a peer fills row by row, in any order. A WRITE goes unnoticed by the table's owner; the
// immediate that comes with it finishes one of its receives and says which row is new.
//
//   write_with_immediate                    keeps the table and prints where
//   write_with_immediate 127.0.0.1:7471     fills it
#include <array>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::uint32_t kRows = 16;
constexpr std::uint32_t kRowBytes = 64;

char* row_of(const MemoryRegion& table, std::uint32_t row) {
  return reinterpret_cast<char*>(table.data()) + row * kRowBytes;
}

void serve(Device& device, ProgressEngine& engine) {
  const MemoryRegion table = or_exit(device.allocate_memory(kRows * kRowBytes));
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);

  ConnectionRequest request = or_exit(listener.wait_request());
  Connection prepared = or_exit(Connection::prepare(engine));
  // A receive for each notice. They have no memory: the bytes go where the peer says.
  std::array<Operation, kRows> notices;
  std::uint32_t noticed = 0;
  for (Operation& notice : notices) {
    notice.on_done([&](Operation& self) {
      const std::uint32_t row = or_exit(self.result()).immediate.value_or(kRows);
      if (row < kRows)  // a peer may say anything, and a SEND of nothing has no immediate
        std::printf("row %u: %.*s\n", row, static_cast<int>(kRowBytes), row_of(table, row));
      ++noticed;
    });
    prepared.receive(notice, Segments{});
  }
  Connection connection = or_exit(request.accept(std::move(prepared), table.remote().to_bytes()));
  engine.run_until([&] { return noticed == kRows; });
  std::printf("all %u rows are there\n", kRows);
  engine.run_until([&] { return connection.closed(); });
}

void fill(Device& device, ProgressEngine& engine, const char* address) {
  Connection connection = or_exit(Connection::connect(engine, address));
  const RemoteMemory table = or_exit(RemoteMemory::from_bytes(connection.private_data()));
  const MemoryRegion ours = or_exit(device.allocate_memory(kRows * kRowBytes));

  std::array<Operation, kRows> writes;  // all of them in flight at once
  for (std::uint32_t i = 0; i < kRows; ++i) {
    const std::uint32_t row = i * 5 % kRows;
    std::snprintf(row_of(ours, row), kRowBytes, "written as number %u", i);
    const RemoteMemory place = or_exit(table.sub_range(row * kRowBytes, kRowBytes));
    connection.write_with_immediate(writes[i], ours.local(row * kRowBytes, kRowBytes), place, row);
  }
  for (Operation& write : writes) or_exit(write.wait());
  std::printf("wrote %u rows\n", kRows);
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    fill(device, engine, peer);
  else
    serve(device, engine);
}
