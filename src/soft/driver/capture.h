// SPDX-License-Identifier: Apache-2.0
// A capture file from inside the driver: the datagrams themselves with their IP headers and identification,
// readable by Wireshark, without any privilege.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "soft/roce/train.h"
#include "soft/wire/icrc.h"
#include "soft/wire/pcapng.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"

namespace verbena::soft {

// One thread at a time. Written out when a good deal has gathered, by flush(), and at the end.
class Capture {
 public:
  static Result<std::unique_ptr<Capture>> open(const std::string& file, const std::string& interface_name);
  ~Capture();

  // Without `identification` (a socket does not show it) the ICRC tells which it was, whatever the device thought of
  // the packet; 0 where the ICRC is wrong.
  void received(Instant now, const wire::Path& path, std::optional<std::uint16_t> identification,
                std::span<const std::byte> bytes, std::size_t segment_bytes);
  void sent(Instant now, const roce::Train& train);
  void flush();
  // The first failure to write, if any: packets are missing in the file.
  const std::optional<Error>& failure() const { return failure_; }
  // Writes the rest and closes the file; at most once, and nothing else after it. Errors: failure().
  Result<void> close();

 private:
  Capture(std::FILE* file, const std::string& file_name, const std::string& interface_name);
  void fail();
  void write(Instant now, const wire::Path& path, std::uint16_t identification,
             std::span<const std::byte> datagram, wire::PcapngWriter::Direction direction);

  std::FILE* file_;  // none: closed
  std::string file_name_;
  wire::PcapngWriter writer_;
  wire::IcrcVerifier verifier_;
  std::int64_t unix_offset_ns_;  // wall clock minus the device's clock
  std::vector<std::byte> ip_;    // the datagram at hand
  std::vector<std::byte> flat_;
  std::vector<std::byte> pending_;
  std::optional<Error> failure_;
};

// Nanoseconds of the monotonic clock: the clock of every device of this process.
Instant monotonic_now();

}  // namespace verbena::soft
