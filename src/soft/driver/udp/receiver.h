// SPDX-License-Identifier: Apache-2.0
// The receive half: recvmmsg into preallocated slots, with datagrams the kernel joined (GRO) handed out one
// by one. There may be a second socket at the port, for one peer who sends little at a time (peer_socket.h): then it is
// read mostly.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
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
  // Takes a bound non-blocking socket; `slots` is the number of trains a call can bring. `peer_fd`: the second socket,
  // which stays its owner's; -1: none.
  Receiver(Descriptor socket, const Gid& local, std::uint16_t port, unsigned slots, int peer_fd = -1);

  int fd() const { return socket_.get(); }
  // What is there now, without waiting; empty when nothing is. Of two it looks at the one where most comes, and at the
  // other when that one has nothing and it is to look everywhere.
  std::span<const ReceivedTrain> receive(SocketCounters& counters, bool everywhere = true);
  // All that is there, train by train; for a socket that nobody reads from here on.
  void hand_on_all(const std::function<void(const ReceivedTrain&)>& to);

  // Where there is a second socket: from where most has come lately that came to the first, few at once: of a peer's
  // ports, when there is one for messages and another for what is said of those it got. Nothing: from several, or many.
  const wire::Path* busy_peer() const {
    const bool is_busy = !leads_ && !ends_ && excess_ >= kOften && (excess_ >= patience_ || last_ != led_);
    return is_busy ? &last_ : nullptr;
  }
  // Whether the second one leads to it now. To nobody: what had come to it is read before what comes to the first.
  void set_led(bool leads);
  bool is_led() const { return leads_; }
  // It should not: much comes there at once, which the first would join to trains, or little while others send.
  bool wants_rest() const { return flooded_ || excess_ >= kOften; }
  // Datagrams the kernel had no room for.
  std::uint64_t drops();

 private:
  // The largest UDP payload, plus a stride that keeps slots from sharing cache sets.
  static constexpr std::size_t kSlotBytes = 65'536;
  static constexpr std::size_t kSlotStride = kSlotBytes + 192;
  struct Control {
    alignas(std::max_align_t) std::array<std::byte, 192> bytes;
  };

  // Where to look next.
  struct Source {
    int fd = -1;
    unsigned finds_in_a_row = 0;
  };
  static constexpr unsigned kOften = 64;           // trains
  static constexpr unsigned kMostPatience = 1u << 20;

  void arm(std::size_t used);
  int read_one();
  int read_of_peer();
  int read_some(Source& source);
  int look(Source& source, SocketCounters& counters);
  bool looks_at_peer();
  void note_habit(bool from_peer, std::size_t count);
  void read(std::size_t slot);
  void read_of(const wire::Path& path, std::size_t slot);

  Descriptor socket_;
  Source all_, peer_;
  std::uint64_t peer_cookie_ = 0;
  WidenedCount drops_, peer_drops_;
  Gid local_;
  std::uint16_t port_;
  bool leads_ = false;      // the second socket is connected to somebody who sends
  bool ends_ = false;       // and was, and may have something still
  bool flooded_ = false;
  unsigned before_it_ = 0;  // so many looks at the first: what came before it was is there
  unsigned looks_ = 0;
  wire::Path last_;          // of most trains to the first socket
  wire::Path led_;           // of all to the second, now or when it was led last; patience_ is with this one
  unsigned excess_ = 0;      // of these, over twice those with others; while it leads, of all over twice the second's
  unsigned others_ = 0;      // trains to the first since one to the second
  unsigned company_ = 0;     // after so many to the second alone, the first is looked at seldom
  unsigned peer_vain_looks_ = 0;
  unsigned patience_ = kOften;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<SocketAddress> peers_;
  std::vector<Control> controls_;
  std::vector<iovec> pieces_;
  std::vector<mmsghdr> headers_;
  std::vector<ReceivedTrain> trains_;
};

}  // namespace verbena::soft::udp
