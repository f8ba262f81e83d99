// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/receiver.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/system_call.h"
#include "soft/driver/port.h"
#include "soft/driver/udp/socket_options.h"

namespace verbena::soft::udp {
namespace {

// What the kernel says beside the bytes. Sizes vary by item (a byte for IP_TOS, an int for most).
struct Notes {
  std::size_t segment_bytes = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = wire::Path{}.hop_limit;
  std::uint32_t flow_label = 0;
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
    } else if (level == IPPROTO_IPV6 && type == kIpv6FlowInfo) {
      notes.flow_label = ntohl(payload_of<std::uint32_t>(item)) & 0xfffff;
    }
  }
  return notes;
}

std::optional<std::uint32_t> drops_of(int fd) {
  std::array<std::uint32_t, SK_MEMINFO_VARS> info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info.data(), &size) != 0) return std::nullopt;
  return info[SK_MEMINFO_DROPS];
}

// Of the socket, whatever descriptor it has.
std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

}  // namespace

Receiver::Receiver(Descriptor socket, const Gid& local, std::uint16_t port, unsigned slots, int peer_fd)
    : socket_(std::move(socket)),
      all_{socket_.get()},
      peer_{peer_fd},
      peer_cookie_(peer_fd < 0 ? 0 : cookie_of(peer_fd)),
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

int Receiver::read_one() {
  const ssize_t bytes = system_call(SYS_recvmsg, ::recvmsg, all_.fd, &headers_[0].msg_hdr, MSG_DONTWAIT);
  if (bytes < 0) return -1;
  headers_[0].msg_len = static_cast<unsigned>(bytes);
  return 1;
}

// The kernel need not fetch a description of the message first, which takes it a third of a look in vain, nor say who
// sent it. So it has nothing to say beside the bytes: that socket does not join datagrams, and has them from one peer.
// While something came lately it is looked at several times: in between, what else a device does would keep it waiting.
int Receiver::read_of_peer() {
  constexpr unsigned kLately = 256;
  constexpr int kLooks = 4;
  ssize_t bytes = -1;
  for (int i = 0; bytes < 0 && i < (peer_vain_looks_ < kLately ? kLooks : 1); ++i)
    bytes = system_call(SYS_recvfrom, ::recvfrom, peer_.fd, memory_.get(), kSlotBytes, MSG_DONTWAIT, nullptr, nullptr);
  peer_vain_looks_ = bytes < 0 ? peer_vain_looks_ + 1 : 0;
  if (bytes < 0) return -1;
  headers_[0].msg_len = static_cast<unsigned>(bytes);
  return 1;
}

// One while datagrams come singly: recvmmsg would look for a second one before it hands out the first. And while trains
// are long, which take as long to copy as to work off: who sent the first waits to hear of it.
int Receiver::read_some(Source& source) {
  if (source.finds_in_a_row < 2) return &source == &peer_ ? read_of_peer() : read_one();
  return system_call(SYS_recvmmsg, ::recvmmsg, source.fd, headers_.data(), static_cast<unsigned>(headers_.size()),
                     MSG_DONTWAIT, nullptr);
}

int Receiver::look(Source& source, SocketCounters& counters) {
  ++counters.receive_calls;
  const int got = read_some(source);
  if (got > 0) {
    source.finds_in_a_row = headers_[0].msg_len < kLongTrainBytes ? source.finds_in_a_row + 1 : 0;
    return got;
  }
  source.finds_in_a_row = 0;
  if (&source == &peer_) ends_ = false;
  else before_it_ = 0;
  if (got < 0 && errno != EAGAIN && errno != EINTR) ++counters.receive_errors;
  return 0;
}

