// SPDX-License-Identifier: Apache-2.0
// A process writes log lines into a ring in the collector's memory; the collector sleeps until one is there
// and prints it. A short line takes little of the ring, and a collector that does not keep up makes the other
// wait: no line is lost.
//
//   log_shipper                    collects what one process logs, and prints where
//   log_shipper 127.0.0.1:7471     logs
#include <string>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
using messaging::Receiver, messaging::Sender;

constexpr int kLines = 2000;

// The same at both ends. Immediate is the commit that wakes a receiver.
messaging::Options log_options() {
  return {.kind = {.protocol = messaging::Protocol::BufferedWrite, .commit = messaging::Commit::Immediate},
          .max_message_bytes = 1024,
          .ring_bytes = 64 << 10};
}

void collect(ProgressEngine& engine) {
  Receiver receiver = or_exit(Receiver::create(engine, log_options()));
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  // Who speaks another protocol is told so; the next one may be ours.
  auto sender = receiver.accept(or_exit(listener.wait_request()));
  for (; !sender; sender = receiver.accept(or_exit(listener.wait_request())))
    std::fprintf(stderr, "%s\n", sender.error().to_string().c_str());

  std::size_t lines = 0;
  auto line = receiver.receive();
  for (; line; line = receiver.receive()) {
    // Where it arrived: nobody copied it since. The next one in `line` gives its memory back.
    std::fwrite(line->bytes().data(), 1, line->bytes().size(), stdout);
    ++lines;
  }
  // Disconnected: the sender closed. Anything else: it was lost, perhaps with lines it had not sent.
  if (line.error().code() != ErrorCode::Disconnected) or_exit<void>(line.error());
  std::printf("%zu lines in %llu bytes of memory\n", lines,
              static_cast<unsigned long long>(receiver.memory_bytes()));
}

void log(ProgressEngine& engine, const char* address) {
  Sender sender = or_exit(Sender::connect(engine, address, log_options()));
  for (int i = 0; i < kLines; ++i) {
    const std::string line =
        "request " + std::to_string(i) + (i % 100 == 0 ? " failed\n" : " was answered\n");
    const auto bytes = std::as_bytes(std::span{line});
    // Waits while the ring is full. A program that must not wait calls try_send(), and counts what it
    // refuses.
    or_exit(sender.send(bytes));
  }
  or_exit(sender.close());  // when the collector has them all
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    log(engine, peer);
  else
    collect(engine);
}
