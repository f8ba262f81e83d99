// SPDX-License-Identifier: Apache-2.0
// What one end of a connection must know of the other where no connection management stands between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/result.h"
#include "verbena/device/queue_pair.h"

namespace verbena {

// A value that goes to the peer by any way there is: a file, a socket, a job launcher. Connection::describe() makes it,
// Connection::connect_to() of the peer takes it.
//
//     0      2            3                 4     20    24    28    32          size-4         size-2
//     | size | reads out  | reads served    | gid | qpn | psn | mtu | user data | 'C' | 1 | check |
//     little-endian but for the GID; size: of all, bytes; check as in RemoteMemory
struct ConnectionDescription {
  static constexpr std::size_t kMinWireBytes = 36;
  static constexpr std::size_t kMaxUserData = 1024;

  QueuePairAddress address{};
  std::uint8_t max_rd_atomic = 0;       // READ and atomics this side has out at once
  std::uint8_t max_dest_rd_atomic = 0;  // and those it serves at once

  std::span<const std::byte> user_data() const { return user_data_; }
  // Copies them. Errors: InvalidArgument (more than kMaxUserData bytes; nothing has changed).
  Result<void> set_user_data(std::span<const std::byte> bytes);

  std::vector<std::byte> to_bytes() const;
  // What follows the description is ignored. Errors: InvalidArgument (truncated), CorruptData (no description, of
  // another version, damaged, or with a number that no queue pair has: the text names the field).
  static Result<ConnectionDescription> from_bytes(std::span<const std::byte> bytes);
  // The bytes as hexadecimal digits: one line of a text file.
  std::string to_string() const;
  // Errors: InvalidArgument (no hexadecimal digits), and those of from_bytes().
  static Result<ConnectionDescription> parse(std::string_view text);

  bool operator==(const ConnectionDescription&) const = default;

 private:
  std::vector<std::byte> user_data_;
};

}  // namespace verbena
