// SPDX-License-Identifier: Apache-2.0
// A second socket at a sending port, connected to one peer: the kernel looks for the way there once, not with
// each datagram. On IPv4 it numbers what such a socket sends, from a random start on; the ICRC covers that
// number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/socket_options.h"
#include "soft/wire/icrc.h"
#include "soft/wire/path.h"

namespace verbena::soft::udp {

class ConnectedSocket {
 public:
  // `beside` is the socket bound to path.source_port of `local`. Nothing where there can be none, or where
  // the kernel does not show how it numbers.
  static std::optional<ConnectedSocket> open(int beside, const LocalAddress& local,
                                             const SocketOptions& options, const wire::Path& path);

  int fd() const { return socket_.get(); }
  bool leads_to(const wire::Path& path) const {
    return path.destination == path_.destination && path.destination_port == path_.destination_port;
  }
  // A datagram of RoCE that is whole but for its ICRC, which is set to what its identification wants. False:
  // it did not leave, has the ICRC of identification 0, and this socket is of no use any more.
  bool send(std::span<std::byte> datagram);

 private:
  ConnectedSocket(Descriptor socket, const wire::Path& path)
      : socket_(std::move(socket)), path_(path), icrc_(path) {}
  bool learn_identification(const LocalAddress& local);
  void set_icrc(std::span<std::byte> datagram, std::uint16_t identification) const;

  Descriptor socket_;
  wire::Path path_;
  wire::IcrcStart icrc_;
  std::uint16_t identification_ = 0;  // of the next datagram
};

}  // namespace verbena::soft::udp
