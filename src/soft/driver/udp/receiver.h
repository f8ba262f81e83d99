// SPDX-License-Identifier: Apache-2.0
// The receive half: recvmmsg into preallocated slots, with datagrams the kernel joined (GRO) handed out one
// by one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "soft/driver/udp/counters.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/wire/path.h"

namespace verbena::soft::udp {

// Datagrams of one flow that arrived in one piece: all of segment_bytes but the last, which may be shorter.
// Points into the receiver; valid until its next receive().
struct ReceivedTrain {
  wire::Path path;
  std::span<const std::byte> bytes;
  std::size_t segment_bytes = 0;
};

// One thread at a time.
class Receiver {
 public:
  // Takes a bound non-blocking socket; `slots` is the number of trains a call can bring.
  Receiver(Descriptor socket, const Gid& local, std::uint16_t port, unsigned slots);

  int fd() const { return socket_.get(); }
  // What is there now, without waiting; empty when nothing is.
  std::span<const ReceivedTrain> receive(SocketCounters& counters);
  // Datagrams the kernel had no room for.
  std::uint64_t drops();

 private:
  // The largest UDP payload, plus a stride that keeps slots from sharing cache sets.
  static constexpr std::size_t kSlotBytes = 65'536;
  static constexpr std::size_t kSlotStride = kSlotBytes + 192;
  struct Control {
    alignas(std::max_align_t) std::array<std::byte, 192> bytes;
  };

  void arm(std::size_t used);
  int read_one();
  void read(std::size_t slot, SocketCounters& counters);

  Descriptor socket_;
  WidenedCount drops_;
  Gid local_;
  std::uint16_t port_;
  unsigned finds_in_a_row_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<SocketAddress> peers_;
  std::vector<Control> controls_;
  std::vector<iovec> pieces_;
  std::vector<mmsghdr> headers_;
  std::vector<ReceivedTrain> trains_;
};

}  // namespace verbena::soft::udp
