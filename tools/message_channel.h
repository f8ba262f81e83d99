// SPDX-License-Identifier: Apache-2.0
// A connection that carries messages of the file protocol, and the staging slots files pass through.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tools/file_protocol.h"
#include "verbena/verbena.h"

namespace verbena::tools {

inline constexpr std::uint16_t kStagingSlots = 8;
inline constexpr std::uint32_t kStagingSlotBytes = 1u << 20;

// Registered memory in equal slots.
struct Staging {
  MemoryRegion region;
  std::uint16_t slots = 0;
  std::uint32_t slot_bytes = 0;

  static Result<Staging> allocate(Device& device, std::uint16_t slots, std::uint32_t slot_bytes, Access access);
  std::span<std::byte> bytes(std::uint16_t slot, std::uint32_t length) const {
    return region.bytes().subspan(std::size_t{slot} * slot_bytes, length);
  }
  ScatterGather local(std::uint16_t slot, std::uint32_t length) const {
    return region.local(std::uint64_t{slot} * slot_bytes, length);
  }
};

// Receives are posted before the connection is made, so that no message waits for one. Callbacks only note what came:
// the owner takes it with receive().
class MessageChannel {
 public:
  static Result<std::unique_ptr<MessageChannel>> create(ProgressEngine& engine, Device& device);
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;
  ~MessageChannel();

  // Connects and checks that the other side speaks the file protocol.
  Result<void> connect(std::string_view address);
  Result<void> accept(ConnectionRequest& request);

  // Queues when all send buffers are in flight. ProtocolError: the peer takes no messages.
  Result<void> send(const Message& message);
  // The oldest message that came, if any. ProtocolError.
  Result<std::optional<Message>> receive();

  Connection& connection() { return *connection_; }
  // Nothing more will come: the connection has ended, and what came before was taken.
  bool exhausted() const { return inbox_.empty() && connection_->closed(); }
  // Everything sent was taken by the peer's device.
  bool flushed() const { return waiting_.empty() && free_.size() == kSends; }

 private:
  static constexpr std::size_t kReceives = 64;
  static constexpr std::size_t kSends = 48;
  static constexpr std::size_t kMaxWaiting = 256;

  MessageChannel() = default;
  ScatterGather receive_buffer(std::size_t index) const;
  ScatterGather send_buffer(std::size_t index, std::size_t bytes) const;
  void transmit();

  MemoryRegion buffers_;  // kReceives, then kSends
  std::array<Operation, kReceives> receives_;
  std::array<Operation, kSends> sends_;
  std::vector<std::size_t> free_;        // of sends_
  std::deque<std::vector<std::byte>> waiting_;
  std::deque<std::size_t> inbox_;        // of receives_, oldest first
  std::optional<Connection> connection_;  // ends first: afterwards no operation is in flight
};

}  // namespace verbena::tools
