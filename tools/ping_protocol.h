// SPDX-License-Identifier: Apache-2.0
// What `verbena ping` and its server tell each other while they connect.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "verbena/async/operation.h"
#include "verbena/base/result.h"

namespace verbena::tools {

enum class PingOperation : std::uint8_t { Send, Write, Read, CompareAndSwap, FetchAndAdd };
inline constexpr std::string_view kPingOperationNames[] = {"send", "write", "read", "cas", "fadd"};
inline constexpr std::uint32_t kMaxPingBytes = 16u << 20;

constexpr std::string_view to_string(PingOperation op) { return kPingOperationNames[static_cast<std::size_t>(op)]; }
std::optional<PingOperation> parse_ping_operation(std::string_view name);
constexpr bool is_atomic(PingOperation op) {
  return op == PingOperation::CompareAndSwap || op == PingOperation::FetchAndAdd;
}

// Empty messages have no buffer.
inline Segments segments_of(const ScatterGather& piece) {
  return piece.length == 0 ? Segments(std::span<const ScatterGather>{}) : Segments(piece);
}

// The client's private data. The server answers with the RemoteMemory of `size` bytes, or 8 for atomics.
//
//     0    4    5        6      8      12
//     | VBPG | 1 | op    | zero | size |       little-endian
struct PingRequest {
  static constexpr std::size_t kWireBytes = 12;
  PingOperation operation = PingOperation::Send;
  std::uint32_t size = 0;  // bytes per operation

  std::array<std::byte, kWireBytes> to_bytes() const;
  // ProtocolError. What follows is ignored.
  static Result<PingRequest> from_bytes(std::span<const std::byte> bytes);
  bool operator==(const PingRequest&) const = default;
};

}  // namespace verbena::tools
