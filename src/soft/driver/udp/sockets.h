// SPDX-License-Identifier: Apache-2.0
// The sockets of one RoCE device: one that receives on port 4791 of the device's address, and a few that
// send. Knows datagrams and paths, nothing of queue pairs.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "soft/driver/udp/counters.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/receiver.h"
#include "soft/driver/udp/sender.h"
#include "soft/driver/udp/socket_options.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

// What SO_RCVBUF grants a user at most unless the administrator raised net.core.rmem_max.
inline constexpr unsigned kUsualReceiveBuffer = 212'992;

// One thread at a time; it may be a different one each time when something else orders them.
class SocketSet {
 public:
  // `receiving` is bound to port 4791 of that address, and `peer_fd` to it beside; see Receiver.
  static Result<SocketSet> open(const LocalAddress& local, Descriptor receiving, const SocketOptions& options,
                                int peer_fd = -1);

  const Gid& address() const { return local_.gid; }
  const LocalAddress& interface() const { return local_; }
  unsigned path_mtu() const { return path_mtu_for(local_); }
  // As the kernel books it: about double of what was asked, or of net.core.rmem_max.
  unsigned receive_buffer_bytes() const { return receive_buffer_bytes_; }

  // Datagrams a train may have now; 1 when it may not be a train. Falls to 1 when a device turns out not to
  // segment.
  unsigned max_segments() const { return sender_.max_segments(); }
  unsigned sources() const { return static_cast<unsigned>(sender_.sources()); }
  std::uint16_t source_port(unsigned source_index) const { return sender_.source_port(source_index); }

  // For epoll: EPOLLIN on the receiving, EPOLLOUT (after an incomplete send) and EPOLLERR on the sending
  // ones.
  int receive_fd() const { return receiver_.fd(); }
  int send_fd(unsigned source_index) const { return sender_.fd(source_index); }

  // See Receiver and Sender.
  const wire::Path* busy_peer() const { return reports_ip_fields_ ? nullptr : receiver_.busy_peer(); }
  bool is_led() const { return receiver_.is_led(); }
  bool wants_rest() const { return reports_ip_fields_ || receiver_.wants_rest(); }
  void set_led(bool leads) { receiver_.set_led(leads); }
  std::span<const ReceivedTrain> receive(bool everywhere = true) { return receiver_.receive(counters_, everywhere); }
  unsigned send(std::span<OutTrain> trains) { return sender_.send(trains, counters_); }
  // For the length of a capture, say. See SocketOptions::report_ip_fields.
  void report_ip_fields(bool on);
  unsigned read_errors() { return sender_.read_errors(counters_); }
  std::optional<SendError> poll_error() { return sender_.poll_error(); }

  SocketCounters counters() {
    SocketCounters all = counters_;
    all.receive_drops = receiver_.drops();
    return all;
  }

 private:
  SocketSet(LocalAddress local, Receiver receiver, Sender sender, unsigned receive_buffer_bytes)
      : local_(std::move(local)),
        receiver_(std::move(receiver)),
        sender_(std::move(sender)),
        receive_buffer_bytes_(receive_buffer_bytes) {}

  LocalAddress local_;
  Receiver receiver_;
  Sender sender_;
  bool reports_ip_fields_ = false;
  unsigned receive_buffer_bytes_;
  SocketCounters counters_;
};

}  // namespace verbena::soft::udp
