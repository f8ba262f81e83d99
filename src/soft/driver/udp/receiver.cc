// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/receiver.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace verbena::soft::udp {
namespace {

// What the kernel says beside the bytes. Sizes vary by item (a byte for IP_TOS, an int for most).
struct Notes {
  std::size_t segment_bytes = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = wire::Path{}.hop_limit;
};

template <class T>
T payload_of(const cmsghdr* item) {
  T value;
  std::memcpy(&value, CMSG_DATA(item), sizeof value);
  return value;
}

Notes read_notes(msghdr& header) {
  Notes notes;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    const int level = item->cmsg_level;
    const int type = item->cmsg_type;
    if (level == IPPROTO_UDP && type == UDP_GRO) {
      notes.segment_bytes = static_cast<std::size_t>(payload_of<int>(item));
    } else if (level == IPPROTO_IP && type == IP_TOS) {
      notes.traffic_class = payload_of<std::uint8_t>(item);
    } else if (level == IPPROTO_IPV6 && type == IPV6_TCLASS) {
      notes.traffic_class = static_cast<std::uint8_t>(payload_of<int>(item));
    } else if ((level == IPPROTO_IP && type == IP_TTL) || (level == IPPROTO_IPV6 && type == IPV6_HOPLIMIT)) {
      notes.hop_limit = static_cast<std::uint8_t>(payload_of<int>(item));
    }
  }
  return notes;
}

}  // namespace

Receiver::Receiver(Descriptor socket, const Gid& local, std::uint16_t port, unsigned slots)
    : socket_(std::move(socket)),
      local_(local),
      port_(port),
      memory_(std::make_unique_for_overwrite<std::byte[]>(slots * kSlotStride)),
      peers_(slots),
      controls_(slots),
      pieces_(slots),
      headers_(slots),
      trains_(slots) {
  for (std::size_t i = 0; i < slots; ++i) {
    pieces_[i] = iovec{memory_.get() + i * kSlotStride, kSlotBytes};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_name = &peers_[i].any;
    header.msg_iov = &pieces_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_[i].bytes.data();
  }
  arm(slots);
}

void Receiver::arm(std::size_t used) {
  for (std::size_t i = 0; i < used; ++i) {
    headers_[i].msg_hdr.msg_namelen = sizeof(sockaddr_in6);
    headers_[i].msg_hdr.msg_controllen = sizeof(Control::bytes);
  }
}

// One recvmsg while datagrams come singly: recvmmsg would look for a second one before it hands out the
// first.
int Receiver::read_one() {
  const ssize_t bytes = ::recvmsg(socket_.get(), &headers_[0].msg_hdr, MSG_DONTWAIT);
  if (bytes < 0) return -1;
  headers_[0].msg_len = static_cast<unsigned>(bytes);
  return 1;
}

std::span<const ReceivedTrain> Receiver::receive(SocketCounters& counters) {
  ++counters.receive_calls;
  const int got = finds_in_a_row_ >= 2 ? ::recvmmsg(socket_.get(), headers_.data(),
                                          static_cast<unsigned>(headers_.size()), MSG_DONTWAIT, nullptr)
                             : read_one();
  if (got <= 0) {
    finds_in_a_row_ = 0;
    if (got < 0 && errno != EAGAIN && errno != EINTR) ++counters.receive_errors;
    return {};
  }
  ++finds_in_a_row_;
  const auto count = static_cast<std::size_t>(got);
  for (std::size_t i = 0; i < count; ++i) read(i, counters);
  counters.received_trains += count;
  arm(count);
  return {trains_.data(), count};
}

void Receiver::read(std::size_t slot, SocketCounters& counters) {
  const Notes notes = read_notes(headers_[slot].msg_hdr);
  const std::size_t bytes = headers_[slot].msg_len;
  ReceivedTrain& train = trains_[slot];
  train.path.source = peers_[slot].gid();
  train.path.destination = local_;
  train.path.source_port = peers_[slot].port();
  train.path.destination_port = port_;
  train.path.traffic_class = notes.traffic_class;
  train.path.hop_limit = notes.hop_limit;
  train.bytes = {memory_.get() + slot * kSlotStride, bytes};
  train.segment_bytes = notes.segment_bytes == 0 ? bytes : notes.segment_bytes;
  counters.received_bytes += bytes;
  counters.received_datagrams +=
      bytes <= train.segment_bytes ? 1 : (bytes + train.segment_bytes - 1) / train.segment_bytes;
}

// Asked for, not told with each datagram: that would cost a tenth of a round trip.
std::uint64_t Receiver::drops() {
  std::array<std::uint32_t, SK_MEMINFO_VARS> info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_MEMINFO, info.data(), &size) != 0) return drops_.total();
  return drops_.read(info[SK_MEMINFO_DROPS]);
}

}  // namespace verbena::soft::udp
