// SPDX-License-Identifier: Apache-2.0
// One-way UDP bandwidth with GSO and GRO, plain or framed like RoCEv2: 16-byte header, payload, CRC-32. What
// a user-space device on this kernel could reach if it did nothing but framing.
//   bench_udp_ceiling server [options]                        receives, prints the figures, leaves at the end
//   mark bench_udp_ceiling client --connect ADDRESS:PORT [options]  sends for --duration-ms
// Options, the same on both sides:
//   --payload BYTES   payload of a packet
//   --frame raw       payload only
//           copy      payload copied into a frame, CRC made; verified and copied out by the receiver
//           gather    the same on the wire, header, payload and CRC handed to the kernel as an iovec
//   --window BYTES    payload on its way at most   --train BYTES   payload of one send call at most
//   --rcvbuf BYTES    as given to SO_RCVBUF        --cpu N         --name METRIC (server)
//   --bind ADDRESS (server)
// The receiver grants credit (payload bytes taken so far) on the same socket.
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "crc.h"
#include "peer.h"

namespace {

enum class Frame { Raw, Copy, Gather };

struct Head {
  std::uint32_t opcode;
  std::uint32_t psn;
  std::uint64_t offset;
};

constexpr std::size_t kHeadBytes = sizeof(Head);
constexpr std::size_t kTailBytes = 4;
constexpr std::size_t kAreaBytes = std::size_t{1}
                                   << 20;  // the memory written to and read from, over and over
constexpr std::size_t kSlotBytes = 65536;  // no datagram is longer
constexpr std::size_t kMaxSegments = 64;   // kernel limit per send call
constexpr std::size_t kDepth = 32;         // datagrams per recvmmsg
constexpr std::uint64_t kIdleLimit_ns = 3000 * peer::kMillisecond_ns;
constexpr std::uint64_t kStallLimit_ns = 20 * peer::kMillisecond_ns;

struct Settings {
  explicit Settings(const peer::Options& o)
      : frame(o.text("frame", "copy") == "raw"      ? Frame::Raw
              : o.text("frame", "copy") == "gather" ? Frame::Gather
                                                    : Frame::Copy),
        payload(o.number("payload", 4096)),
        window(o.number("window", 192 * 1024)),
        train(o.number("train", 65536)),
        duration_ns(o.number("duration-ms", 300) * peer::kMillisecond_ns),
        rcvbuf(o.number("rcvbuf", 0)),
        name(o.text("name", "ceiling")),
        connect(o.text("connect", "127.0.0.1:0")),
        bind(o.text("bind", "127.0.0.1")) {
    if (payload == 0 || payload + kHeadBytes + kTailBytes > 65000) peer::usage("--payload is out of range");
  }
  [[nodiscard]] std::size_t wire() const {
    return frame == Frame::Raw ? payload : payload + kHeadBytes + kTailBytes;
  }

  Frame frame;
  std::size_t payload;
  std::size_t window;
  std::size_t train;
  std::uint64_t duration_ns;
  std::size_t rcvbuf;
  std::string name;
  std::string connect;
  std::string bind;  // address of the server
};

int udp_socket(std::size_t rcvbuf) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0) peer::die("socket");
  peer::set_receive_buffer(fd, rcvbuf);
  return fd;
}

class Receiver {
 public:
  explicit Receiver(const Settings& settings) : s_(settings), fd_(udp_socket(s_.rcvbuf)) {
    const peer::Endpoint any = peer::Endpoint::parse(s_.bind + ":0");
    if (bind(fd_, any.address(), any.length) != 0) peer::die("bind");
    peer::set_option(fd_, IPPROTO_UDP, UDP_GRO, 1, "UDP_GRO");
    peer::report_ready(peer::Endpoint::bound(fd_).text());
  }

  int run() {
    for (;;) {
      const std::size_t n = receive();
      if (n == 0) peer::usage("no traffic");
      messages_ += n;
      for (std::size_t i = 0; i < n; i++) {
        if (headers_[i].msg_len == 1) return finish();
        if (first_ns_ == 0) first_ns_ = peer::now_ns();
        take(headers_[i]);
      }
      last_ns_ = peer::now_ns();
      if (taken_ - granted_ >= s_.window / 4) grant();
    }
  }

