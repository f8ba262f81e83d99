// SPDX-License-Identifier: Apache-2.0
// What the sockets of one device have done so far.
#pragma once

#include <cstdint>

namespace verbena::soft::udp {

struct SocketCounters {
  std::uint64_t send_calls = 0;  // system calls
  std::uint64_t sent_trains = 0;
  std::uint64_t sent_datagrams = 0;
  std::uint64_t sent_connected = 0;     // of the datagrams, by a socket connected to their peer
  std::uint64_t sent_bytes = 0;         // UDP payload
  std::uint64_t dropped_datagrams = 0;  // the kernel refused them for good; each has an error
  std::uint64_t send_full = 0;          // sends cut short because a socket or a queue below it was full
  std::uint64_t send_errors = 0;        // refusals of our own datagrams and ICMP errors read
  std::uint64_t errors_lost = 0;        // send errors nobody fetched in time
  std::uint64_t gso_refused = 0;        // trains that had to leave as single datagrams
  std::uint64_t receive_calls = 0;      // system calls, also those that found nothing
  std::uint64_t received_trains = 0;
  std::uint64_t received_datagrams = 0;
  std::uint64_t received_connected = 0;  // of these, by a socket connected to their peer
  std::uint64_t received_bytes = 0;  // UDP payload
  std::uint64_t receive_errors = 0;
  std::uint64_t receive_drops = 0;  // datagrams the kernel dropped because the receive buffer was full
};

// A count that is kept elsewhere modulo 2^32, without end: read again before that has gone once round.
class WidenedCount {
 public:
  std::uint64_t read(std::uint32_t now) {
    total_ += now - last_;
    last_ = now;
    return total_;
  }
  std::uint64_t total() const { return total_; }

 private:
  std::uint32_t last_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace verbena::soft::udp
