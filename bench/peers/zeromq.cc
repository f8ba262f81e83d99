// SPDX-License-Identifier: Apache-2.0
// Messages by ZeroMQ over a socket of the file system (ipc), waiting as its own benchmarks do: there and back, or as
// many as go.
//   bench_zeromq server|client [options]; the server prints where it listens, the client is given it as --connect
// Options, the same on both sides: --test latency|rate  --size BYTES  --iterations N; the client also --name.
#include <unistd.h>
#include <zmq.h>

#include <span>
#include <string>
#include <vector>

#include "peer.h"

namespace {

class Channel {
 public:
  Channel(std::size_t size, bool server, const std::string& where) : context_(zmq_ctx_new()), bytes_(size) {
    socket_ = zmq_socket(context_, ZMQ_PAIR);
    constexpr int kUnlimited = 0;
    zmq_setsockopt(socket_, ZMQ_SNDHWM, &kUnlimited, sizeof kUnlimited);
    zmq_setsockopt(socket_, ZMQ_RCVHWM, &kUnlimited, sizeof kUnlimited);
    if ((server ? zmq_bind(socket_, where.c_str()) : zmq_connect(socket_, where.c_str())) != 0)
      peer::die(zmq_strerror(zmq_errno()));
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }

  void put() {
    if (zmq_send(socket_, bytes_.data(), bytes_.size(), 0) < 0) peer::die(zmq_strerror(zmq_errno()));
  }
  void get() {
    if (zmq_recv(socket_, bytes_.data(), bytes_.size(), 0) < 0) peer::die(zmq_strerror(zmq_errno()));
  }

 private:
  void* context_;
  void* socket_ = nullptr;
  std::vector<char> bytes_;
};

void serve(Channel& channel, bool latency, std::size_t iterations) {
  for (std::size_t i = 0; i < iterations; ++i) {
    channel.get();
    if (latency) channel.put();
  }
  if (!latency) channel.put();
}

void measure(Channel& channel, bool latency, std::size_t iterations, const std::string& name) {
  std::vector<double> samples_ns;
  const std::uint64_t begin = peer::now_ns();
  for (std::size_t i = 0; i < iterations; ++i) {
    const std::uint64_t start = peer::now_ns();
    channel.put();
    if (!latency) continue;
    channel.get();
    samples_ns.push_back(static_cast<double>(peer::now_ns() - start));
  }
  if (latency) return peer::report_latency(name, samples_ns);
  channel.get();
  peer::report(name, static_cast<double>(iterations) * 1e3 / static_cast<double>(peer::now_ns() - begin), "M/s");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "server" && role != "client") peer::usage("bench_zeromq server|client [--option value]...");
  const peer::Options given(std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(2),
                            {"test", "size", "iterations", "connect", "name"});
  const bool server = role == "server", latency = given.text("test", "latency") == "latency";
  // A thread of the library's own moves the bytes: pinned to one CPU the two would wait for each other.
  const std::string file = "/tmp/bench-zeromq-" + std::to_string(getpid());
  const std::string where = server ? "ipc://" + file : given.text("connect", "");
  const std::size_t iterations = given.number("iterations", 30000);
  Channel channel(given.number("size", 8), server, where);
  if (server) {
    peer::report_ready(where);
    serve(channel, latency, iterations);
    unlink(file.c_str());
  } else {
    measure(channel, latency, iterations, given.text("name", "rtt"));
  }
}