 private:
  // Number of datagrams; 0 when none came for kIdleLimit_ns.
  std::size_t receive() {
    for (std::size_t i = 0; i < kDepth; i++) {
      vectors_[i] = {in_ + i * kSlotBytes, kSlotBytes};
      msghdr& m = headers_[i].msg_hdr;
      m = {};
      m.msg_name = &from_;
      m.msg_namelen = sizeof from_;
      m.msg_iov = &vectors_[i];
      m.msg_iovlen = 1;
      m.msg_control = control_[i].bytes;
      m.msg_controllen = sizeof control_[i].bytes;
    }
    const std::uint64_t start = peer::now_ns();
    for (std::uint64_t polls = 1;; polls++) {
      const int n = recvmmsg(fd_, headers_.data(), kDepth, MSG_DONTWAIT, nullptr);
      if (n > 0) return static_cast<std::size_t>(n);
      if (n < 0 && errno != EAGAIN) peer::die("recvmmsg");
      if (polls % 1024 == 0 && peer::now_ns() - start > kIdleLimit_ns) return 0;
    }
  }

  void take(mmsghdr& m) {
    const std::size_t length = m.msg_len;
    std::size_t step = length;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m.msg_hdr); c != nullptr; c = CMSG_NXTHDR(&m.msg_hdr, c)) {
      if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO) continue;
      int size = 0;
      std::memcpy(&size, CMSG_DATA(c), sizeof size);
      step = static_cast<std::size_t>(size);
    }
    const std::byte* p = static_cast<const std::byte*>(m.msg_hdr.msg_iov->iov_base);
    for (std::size_t at = 0; at < length; at += step) take_packet(p + at, std::min(step, length - at));
  }

  void take_packet(const std::byte* p, std::size_t size) {
    packets_++;
    if (s_.frame == Frame::Raw) {
      taken_ += size;
      return;
    }
    if (size <= kHeadBytes + kTailBytes) {
      bad_++;
      return;
    }
    Head head{};
    std::memcpy(&head, p, sizeof head);
    std::uint32_t crc = 0;
    std::memcpy(&crc, p + size - kTailBytes, sizeof crc);
    if (peer::crc32(0, p, size - kTailBytes) != crc) bad_++;
    const std::size_t payload = size - kHeadBytes - kTailBytes;
    std::memcpy(area_ + head.offset % kAreaBytes, p + kHeadBytes, payload);
    taken_ += payload;
  }

  void grant() {
    granted_ = taken_;
    sendto(fd_, &granted_, sizeof granted_, 0, reinterpret_cast<const sockaddr*>(&from_), sizeof from_);
  }

  int finish() const {
    const double seconds = static_cast<double>(last_ns_ - first_ns_) / 1e9;
    peer::report(s_.name, static_cast<double>(taken_) / seconds / 1e9, "GB/s");
    peer::report(s_.name + ".packets", static_cast<double>(packets_) / seconds / 1e6, "M/s");
    peer::report(s_.name + ".per_datagram", static_cast<double>(packets_) / static_cast<double>(messages_),
                 "packets");
    peer::report(s_.name + ".bad", static_cast<double>(bad_), "packets");
    return bad_ == 0 ? 0 : 1;
  }

  struct Control {
    alignas(cmsghdr) std::byte bytes[CMSG_SPACE(sizeof(int))];
  };
  Settings s_;
  int fd_;
  std::byte* in_ = peer::touched_pages(kDepth * kSlotBytes);
  std::byte* area_ = peer::touched_pages(kAreaBytes + kSlotBytes);
  std::array<mmsghdr, kDepth> headers_{};
  std::array<iovec, kDepth> vectors_{};
  std::array<Control, kDepth> control_{};
  sockaddr_in from_{};
  std::uint64_t taken_ = 0, granted_ = 0, packets_ = 0, messages_ = 0, bad_ = 0;
  std::uint64_t first_ns_ = 0, last_ns_ = 0;
};

class Sender {
 public:
  explicit Sender(const Settings& settings)
      : s_(settings),
        fd_(udp_socket(s_.rcvbuf)),
        segments_(
            std::clamp(std::min(s_.train, std::size_t{65000}) / s_.wire(), std::size_t{1}, kMaxSegments)),
        frames_(peer::touched_pages(segments_ * s_.wire())) {
    const peer::Endpoint to = peer::Endpoint::parse(s_.connect);
    if (connect(fd_, to.address(), to.length) != 0) peer::die("connect");
    peer::set_option(fd_, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(s_.wire()), "UDP_SEGMENT");
  }

