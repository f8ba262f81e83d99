// SPDX-License-Identifier: Apache-2.0
// A range of a peer's memory, as the peer gave it away: address, length and key. It travels as 24 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "verbena/base/ids.h"
#include "verbena/base/result.h"

namespace verbena {

// A value. Whoever holds one may use the memory as far as the region's rights go and as long as it is registered; so
// hand it to whom you trust with that.
//
//     0        8        16     20   21   22      24
//     | address | length | rkey | 'V' | 1 | check |     little-endian; check: CRC-16/CCITT-FALSE of bytes 0..21
struct RemoteMemory {
  static constexpr std::size_t kWireBytes = 24;

  std::uint64_t address = 0;
  std::uint64_t length = 0;  // bytes
  RKey rkey{};

  // The part [offset, offset + bytes). InvalidArgument when it is not inside.
  Result<RemoteMemory> sub_range(std::uint64_t offset, std::uint64_t bytes) const;

  std::array<std::byte, kWireBytes> to_bytes() const;
  // Reads the first 24 bytes; what follows is ignored (private data arrives padded). Errors: InvalidArgument (too
  // short), CorruptData (not a RemoteMemory, of another version, or damaged).
  static Result<RemoteMemory> from_bytes(std::span<const std::byte> bytes);

  // The bytes as hexadecimal digits, for files and command lines.
  std::string to_string() const;
  // Errors: InvalidArgument (no hexadecimal digits), and those of from_bytes().
  static Result<RemoteMemory> parse(std::string_view text);

  bool operator==(const RemoteMemory&) const = default;
};

}  // namespace verbena
