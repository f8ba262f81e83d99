// SPDX-License-Identifier: Apache-2.0
// What rping of rdma-core says over a connection. A ping is two rounds: the client advertises its source, the server
// READs it and answers with a SEND; the client advertises its sink, the server WRITEs there what it read and answers
// with a SEND. Answers are as long as an advertisement, and what stands in them means nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "verbena/base/result.h"
#include "verbena/connection/connection.h"
#include "verbena/device/remote_memory.h"

namespace verbena::tools {

inline constexpr std::uint16_t kRpingPort = 7174;
inline constexpr std::uint32_t kMinRpingBytes = 23, kMaxRpingBytes = 65535;
inline constexpr std::uint32_t kDefaultRpingBytes = 64;
// The number of a ping is an int there.
inline constexpr std::uint64_t kMaxRpingCount = 0x7fffffff;

// Memory of the client.
//
//     0         8      12     16
//     | address | rkey | size |       big-endian
struct RpingAdvertisement {
  static constexpr std::size_t kWireBytes = 16;
  std::uint64_t address = 0;
  RKey rkey;
  std::uint32_t size = 0;  // bytes

  std::array<std::byte, kWireBytes> to_bytes() const;
  // ProtocolError: not kWireBytes of them.
  static Result<RpingAdvertisement> from_bytes(std::span<const std::byte> bytes);
  RemoteMemory memory() const { return {address, size, rkey}; }
  std::string to_string() const;
  bool operator==(const RpingAdvertisement&) const = default;
};

// Ping `number`, counted from 0: "rdma-ping-N: ", then the characters from 'A' to 'z' in a circle that starts one
// further with every ping, and NUL as the last byte. `out` is at least kMinRpingBytes.
void fill_rping_payload(std::span<std::byte> out, std::uint64_t number);
// CorruptData names the first byte that differs.
Result<void> check_rping_payload(std::span<const std::byte> bytes, std::uint64_t number);
// Up to the NUL, for a terminal: '.' stands for what is not printable ASCII.
std::string rping_text(std::span<const std::byte> bytes);

// Told what is sent and received, for people; may be empty.
using RpingTeller = std::function<void(const std::string&)>;

// A busy machine may be slow for a while; a dead peer is given up after a good two seconds.
inline ConnectionOptions rping_connection_options() {
  ConnectionOptions options;
  options.reliability.timeout = 16;  // 268 ms a period, eight periods
  return options;
}

struct RpingSettings {
  std::uint32_t bytes = kDefaultRpingBytes;  // per ping; of a server: at most
  std::uint64_t count = 0;                   // pings per client; 0: any number
  bool verbose = false;                      // print the data
  bool validate = false;                     // check the data
  RpingTeller tell;
};

}  // namespace verbena::tools
