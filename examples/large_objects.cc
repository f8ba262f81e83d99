// SPDX-License-Identifier: Apache-2.0
// Large objects go from the sender's memory to where the receiver wants them, and nobody copies: the sender
// lends them, the receiver is told how large each is, names a place, and has its device READ it there.
//
//   large_objects                    stores what one process sends, and prints where
//   large_objects 127.0.0.1:7471     sends
#include <optional>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
using messaging::LentMemory, messaging::Receiver, messaging::Sender;

constexpr std::uint32_t kObjects = 8, kUnit = 512 << 10;
constexpr std::uint32_t kLargest = kObjects * kUnit;
constexpr std::size_t kAll = std::size_t{kUnit} * kObjects * (kObjects + 1) / 2;

std::uint32_t size_of_object(std::uint32_t i) { return (i + 1) * kUnit; }
std::byte expected_at(std::size_t i) { return static_cast<std::byte>(i * 2654435761 >> 24); }

messaging::Options object_options() {
  return {
      .kind = {messaging::Protocol::DirectRead}, .max_message_bytes = kLargest, .depth = 4, .max_senders = 1};
}

void store(Device& device, ProgressEngine& engine) {
  const MemoryRegion shelf = or_exit(device.allocate_memory(kAll));
  std::size_t used = 0;
  Receiver receiver = or_exit(Receiver::create(engine, object_options()));
  // Before there is a sender. One behind the other; what does not fit goes to memory of the receiver's own.
  receiver.on_place([&](messaging::PeerId, std::uint32_t bytes) -> std::optional<LentMemory> {
    if (bytes > kAll - used) return std::nullopt;
    used += bytes;
    return LentMemory::of(shelf, used - bytes, bytes);
  });
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  // Who speaks another protocol is told so; the next one may be ours.
  auto sender = receiver.accept(or_exit(listener.wait_request()));
  for (; !sender; sender = receiver.accept(or_exit(listener.wait_request())))
    std::fprintf(stderr, "%s\n", sender.error().to_string().c_str());

  auto object = receiver.receive();
  for (; object; object = receiver.receive()) {
    const auto at = static_cast<std::size_t>(object->bytes().data() - shelf.data());
    std::printf("an object of %zu bytes lies at %zu\n", object->bytes().size(), at);
  }
  if (object.error().code() != ErrorCode::Disconnected) or_exit<void>(object.error());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < used; ++i) wrong += shelf.bytes()[i] != expected_at(i);
  std::printf("stored %zu bytes, %zu of them wrong\n", used, wrong);
}

void send(Device& device, ProgressEngine& engine, const char* address) {
  // Who may be lent it reads it.
  const MemoryRegion ours = or_exit(device.allocate_memory(kAll, Access::RemoteRead));
  for (std::size_t i = 0; i < kAll; ++i) ours.bytes()[i] = expected_at(i);
  Sender sender = or_exit(Sender::connect(engine, address, object_options()));

  std::size_t offset = 0;
  messaging::MessageId last = 0;
  for (std::uint32_t i = 0; i < kObjects; ++i) {
    last = or_exit(sender.lend(LentMemory::of(ours, offset, size_of_object(i))));
    offset += size_of_object(i);
  }
  or_exit(sender.wait_freed(last));  // the memory is ours again
  std::printf("sent %u objects with %llu bytes of memory for messages\n", kObjects,
              static_cast<unsigned long long>(sender.memory_bytes()));
  or_exit(sender.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    send(device, engine, peer);
  else
    store(device, engine);
}
