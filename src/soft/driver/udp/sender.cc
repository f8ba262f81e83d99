// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/sender.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/system_call.h"
#include "soft/wire/opcode.h"

namespace verbena::soft::udp {
namespace {

// A send may meet this many errors of other peers before it counts as refused itself.
constexpr unsigned kAttempts = 16;

// Appends one item to a control buffer of which `used` bytes are taken; the length grows with each.
template <class T>
void put_note(std::byte* buffer, std::size_t& used, int level, int type, T value) {
  cmsghdr head{};
  head.cmsg_level = level;
  head.cmsg_type = type;
  head.cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(buffer + used, &head, sizeof head);
  std::memcpy(buffer + used + CMSG_LEN(0), &value, sizeof value);
  used += CMSG_SPACE(sizeof value);
}

// Whether socket options have said all of the path.
bool is_usual(const wire::Path& path, std::uint8_t usual_hop_limit) {
  return path.traffic_class == 0 && path.hop_limit == usual_hop_limit && path.flow_label == 0;
}

// What of the path a socket option has not said already. Returns the bytes of control buffer used.
std::size_t put_path_notes(const wire::Path& path, std::uint8_t usual_hop_limit, std::byte* buffer) {
  const bool ipv4 = path.is_ipv4();
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  std::size_t used = 0;
  if (path.traffic_class != 0)
    put_note(buffer, used, level, ipv4 ? IP_TOS : IPV6_TCLASS, int{path.traffic_class});
  if (path.hop_limit != usual_hop_limit)
    put_note(buffer, used, level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{path.hop_limit});
  constexpr int kFlowInfo = 11;  // IPV6_FLOWINFO of linux/in6.h, which netinet/in.h excludes
  if (!ipv4 && path.flow_label != 0) put_note(buffer, used, level, kFlowInfo, htonl(path.flow_label));
  return used;
}

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// sendto() saves the kernel to fetch what describes the message, which takes it a tenth of a microsecond.
ssize_t send_one(int fd, const msghdr& message) {
  if (message.msg_iovlen != 1 || message.msg_controllen != 0)
    return system_call(SYS_sendmsg, ::sendmsg, fd, &message, MSG_DONTWAIT);
  const iovec& bytes = message.msg_iov[0];
  return system_call(SYS_sendto, ::sendto, fd, bytes.iov_base, bytes.iov_len, MSG_DONTWAIT,
                     static_cast<const sockaddr*>(message.msg_name), message.msg_namelen);
}

// How many the kernel took, or -1 and errno. A lone message goes the cheaper way.
int send_messages(int fd, std::span<mmsghdr> messages) {
  if (messages.size() == 1) return send_one(fd, messages[0].msg_hdr) < 0 ? -1 : 1;
  return system_call(SYS_sendmmsg, ::sendmmsg, fd, messages.data(), static_cast<unsigned>(messages.size()),
                     MSG_DONTWAIT);
}

std::uint64_t bit_of(const OutTrain& train) { return std::uint64_t{1} << train.source_index; }

// errnos with which a kernel or a device says that it does no segmentation.
bool is_segmentation_refusal(int error) { return error == EIO || error == EINVAL || error == EOPNOTSUPP; }

}  // namespace

Sender::Sender(std::vector<Descriptor> sockets, std::vector<std::uint16_t> ports, const LocalAddress& local,
               const SocketOptions& options, unsigned max_segments)
    : sockets_(std::move(sockets)),
      ports_(std::move(ports)),
      local_(local),
      options_(options),
      max_segments_(std::max(max_segments, 1u)),
      habits_(sockets_.size()),
      batch_(kBatch),
      batch_bytes_(kBatch),
      peers_(kBatch),
      controls_(kBatch),
      headers_(kBatch),
      single_pieces_(kMaxTrainPieces + max_segments_),
      singles_(max_segments_),
      errors_(kErrorsKept) {
  VERBENA_ASSERT(!sockets_.empty() && sockets_.size() <= 64 && sockets_.size() == ports_.size());
}

void Sender::may_connect(bool yes) {
  may_connect_ = yes;
  if (!yes)
    for (Habit& habit : habits_) habit = {};
}

// In one piece, and socket options say all that its path does.
bool Sender::is_small(const OutTrain& train) const {
  constexpr unsigned kMostDatagrams = 4;
  constexpr std::size_t kLeastBytes = wire::kBthBytes + wire::kIcrcBytes;
  if (train.sent != 0 || train.pieces.size() != 1 || !is_usual(train.path, options_.hop_limit)) return false;
  const std::size_t last = train.pieces[0].iov_len - (train.datagrams - 1) * train.segment_bytes;
  return train.datagrams <= std::min(kMostDatagrams, max_segments_) && last >= kLeastBytes;
}

// It may be for lack of something that is there later, or of this peer.
void Sender::give_up_connection(std::size_t source, SocketCounters& counters) {
  read_errors_of(source, counters);
  Habit& habit = habits_[source];
  habit.socket.reset();
  habit.leads_there = false;
  habit.count = 0;
  habit.patience = std::min(4 * habit.patience, kMostPatience);
}

// Where that is soon again, datagrams that overtake each other cost more than the connection saves.
void Sender::leave_connection(Habit& habit) {
  constexpr unsigned kLong = 16;
  if (habit.count > habit.patience)
    habit.patience = habit.count / kLong >= habit.patience ? kSmallBeforeConnecting
                                                           : std::min(4 * habit.patience, kMostPatience);
  habit.count = 0;
}

void Sender::connect(Habit& habit, const OutTrain& train, SocketCounters& counters) {
  check(train);
  if (!habit.socket || !habit.socket->leads_to(train.path)) {
    read_errors_of(train.source_index, counters);
    habit.socket.reset();  // there is one beside another at most
    habit.socket = ConnectedSocket::open(fd(train.source_index), local_, options_, train.path);
  }
  habit.leads_there = habit.socket.has_value();
}

ConnectedSocket::Sent Sender::send_connected(OutTrain& train, SocketCounters& counters) {
  Habit& habit = habits_[train.source_index];
  if (habit.path != train.path) habit = {train.path, 0, kSmallBeforeConnecting, std::move(habit.socket), false};
  if (habit.count < habit.patience) [[unlikely]] {
    ++habit.count;
    return ConnectedSocket::Sent::No;
  }
  if (!habit.leads_there) [[unlikely]] connect(habit, train, counters);
  auto sent = ConnectedSocket::Sent::No;
  const iovec& piece = train.pieces[0];
  if (habit.leads_there) [[likely]] {
    ++counters.send_calls;
    sent = habit.socket->send({static_cast<std::byte*>(piece.iov_base), piece.iov_len}, train.segment_bytes);
  }
  if (sent == ConnectedSocket::Sent::No) [[unlikely]] {
    give_up_connection(train.source_index, counters);
    return sent;
  }
  if (sent == ConnectedSocket::Sent::Full) [[unlikely]] return sent;
  ++habit.count;
  train.sent = train.datagrams;
  train.finished = true;
  ++counters.sent_trains;
  counters.sent_datagrams += train.datagrams;
  counters.sent_connected += train.datagrams;
  counters.sent_bytes += piece.iov_len;
  return sent;
}

unsigned Sender::send(std::span<OutTrain> trains, SocketCounters& counters) {
  std::uint64_t with_one = 0, with_several = 0;  // sources, by what they have here
  for (const OutTrain& train : trains) {
    VERBENA_ASSERT(train.source_index < sockets_.size());
    with_several |= with_one & bit_of(train);
    with_one |= bit_of(train);
  }
  std::uint64_t wanted = 0;
  bool all = true;
  for (OutTrain& train : trains) {
    if (train.finished) continue;
    auto sent = ConnectedSocket::Sent::No;
    if (may_connect_ && (with_several & bit_of(train)) == 0 && is_small(train))
      sent = send_connected(train, counters);
    else
      leave_connection(habits_[train.source_index]);
    if (sent == ConnectedSocket::Sent::No) wanted |= bit_of(train);
    if (sent == ConnectedSocket::Sent::Full) all = false;
  }
  for (std::size_t source = 0; wanted != 0; ++source, wanted >>= 1)
    if (wanted & 1) all = flush_source(source, trains, counters) && all;
  if (all) return static_cast<unsigned>(trains.size());
  ++counters.send_full;
  return static_cast<unsigned>(
      std::count_if(trains.begin(), trains.end(), [](const OutTrain& train) { return train.finished; }));
}

bool Sender::flush_source(std::size_t source, std::span<OutTrain> trains, SocketCounters& counters) {
  std::size_t count = 0;
  for (OutTrain& train : trains) {
    if (train.finished || train.source_index != source) continue;
    if (train.sent > 0 || train.datagrams > max_segments_) {
      // Taken apart, now or by an earlier call that was cut short.
      if (!flush(source, std::exchange(count, 0), counters) || !send_singles(source, train, counters))
        return false;
      continue;
    }
    fill(count, train);
    if (++count == kBatch && !flush(source, std::exchange(count, 0), counters)) return false;
  }
  return flush(source, count, counters);
}

void Sender::check(const OutTrain& train) const {
  VERBENA_ASSERT(train.path.source == local_.gid && train.path.source_port == ports_[train.source_index]);
  VERBENA_ASSERT(train.path.destination.is_ipv4() == local_.gid.is_ipv4());
  VERBENA_ASSERT(train.datagrams >= 1 && train.datagrams <= singles_.size());
  VERBENA_ASSERT(!train.pieces.empty() && train.pieces.size() <= kMaxTrainPieces);
}

void Sender::fill(std::size_t slot, OutTrain& train) {
  check(train);
  const std::size_t bytes = total_bytes(train.pieces);
  VERBENA_ASSERT(bytes <= kMaxTrainBytes && bytes <= train.segment_bytes * train.datagrams &&
                 bytes > train.segment_bytes * (train.datagrams - 1));
  batch_[slot] = &train;
  batch_bytes_[slot] = bytes;
  peers_[slot] = SocketAddress(train.path.destination, train.path.destination_port, local_.interface_index);
  std::byte* control = controls_[slot].bytes.data();
  std::size_t used = put_path_notes(train.path, options_.hop_limit, control);
  if (train.datagrams > 1)
    put_note(control, used, IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(train.segment_bytes));
  msghdr& header = headers_[slot].msg_hdr;
  header.msg_name = &peers_[slot].any;
  header.msg_namelen = peers_[slot].size;
  header.msg_iov = const_cast<iovec*>(train.pieces.data());  // sendmmsg only reads them
  header.msg_iovlen = train.pieces.size();
  header.msg_control = used == 0 ? nullptr : control;
  header.msg_controllen = used;
}

// Sends slots [0, count). False when the socket is full.
bool Sender::flush(std::size_t source, std::size_t count, SocketCounters& counters) {
  unsigned attempts = 0;
  for (std::size_t at = 0; at < count;) {
    ++counters.send_calls;
    const int taken = send_messages(fd(source), {&headers_[at], count - at});
    if (taken > 0) {
      attempts = 0;
      for (const std::size_t end = at + static_cast<std::size_t>(taken); at < end; ++at) {
        OutTrain& train = *batch_[at];
        train.sent = train.datagrams;
        train.finished = true;
        ++counters.sent_trains;
        counters.sent_datagrams += train.datagrams;
        counters.sent_bytes += batch_bytes_[at];
      }
      // The error that stopped a partly done call is told to nobody, but it is in the queue.
      if (at < count) read_errors_of(source, counters);
      continue;
    }
    const int error = errno;
    OutTrain& train = *batch_[at];
    if (train.datagrams > 1 && is_segmentation_refusal(error)) {
      ++counters.gso_refused;
      if (!send_singles(source, train, counters)) return false;
      ++at;
      continue;
    }
    const Outcome outcome = judge(source, train.path.destination, error, attempts, counters);
    if (outcome == Outcome::Full) return false;
    if (outcome == Outcome::Retry) continue;
    attempts = 0;
    train.finished = true;
    counters.dropped_datagrams += train.datagrams;
    ++at;
  }
  return true;
}

// What a failed send to `peer` means. With the error queue on, the error may be about somebody else.
Sender::Outcome Sender::judge(std::size_t source, const Gid& peer, int error, unsigned& attempts,
                              SocketCounters& counters) {
  if (error == EINTR) return Outcome::Retry;
  if (error == EAGAIN || error == ENOBUFS || error == ENOMEM) return Outcome::Full;
  const bool explained = read_errors_of(source, counters) > 0;
  ++attempts;
  if (explained ? attempts < kAttempts : attempts == 1) return Outcome::Retry;
  SendError refusal;
  refusal.peer = peer;
  refusal.error = error;
  if (error == EMSGSIZE) refusal.mtu = local_mtu_hint_;
  record(refusal, counters);
  return Outcome::Dropped;
}

// Headers and pieces for every datagram of the train, from the first not sent yet. Returns how many there
// are.
std::size_t Sender::cut_into_singles(const OutTrain& train) {
  std::size_t piece = 0;
  std::size_t offset = 0;  // into that piece
  std::size_t used = 0;    // of single_pieces_
  for (std::size_t index = 0; index < train.datagrams; ++index) {
    const std::size_t first = used;
    std::size_t missing = train.segment_bytes;
    while (missing > 0 && piece < train.pieces.size()) {
      const iovec& from = train.pieces[piece];
      const std::size_t take = std::min(missing, from.iov_len - offset);
      if (take > 0) single_pieces_[used++] = iovec{static_cast<std::byte*>(from.iov_base) + offset, take};
      missing -= take;
      offset += take;
      if (offset == from.iov_len) {
        ++piece;
        offset = 0;
      }
    }
    if (index < train.sent) {
      used = first;
      continue;
    }
    msghdr& header = singles_[index - train.sent].msg_hdr;
    header.msg_iov = &single_pieces_[first];
    header.msg_iovlen = used - first;
  }
  return train.datagrams - train.sent;
}

// A train as single datagrams. On IPv4 each then has identification 0: a peer that checks all 32 bits of the
// ICRC drops those after the first, and the retransmission, built for max_segments() = 1, repairs it.
bool Sender::send_singles(std::size_t source, OutTrain& train, SocketCounters& counters) {
  check(train);
  SocketAddress peer(train.path.destination, train.path.destination_port, local_.interface_index);
  const std::size_t count = cut_into_singles(train);
  Control control;
  const std::size_t used = put_path_notes(train.path, options_.hop_limit, control.bytes.data());
  for (std::size_t i = 0; i < count; ++i) {
    msghdr& header = singles_[i].msg_hdr;
    header.msg_name = &peer.any;
    header.msg_namelen = peer.size;
    header.msg_control = used == 0 ? nullptr : control.bytes.data();
    header.msg_controllen = used;
  }
  unsigned attempts = 0;
  for (std::size_t at = 0; at < count;) {
    ++counters.send_calls;
    const int taken = send_messages(fd(source), {&singles_[at], count - at});
    if (taken > 0) {
      attempts = 0;
      max_segments_ = 1;
      for (const std::size_t end = at + static_cast<std::size_t>(taken); at < end; ++at) {
        ++train.sent;
        ++counters.sent_datagrams;
        counters.sent_bytes += total_bytes({singles_[at].msg_hdr.msg_iov, singles_[at].msg_hdr.msg_iovlen});
      }
      continue;
    }
    const Outcome outcome = judge(source, train.path.destination, errno, attempts, counters);
    if (outcome == Outcome::Full) return false;
    if (outcome == Outcome::Retry) continue;
    counters.dropped_datagrams += train.datagrams - train.sent;
    break;
  }
  train.finished = true;
  counters.sent_trains += train.sent > 0 ? 1 : 0;
  return true;
}

}  // namespace verbena::soft::udp
