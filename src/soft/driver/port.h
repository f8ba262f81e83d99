// SPDX-License-Identifier: Apache-2.0
// Where a device's datagrams come from and go to: sockets, or other devices of this process.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "soft/driver/counter.h"
#include "soft/roce/train.h"

namespace verbena::soft {

// A train this long is handed over, and taken, by itself: one side works on it while the other does on the next.
inline constexpr std::size_t kLongTrainBytes = 16 * 1024;

class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  // One datagram, or several back to back, each `segment_bytes` long but for a shorter last.
  virtual void on_datagrams(const wire::Path& path, std::optional<std::uint16_t> identification,
                            std::span<const std::byte> bytes, std::size_t segment_bytes) = 0;
};

// One thread at a time, but for wake-ups through fds().
class Port {
 public:
  virtual ~Port() = default;
  // One batch of what waits; false when that is nothing, or, unless it is to look everywhere, nothing where most comes.
  virtual bool receive(DatagramSink& sink, bool everywhere) = 0;
  // In order per path. What cannot leave now is lost, as on any network.
  virtual void send(std::span<const roce::Train* const> trains) = 0;
  // Readable when receive() would find something. Always the same.
  virtual std::span<const int> fds() const = 0;
  virtual roce::TrainLimits limits() const = 0;
  // What the network said about a peer lately, in words ("port unreachable"); empty when nothing.
  virtual std::string hint_about(const Gid& peer) = 0;
  virtual std::vector<std::string> explain() const = 0;
  virtual std::vector<NamedCounter> counters() = 0;

  // ---- Any thread. Where others receive at the same address: who asks to connect to the service (the low half of a
  // service id: port space, port) reaches this port. Errors: AddressInUse names who listens, ResourceExhausted, Busy.
  virtual Result<void> announce(std::uint32_t) { return {}; }
  virtual Result<void> withdraw(std::uint32_t) { return {}; }
};

}  // namespace verbena::soft