  int run() {
    const std::uint64_t end = peer::now_ns() + s_.duration_ns;
    while (wait_for_credit(end)) send_train();
    const double lost =
        100.0 * static_cast<double>(lost_) / static_cast<double>(std::max<std::uint64_t>(sent_, 1));
    std::fprintf(stderr, "lost %.3f %%, %.2f polls for credit per call\n", lost,
                 static_cast<double>(waits_) / static_cast<double>(std::max<std::uint64_t>(calls_, 1)));
    usleep(20000);
    peer::set_option(fd_, IPPROTO_UDP, UDP_SEGMENT, 0, "UDP_SEGMENT");
    for (int i = 0; i < 3; i++) {
      // A refusal means that the receiver has seen an earlier mark and left.
      if (send(fd_, "e", 1, 0) < 0) break;
      usleep(2000);
    }
    return 0;
  }

 private:
  // False when the time is over. What no credit came back for in kStallLimit_ns counts as lost.
  bool wait_for_credit(std::uint64_t end_ns) {
    std::uint64_t stalled_since = 0;
    for (;;) {
      std::uint64_t granted = 0;
      while (recv(fd_, &granted, sizeof granted, MSG_DONTWAIT) == sizeof granted) granted_ = granted;
      const std::uint64_t now = peer::now_ns();
      if (now > end_ns) return false;
      if (sent_ + segments_ * s_.payload <= granted_ + lost_ + s_.window || sent_ == granted_ + lost_)
        return true;
      waits_++;
      if (stalled_since == 0) stalled_since = now;
      if (now - stalled_since > kStallLimit_ns) lost_ = sent_ - granted_;
    }
  }

  void send_train() {
    std::size_t entries = 0;
    for (std::size_t i = 0; i < segments_; i++) {
      const Head head{4, psn_++, offset_};
      const std::byte* payload = source_ + offset_;
      offset_ = (offset_ + s_.payload) % kAreaBytes;
      if (s_.frame == Frame::Raw) {
        vectors_[entries++] = {const_cast<std::byte*>(payload), s_.payload};
      } else if (s_.frame == Frame::Gather) {
        heads_[i] = head;
        const std::uint32_t head_crc =
            peer::crc32(0, reinterpret_cast<const std::byte*>(&heads_[i]), kHeadBytes);
        tails_[i] = peer::crc32(head_crc, payload, s_.payload);
        vectors_[entries++] = {&heads_[i], kHeadBytes};
        vectors_[entries++] = {const_cast<std::byte*>(payload), s_.payload};
        vectors_[entries++] = {&tails_[i], kTailBytes};
      } else {
        fill_frame(frames_ + i * s_.wire(), head, payload);
      }
    }
    if (s_.frame == Frame::Copy) vectors_[entries++] = {frames_, segments_ * s_.wire()};
    msghdr m{};
    m.msg_iov = vectors_.data();
    m.msg_iovlen = entries;
    while (sendmsg(fd_, &m, 0) < 0) {
      if (errno != EAGAIN && errno != ENOBUFS) peer::die("sendmsg");
    }
    calls_++;
    sent_ += segments_ * s_.payload;
  }

  void fill_frame(std::byte* out, const Head& head, const std::byte* payload) const {
    std::memcpy(out, &head, kHeadBytes);
    std::memcpy(out + kHeadBytes, payload, s_.payload);
    const std::uint32_t crc = peer::crc32(0, out, kHeadBytes + s_.payload);
    std::memcpy(out + kHeadBytes + s_.payload, &crc, kTailBytes);
  }

  Settings s_;
  int fd_;
  std::size_t segments_;
  std::byte* frames_;
  std::byte* source_ = peer::touched_pages(kAreaBytes + kSlotBytes);
  std::array<Head, kMaxSegments> heads_{};
  std::array<std::uint32_t, kMaxSegments> tails_{};
  std::array<iovec, kMaxSegments * 3> vectors_{};
  std::uint64_t sent_ = 0, granted_ = 0, lost_ = 0, waits_ = 0, calls_ = 0, offset_ = 0;
  std::uint32_t psn_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "server" && role != "client")
    peer::usage("bench_udp_ceiling server|client [--option value]...");
  const peer::Options options(
      std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(2),
      {"payload", "frame", "window", "train", "duration-ms", "rcvbuf", "cpu", "name", "connect", "bind"});
  const Settings settings(options);
  const bool server = role == "server";
  peer::settle_on(options.integer("cpu", server ? peer::kFarCpu : peer::kNearCpu));
  return server ? Receiver(settings).run() : Sender(settings).run();
}
