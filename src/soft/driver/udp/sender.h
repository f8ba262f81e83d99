// SPDX-License-Identifier: Apache-2.0
// The send half: sendmmsg of trains from several sockets, and the errors that come back, each with its peer.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "soft/driver/udp/connected_socket.h"
#include "soft/driver/udp/counters.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/wire/path.h"

namespace verbena::soft::udp {

inline constexpr std::size_t kMaxTrainBytes = 65'000;
inline constexpr std::size_t kMaxTrainPieces = 1'024;  // UIO_MAXIOV

// Datagrams of one flow that leave together: all of segment_bytes but the last, which may be shorter, never
// empty. On IPv4 datagram i of a train carries identification i, unless the train is small and alone of its source:
// then it may count from another, and the last four bytes of each datagram are made the ICRC that goes with it. The
// pieces, laid end to end, are the datagrams.
struct OutTrain {
  unsigned source_index = 0;  // path.source_port is the port of this sending socket
  wire::Path path;
  std::size_t segment_bytes = 0;
  unsigned datagrams = 1;  // at most max_segments(), kMaxTrainBytes in all
  std::span<const iovec> pieces;

  // Written by send().
  unsigned sent = 0;      // datagrams the kernel took
  bool finished = false;  // nothing left to do; sent < datagrams when the rest was refused for good
};

// Why datagrams to a peer did not leave or did not arrive.
struct SendError {
  Gid peer;
  int error = 0;              // an errno
  unsigned mtu = 0;           // with EMSGSIZE: the largest IP datagram that passes, 0 if nobody said
  bool from_network = false;  // an ICMP message said so; otherwise the kernel refused the send
};

// One thread at a time.
class Sender {
 public:
  // Sockets are bound, non-blocking and unconnected. max_segments 1 means no segmentation offload.
  Sender(std::vector<Descriptor> sockets, std::vector<std::uint16_t> ports, const LocalAddress& local,
         const SocketOptions& options, unsigned max_segments);

  std::size_t sources() const { return sockets_.size(); }
  std::uint16_t source_port(std::size_t index) const { return ports_[index]; }
  int fd(std::size_t index) const { return sockets_[index].get(); }
  unsigned max_segments() const { return max_segments_; }
  // Whether identifications may count from another than 0.
  void may_connect(bool yes);

  // Sends what is not finished, in order within each source; one sendmmsg per source and 64 trains.
  // Returns how many trains of the span are finished; with fewer than all, a socket is full: call again
  // later.
  unsigned send(std::span<OutTrain> trains, SocketCounters& counters);

  // Reads the error queues of all sending sockets; for when one of them shows EPOLLERR. Returns how many it
  // read.
  unsigned read_errors(SocketCounters& counters);
  // The oldest error not fetched yet.
  std::optional<SendError> poll_error();

 private:
  enum class Outcome { Retry, Dropped, Full };
  static constexpr std::size_t kBatch = 64;
  static constexpr std::size_t kErrorsKept = 64;
  static constexpr unsigned kSmallBeforeConnecting = 64;
  static constexpr unsigned kMostPatience = 1u << 20;

  struct Control {
    alignas(std::max_align_t) std::array<std::byte, 96> bytes;
  };

  // Where a port sends nothing but small trains to one peer, one after the other, they leave by a socket connected to
  // it. What is large, or leaves with others of its port, does not, and begins the count anew: in a queue below, what
  // leaves by one socket may overtake what left by another.
  struct Habit {
    wire::Path path;     // of the last small train
    std::uint64_t count = 0;  // of such trains in a row: patience, and those that left by the connected socket
    unsigned patience = kSmallBeforeConnecting;
    std::optional<ConnectedSocket> socket;
    bool leads_there = false;  // that one, by that path
  };

  bool is_small(const OutTrain& train) const;
  // No: it goes as others do.
  ConnectedSocket::Sent send_connected(OutTrain& train, SocketCounters& counters);
  [[gnu::cold]] void connect(Habit& habit, const OutTrain& train, SocketCounters& counters);
  static void leave_connection(Habit& habit);
  [[gnu::cold]] void give_up_connection(std::size_t source, SocketCounters& counters);
  bool flush_source(std::size_t source, std::span<OutTrain> trains, SocketCounters& counters);
  bool flush(std::size_t source, std::size_t count, SocketCounters& counters);
  [[gnu::cold]] bool send_singles(std::size_t source, OutTrain& train, SocketCounters& counters);
  [[gnu::cold]] std::size_t cut_into_singles(const OutTrain& train);
  void fill(std::size_t slot, OutTrain& train);
  void check(const OutTrain& train) const;
  [[gnu::cold]] Outcome judge(std::size_t source, const Gid& peer, int error, unsigned& attempts,
                              SocketCounters& counters);
  [[gnu::cold]] unsigned read_errors_of(std::size_t source, SocketCounters& counters);
  [[gnu::cold]] unsigned read_queue(int fd, SocketCounters& counters);
  [[gnu::cold]] void record(const SendError& error, SocketCounters& counters);

  std::vector<Descriptor> sockets_;
  std::vector<std::uint16_t> ports_;
  LocalAddress local_;
  SocketOptions options_;
  unsigned max_segments_;
  std::vector<Habit> habits_;  // one for each socket
  bool may_connect_ = true;
  unsigned local_mtu_hint_ = 0;  // what the kernel said with its last local EMSGSIZE

  // The batch being sent; slot i belongs to *batch_[i].
  std::vector<OutTrain*> batch_;
  std::vector<std::size_t> batch_bytes_;
  std::vector<SocketAddress> peers_;
  std::vector<Control> controls_;
  std::vector<mmsghdr> headers_;
  // One train taken apart, for a device without segmentation offload.
  std::vector<iovec> single_pieces_;
  std::vector<mmsghdr> singles_;
  std::vector<SendError> errors_;  // ring of kErrorsKept
  std::size_t errors_first_ = 0;
  std::size_t errors_count_ = 0;
};

// The longest train of UDP_SEGMENT this kernel takes from `local` (128, 64, …); 1 when it takes none.
unsigned probe_max_segments(const Gid& local, std::uint32_t scope);

}  // namespace verbena::soft::udp
