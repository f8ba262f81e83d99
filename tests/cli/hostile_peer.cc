// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/hostile_peer.h"

#include <cstdio>
#include <cstring>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr Duration kSilence = Duration::seconds(3);
constexpr std::uint32_t kOwnSlotBytes = 64 * 1024;

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

Result<std::unique_ptr<HostilePeer>> HostilePeer::create() {
  auto device = Device::open();
  if (!device) return std::move(device).error();
  auto engine = ProgressEngine::create(*device);
  if (!engine) return std::move(engine).error();
  std::unique_ptr<HostilePeer> peer(new HostilePeer(std::move(*device), std::move(*engine)));
  auto memory = peer->device_.allocate_memory(4 * kOwnSlotBytes);
  if (!memory) return std::move(memory).error();
  peer->memory_ = std::move(*memory);
  auto channel = MessageChannel::create(peer->engine_, peer->device_);
  if (!channel) return std::move(channel).error();
  peer->channel_ = std::move(*channel);
  return peer;
}

Result<Listener> HostilePeer::open_listener() {
  auto listener = Listener::create(engine_);
  if (listener) print_line("listening on " + listener->address().to_string());
  return listener;
}

Result<void> HostilePeer::serve() {
  auto listener = open_listener();
  if (!listener) return std::move(listener).error();
  auto request = listener->wait_request(Duration::seconds(60));
  if (!request) return std::move(request).error();
  if (auto accepted = channel_->accept(*request); !accepted) return accepted;
  for (;;) {
    auto message = channel_->receive();
    if (!message) return std::move(message).error();
    if (*message) return print(**message), Result<void>();
    if (channel_->exhausted()) return channel_->connection().status();
    if (!engine_.run_once()) engine_.wait(engine_.now() + Duration::milliseconds(100));
  }
}

void HostilePeer::send(const Message& message) {
  print_line("send " + std::string(name_of(message)));
  if (auto sent = channel_->send(message); !sent) print_line("not sent: " + sent.error().to_string());
}

void HostilePeer::send_bytes(std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(memory_.data(), bytes.data(), bytes.size());
  Operation operation;
  const ScatterGather piece = memory_.local(0, static_cast<std::uint32_t>(bytes.size()));
  channel_->connection().send(operation, bytes.empty() ? Segments(std::span<const ScatterGather>{}) : Segments(piece));
  finish("send " + std::to_string(bytes.size()) + " bytes", operation);
}

void HostilePeer::write(std::uint64_t offset, std::uint32_t length) {
  Operation operation;
  RemoteMemory there{remote_.address + offset, length, remote_.rkey};
  channel_->connection().write(operation, memory_.local(0, length), there);
  finish("write", operation);
}

void HostilePeer::read(std::uint64_t offset, std::uint32_t length) {
  Operation operation;
  RemoteMemory there{remote_.address + offset, length, remote_.rkey};
  channel_->connection().read(operation, memory_.local(0, length), there);
  finish("read", operation);
}

void HostilePeer::finish(std::string_view what, Operation& operation) {
  const auto outcome = operation.wait(Duration::seconds(10));
  print_line(std::string(what) + (outcome ? ": ok" : ": " + outcome.error().to_string()));
}

void HostilePeer::listen() {
  Instant quiet_since = engine_.now();
  while (engine_.now() - quiet_since < kSilence) {
    auto message = channel_->receive();
    if (!message) {
      print_line("unreadable: " + message.error().to_string());
      return;
    }
    if (*message) {
      print(**message);
      quiet_since = engine_.now();
      continue;
    }
    if (channel_->exhausted()) {
      const auto status = channel_->connection().status();
      print_line("closed: " + (status ? "by us" : status.error().to_string()));
      return;
    }
    if (!engine_.run_once()) engine_.wait(engine_.now() + Duration::milliseconds(100));
  }
  print_line("silence");
}

bool HostilePeer::await_begin() {
  for (const Instant until = engine_.now() + Duration::seconds(10); engine_.now() < until;) {
    auto message = channel_->receive();
    if (!message || channel_->exhausted()) return print_line("no Begin"), false;
    if (*message) {
      print(**message);
      const auto* begin = std::get_if<message::Begin>(&**message);
      auto memory = begin == nullptr ? RemoteMemory::from_bytes({}) : RemoteMemory::from_bytes(begin->memory);
      if (memory) remote_ = *memory;
      return memory.has_value();
    }
    if (!engine_.run_once()) engine_.wait(engine_.now() + Duration::milliseconds(100));
  }
  return print_line("no Begin"), false;
}

message::Begin HostilePeer::own_begin(RootKind kind) {
  message::Begin begin;
  begin.kind = kind;
  begin.slots = 4;
  begin.slot_bytes = kOwnSlotBytes;
  begin.memory = memory_.remote().to_bytes();
  return begin;
}

void HostilePeer::print(const Message& message) {
  std::string line = "got " + std::string(name_of(message));
  if (const auto* failed = std::get_if<message::Failed>(&message)) line += ": " + printable(failed->text);
  if (const auto* refused = std::get_if<message::Refused>(&message)) line += ": " + printable(refused->text);
  if (const auto* skipped = std::get_if<message::Skipped>(&message)) line += ": " + printable(skipped->text);
  print_line(line);
}

}  // namespace verbena::tools
