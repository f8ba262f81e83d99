// SPDX-License-Identifier: Apache-2.0
// A peer of the file protocol that lies, as a program for tests: says what it sends, prints what it gets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/message_channel.h"

namespace verbena::tools {

class HostilePeer {
 public:
  static Result<std::unique_ptr<HostilePeer>> create();

  Result<void> connect(const std::string& address) { return channel_->connect(address); }
  // Prints its address.
  Result<Listener> open_listener();
  // The same, waits for one client and for its first message.
  Result<void> serve();

  // As it is: emitting checks nothing.
  void send(const Message& message);
  void send_bytes(std::span<const std::byte> bytes);
  // WRITE or READ of `length` bytes at `offset` of the peer's slots; prints how it went.
  void write(std::uint64_t offset, std::uint32_t length);
  void read(std::uint64_t offset, std::uint32_t length);

  // Prints what comes, until the peer closes or nothing came for a while.
  void listen();
  // Waits for a Begin and remembers the slots.
  bool await_begin();
  // Slots of its own, for a Begin.
  message::Begin own_begin(RootKind kind);
  std::span<std::byte> own_slots() { return memory_.bytes(); }

 private:
  HostilePeer(Device device, ProgressEngine engine) : device_(std::move(device)), engine_(std::move(engine)) {}
  void print(const Message& message);
  void finish(std::string_view what, Operation& operation);

  Device device_;
  ProgressEngine engine_;
  MemoryRegion memory_;
  RemoteMemory remote_;
  std::unique_ptr<MessageChannel> channel_;
};

struct HostileCase {
  std::string_view name;
  std::function<void(HostilePeer&)> act;
};
// Each after connecting to a server.
std::vector<HostileCase> client_cases();
// Each after a client's first message.
std::vector<HostileCase> server_cases();

}  // namespace verbena::tools
