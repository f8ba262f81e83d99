// SPDX-License-Identifier: Apache-2.0
// Ping-pong over bare UDP or TCP on the loopback, busy-polled or blocking.
//   bench_net_pp server [options]                        prints where it listens and leaves after the last
//   round bench_net_pp client --connect ADDRESS:PORT [options]
// Options, the same on both sides: --proto udp|tcp  --wait busy|block  --size BYTES  --iterations N
//   --rcvbuf BYTES (as given to SO_RCVBUF)  --cpu N; the server takes --bind ADDRESS; the client
//   also takes --name METRIC.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "peer.h"

namespace {

class Channel {
 public:
  Channel(const peer::Options& options, bool server)
      : datagram_(options.text("proto", "udp") == "udp"),
        flags_(options.text("wait", "busy") == "busy" ? MSG_DONTWAIT : 0),
        size_(options.number("size", 8)),
        buffer_(peer::touched_pages(size_ + 64)),
        fd_(socket(AF_INET, datagram_ ? SOCK_DGRAM : SOCK_STREAM, 0)) {
    if (fd_ < 0) peer::die("socket");
    peer::set_receive_buffer(fd_, options.number("rcvbuf", 0));
    if (server) {
      accept_client(peer::Endpoint::parse(options.text("bind", "127.0.0.1") + ":0"));
    } else {
      const peer::Endpoint to = peer::Endpoint::parse(options.text("connect", "127.0.0.1:0"));
      if (connect(fd_, to.address(), to.length) != 0) peer::die("connect");
    }
    if (!datagram_) peer::set_option(fd_, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() { close(fd_); }

  void put() {
    for (std::size_t done = 0; done < size_;) {
      const ssize_t k = send(fd_, buffer_ + done, size_ - done, flags_);
      if (k < 0 && errno != EAGAIN) peer::die("send");
      if (k > 0) done += static_cast<std::size_t>(k);
    }
  }

  // False when the peer has closed.
  bool get() {
    for (std::size_t done = 0; done < size_;) {
      const ssize_t k = recv(fd_, buffer_ + done, size_ - done, flags_);
      if (k == 0 && !datagram_) return false;
      if (k < 0 && errno != EAGAIN) peer::die("recv");
      if (k > 0) done += static_cast<std::size_t>(k);
    }
    return true;
  }

 private:
  void accept_client(const peer::Endpoint& any) {
    if (bind(fd_, any.address(), any.length) != 0) peer::die("bind");
    if (!datagram_ && listen(fd_, 1) != 0) peer::die("listen");
    peer::report_ready(peer::Endpoint::bound(fd_).text());
    peer::Endpoint from;
    from.length = sizeof from.storage;
    if (datagram_) {
      if (recvfrom(fd_, buffer_, size_, MSG_PEEK, from.address(), &from.length) < 0) peer::die("recvfrom");
      if (connect(fd_, from.address(), from.length) != 0) peer::die("connect");
    } else {
      const int accepted = accept(fd_, nullptr, nullptr);  // inherits the receive buffer of the listener
      if (accepted < 0) peer::die("accept");
      close(fd_);
      fd_ = accepted;
    }
  }

  bool datagram_;
  int flags_;
  std::size_t size_;
  std::byte* buffer_;
  int fd_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "server" && role != "client") peer::usage("bench_net_pp server|client [--option value]...");
  const peer::Options options(std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(2),
                              {"proto", "wait", "size", "iterations", "rcvbuf", "cpu", "connect", "bind", "name"});
  const bool server = role == "server";
  peer::settle_on(options.integer("cpu", server ? peer::kFarCpu : peer::kNearCpu));
  const std::size_t iterations = options.number("iterations", 30000);
  Channel channel(options, server);
  if (server) {
    for (std::size_t i = 0; i < iterations && channel.get(); i++) channel.put();
    return 0;
  }
  std::vector<double> samples_ns(iterations);
  for (double& sample : samples_ns) {
    const std::uint64_t start = peer::now_ns();
    channel.put();
    if (!channel.get()) peer::usage("the server left early");
    sample = static_cast<double>(peer::now_ns() - start);
  }
  peer::report_latency(options.text("name", "rtt"), samples_ns);
}
