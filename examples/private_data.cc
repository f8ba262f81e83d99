// SPDX-License-Identifier: Apache-2.0
// Two processes introduce themselves while they connect: the request and the answer each carry the name of a
// protocol and a range of memory. So both may write to the other at once, and who speaks another protocol is
// told so.
//
//   private_data                    waits for a guest and prints where
//   private_data 127.0.0.1:7471     visits, at first with a protocol from the past
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::string_view kProtocol = "guestbook/2";
constexpr std::string_view kOldProtocol = "guestbook/1";
constexpr std::string_view kRefusal = "only guestbook/2 is spoken here";

//     0          32      56
//     | protocol | inbox |      as much as a request carries
struct Introduction {
  static constexpr std::size_t kProtocolBytes = 32;

  std::string protocol;
  RemoteMemory inbox;

  std::array<std::byte, kMaxConnectPrivateData> to_bytes() const {
    std::array<std::byte, kMaxConnectPrivateData> bytes{};
    std::ranges::copy(std::as_bytes(std::span{protocol}), bytes.begin());
    std::ranges::copy(inbox.to_bytes(), bytes.begin() + kProtocolBytes);
    return bytes;
  }
  static Result<Introduction> from_bytes(std::span<const std::byte> bytes) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), kProtocolBytes);
    auto inbox = RemoteMemory::from_bytes(bytes.subspan(kProtocolBytes));
    if (!inbox) return inbox.error();
    return Introduction{text.substr(0, text.find('\0')), *inbox};
  }
};
static_assert(Introduction::kProtocolBytes + RemoteMemory::kWireBytes == kMaxConnectPrivateData);

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

// Writes into the other's inbox, and waits for what it writes into ours.
void greet(Connection& connection, Operation& notice, const MemoryRegion& inbox, const MemoryRegion& outbox,
           const RemoteMemory& theirs, std::string_view text) {
  std::ranges::copy(bytes_of(text), outbox.data());
  const ScatterGather line = outbox.local(0, static_cast<std::uint32_t>(text.size()));
  or_exit(connection.write_with_immediate(line, theirs, 0).wait());
  const std::uint32_t bytes = or_exit(notice.wait()).bytes;
  std::printf("the other writes: %.*s\n", static_cast<int>(bytes),
              reinterpret_cast<const char*>(inbox.data()));
}

void host(ProgressEngine& engine, const MemoryRegion& inbox, const MemoryRegion& outbox) {
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  for (;;) {
    ConnectionRequest request = or_exit(listener.wait_request());
    const auto guest = Introduction::from_bytes(request.private_data());
    if (!guest || guest->protocol != kProtocol) {
      or_exit(request.reject(bytes_of(kRefusal)));
      continue;
    }
    Connection prepared = or_exit(Connection::prepare(engine));
    Operation notice = prepared.receive(Segments{});
    const Introduction ours{std::string(kProtocol), inbox.remote()};
    Connection connection = or_exit(request.accept(std::move(prepared), ours.to_bytes()));
    greet(connection, notice, inbox, outbox, guest->inbox, "welcome");
    engine.run_until([&] { return connection.closed(); });
    return;
  }
}

void visit(ProgressEngine& engine, const MemoryRegion& inbox, const MemoryRegion& outbox,
           const char* address) {
  const Introduction old{std::string(kOldProtocol), inbox.remote()};
  auto refused = Connection::connect(engine, address, {}, old.to_bytes());
  if (!refused && refused.error().code() != ErrorCode::Rejected) or_exit(std::move(refused));
  std::printf("%s\n", refused ? "accepted?" : refused.error().to_string().c_str());

  Connection connection = or_exit(Connection::prepare(engine));
  Operation notice = connection.receive(Segments{});
  const Introduction ours{std::string(kProtocol), inbox.remote()};
  or_exit(connection.connect_to(address, ours.to_bytes()));
  const Introduction theirs = or_exit(Introduction::from_bytes(connection.private_data()));
  greet(connection, notice, inbox, outbox, theirs.inbox, "I was here");
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  const MemoryRegion inbox = or_exit(device.allocate_memory(256));
  const MemoryRegion outbox = or_exit(device.allocate_memory(256, Access::None));
  if (peer != nullptr)
    visit(engine, inbox, outbox, peer);
  else
    host(engine, inbox, outbox);
}
