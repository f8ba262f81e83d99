// SPDX-License-Identifier: Apache-2.0
// What the socket tests share: datagrams with a pattern, and reading until as many as expected are there.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/sockets.h"
#include "soft/driver/udp/test_network.h"

namespace verbena::soft::udp::testing {

using Bytes = std::vector<std::byte>;

// Bytes that tell their own index, so that a datagram cut at the wrong place or taken from another train
// shows.
inline Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + (i >> 8) * 7 + seed * 101) & 0xff);
  return bytes;
}

struct Arrival {
  wire::Path path;
  Bytes bytes;
  unsigned index_in_train = 0;
};

// One train over bytes that stay with it. Deque elements do not move, so a span of pieces stays valid.
struct Train {
  Bytes bytes;
  std::vector<iovec> pieces;
};

class TrainBuilder {
 public:
  explicit TrainBuilder(const SocketSet& from) : from_(from) {}

  // `piece_bytes` 0: one piece. Otherwise pieces of that size, which need not fall on segment boundaries.
  OutTrain& add(const Gid& to, std::size_t total, std::size_t segment, unsigned source = 0,
                std::size_t piece_bytes = 0) {
    store_.push_back(Train{pattern(total, static_cast<unsigned>(store_.size())), {}});
    Train& train = store_.back();
    const std::size_t step = piece_bytes == 0 ? std::max<std::size_t>(total, 1) : piece_bytes;
    for (std::size_t at = 0; at < total; at += step)
      train.pieces.push_back(iovec{train.bytes.data() + at, std::min(step, total - at)});
    OutTrain out;
    out.source_index = source;
    out.path.source = from_.address();
    out.path.destination = to;
    out.path.source_port = from_.source_port(source);
    out.segment_bytes = segment;
    out.datagrams = static_cast<unsigned>((total + segment - 1) / segment);
    out.pieces = train.pieces;
    trains_.push_back(out);
    return trains_.back();
  }

  std::vector<OutTrain>& trains() { return trains_; }
  // Datagram `index` of train `train`, as it must arrive.
  Bytes datagram(std::size_t train, unsigned index) const {
    const Bytes& bytes = store_[train].bytes;
    const std::size_t segment = trains_[train].segment_bytes;
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(index * segment);
    const std::size_t length = std::min(segment, bytes.size() - index * segment);
    return Bytes(first, first + static_cast<std::ptrdiff_t>(length));
  }

 private:
  const SocketSet& from_;
  std::deque<Train> store_;
  std::vector<OutTrain> trains_;
};

// Waits for datagrams until `wanted` have come or nothing has come for a good while.
inline std::vector<Arrival> collect(SocketSet& sockets, std::size_t wanted) {
  std::vector<Arrival> arrivals;
  while (arrivals.size() < wanted) {
    pollfd waiting{sockets.receive_fd(), POLLIN, 0};
    if (::poll(&waiting, 1, 5'000) <= 0) break;
    for (const ReceivedTrain& train : sockets.receive()) {
      unsigned index = 0;
      std::span<const std::byte> rest = train.bytes;
      do {
        const auto datagram = rest.first(std::min(train.segment_bytes, rest.size()));
        rest = rest.subspan(datagram.size());
        arrivals.push_back({train.path, Bytes(datagram.begin(), datagram.end()), index++});
      } while (!rest.empty());
    }
  }
  return arrivals;
}

inline bool is_quiet(SocketSet& sockets) {
  return sockets.receive().empty();
}

// On port 4791 of the address, for itself alone.
inline Result<SocketSet> open_alone(const Gid& address, const SocketOptions& options) {
  auto local = find_local_address(address);
  if (!local) return std::move(local).error();
  auto socket = make_udp_socket(address);
  if (!socket) return std::move(socket).error();
  if (const int error = bind_to(socket->get(), *local, wire::kRocePort))
    return bind_error(address, wire::kRocePort, error);
  return SocketSet::open(*local, std::move(*socket), options);
}

inline SocketSet open_at(const Gid& address, const SocketOptions& options = {}) {
  TestNetwork::enter();
  auto sockets = open_alone(address, options);
  if (!sockets) ADD_FAILURE() << sockets.error().to_string();
  return std::move(sockets).value();
}

// At the first free loopback address.
inline SocketSet open_automatic(const SocketOptions& options = {}) {
  TestNetwork::enter();
  for (std::uint8_t host = 1;; ++host) {
    auto sockets = open_alone(Gid::from_ipv4(127, 0, 0, host), options);
    if (sockets) return std::move(sockets).value();
    if (host == 254 || sockets.error().code() != ErrorCode::AddressInUse)
      ADD_FAILURE() << sockets.error().to_string();
  }
}

}  // namespace verbena::soft::udp::testing