// Where nothing is expected something may be all the same: what anybody says by ICMP wakes who sleeps until it is read.
std::span<const ReceivedTrain> Receiver::receive(SocketCounters& counters, bool everywhere) {
  bool from_peer = looks_at_peer();
  int got = look(from_peer ? peer_ : all_, counters);
  if (got == 0 && everywhere && peer_.fd >= 0) {
    from_peer = !from_peer;
    got = look(from_peer ? peer_ : all_, counters);
  }
  if (got == 0) return {};
  const auto count = static_cast<std::size_t>(got);
  const std::uint64_t before = counters.received_datagrams;
  for (std::size_t i = 0; i < count; ++i) {
    from_peer ? read_of(led_, i) : read(i);
    const auto& [path, bytes, segment] = trains_[i];
    counters.received_bytes += bytes.size();
    counters.received_datagrams += bytes.size() <= segment ? 1 : (bytes.size() + segment - 1) / segment;
  }
  counters.received_trains += count;
  if (from_peer) counters.received_connected += counters.received_datagrams - before;
  if (peer_.fd >= 0) note_habit(from_peer, count);
  arm(count);
  return {trains_.data(), count};
}

void Receiver::hand_on_all(const std::function<void(const ReceivedTrain&)>& to) {
  SocketCounters uncounted;
  for (auto trains = receive(uncounted); !trains.empty(); trains = receive(uncounted))
    for (const ReceivedTrain& train : trains) to(train);
}

// A look at the first costs what a find at the second saves: it is seldom while that has all that comes.
bool Receiver::looks_at_peer() {
  constexpr unsigned kByTurns = 2, kSometimes = 4, kSeldom = 64;
  if (ends_) return true;
  if (!leads_) return false;
  const unsigned pause = others_ >= kOften ? kByTurns : company_ != 0 ? kSometimes : kSeldom;
  if (before_it_ == 0) return ++looks_ % pause != 0;
  --before_it_;
  return false;
}

void Receiver::note_habit(bool from_peer, std::size_t count) {
  constexpr unsigned kLess = 2;  // for each of another: two thirds are to be of one, and one third is too few
  if (from_peer) {
    excess_ -= std::min(excess_, kLess * static_cast<unsigned>(count));
    others_ = 0;
    company_ -= std::min(company_, 1u);
    flooded_ = flooded_ || count == headers_.size();
    return;
  }
  constexpr std::size_t kFew = 4;  // datagrams
  const bool much = count == headers_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (leads_) {
      ++excess_;
    } else if (much || trains_[i].bytes.size() > kFew * trains_[i].segment_bytes) {
      excess_ = 0;
    } else if (trains_[i].path == last_) {
      ++excess_;
    } else if (excess_ > kLess) {
      excess_ -= kLess;
    } else {
      last_ = trains_[i].path;
      excess_ = 1;
    }
  }
  others_ += static_cast<unsigned>(count);
  company_ = kOften;
}

void Receiver::set_led(bool leads) {
  constexpr unsigned kMostBefore = 64;
  if (!leads_) {
    if (last_ != led_) patience_ = kOften;
    led_ = last_;
  }
  if (!leads && (flooded_ || !leads_)) patience_ = std::min(4 * patience_, kMostPatience);
  ends_ = leads_ && !leads;
  before_it_ = leads && !leads_ ? kMostBefore : 0;
  leads_ = leads;
  flooded_ = false;
  excess_ = others_ = peer_vain_looks_ = 0;
}

void Receiver::read(std::size_t slot) {
  const Notes notes = read_notes(headers_[slot].msg_hdr);
  wire::Path path;
  path.source = peers_[slot].gid();
  path.destination = local_;
  path.source_port = peers_[slot].port();
  path.destination_port = port_;
  path.traffic_class = notes.traffic_class;
  path.hop_limit = notes.hop_limit;
  path.flow_label = notes.flow_label;
  read_of(path, slot);
  if (notes.segment_bytes != 0) trains_[slot].segment_bytes = notes.segment_bytes;
}

void Receiver::read_of(const wire::Path& path, std::size_t slot) {
  const std::size_t bytes = headers_[slot].msg_len;
  trains_[slot] = {path, {memory_.get() + slot * kSlotStride, bytes}, bytes};
}

// Asked for, not told with each datagram: that would cost a tenth of a round trip.
std::uint64_t Receiver::drops() {
  if (const auto now = drops_of(fd())) drops_.read(*now);
  if (peer_.fd >= 0 && cookie_of(peer_.fd) == peer_cookie_)
    if (const auto now = drops_of(peer_.fd)) peer_drops_.read(*now);
  return drops_.total() + peer_drops_.total();
}

}  // namespace verbena::soft::udp
