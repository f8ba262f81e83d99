// SPDX-License-Identifier: Apache-2.0
// A second socket at a sending port, connected to one peer: the kernel looks for the way there once, not with each
// datagram. On IPv4 it numbers what such a socket sends, from a random start on; the ICRC covers that number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "soft/driver/own_descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/socket_options.h"
#include "soft/wire/icrc.h"
#include "soft/wire/path.h"

namespace verbena::soft::udp {

class ConnectedSocket {
 public:
  // `beside` is the socket bound to path.source_port of `local`, which has no other beside it. Nothing where there can
  // be none, or where the kernel does not show how it numbers.
  static std::optional<ConnectedSocket> open(int beside, const LocalAddress& local, const SocketOptions& options,
                                             const wire::Path& path);

  int fd() const { return socket_.get(); }
  bool leads_to(const wire::Path& path) const {
    return path.destination == path_.destination && path.destination_port == path_.destination_port;
  }
  enum class Sent : std::uint8_t { Yes, Full, No };
  // Datagrams of RoCE, back to back, all of segment_bytes but for a shorter last; each is set the ICRC that its
  // identification wants. Full and No: none left, and they have the ICRCs of their places in the train. After No this
  // socket is of no use any more.
  Sent send(std::span<std::byte> train, std::size_t segment_bytes);

 private:
  ConnectedSocket(OwnDescriptor socket, const wire::Path& path)
      : socket_(std::move(socket)), path_(path), icrc_(path) {}
  bool learn_identification(const LocalAddress& local);
  void set_icrcs(std::span<std::byte> train, std::size_t segment_bytes, std::uint16_t identification);

  OwnDescriptor socket_;  // a child that kept it would keep the port, and what is said of the peer
  wire::Path path_;
  wire::IcrcStart icrc_;
  std::uint16_t identification_ = 0;  // of the next train's first datagram
};

}  // namespace verbena::soft::udp
