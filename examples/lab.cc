// SPDX-License-Identifier: Apache-2.0
// The first program of every RDMA course, on verbs alone: two queue pairs, connected by hand with what their
// owners tell each other over TCP; then a SEND and a WRITE with immediate.
//
//   lab                     waits for the other and prints where
//   lab 127.0.0.1:40000     connects there, sends and writes
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::uint32_t kHalf = 2048;  // of the memory: SENDs arrive in the first, WRITEs in the second
constexpr std::array<std::byte, 4> kImmediate{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{42}};

// ---- The wire between the owners: any will do.

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

[[noreturn]] void fail(const char* what) { fail(what, std::strerror(errno)); }

int wait_for_peer() {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in here{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof here;
  auto* address = reinterpret_cast<sockaddr*>(&here);
  if (::bind(listening, address, length) != 0 || ::listen(listening, 1) != 0) fail("listen");
  if (::getsockname(listening, address, &length) != 0) fail("getsockname");
  std::printf("listening on 127.0.0.1:%u\n", unsigned{ntohs(here.sin_port)});
  std::fflush(stdout);
  const int tcp = ::accept(listening, nullptr, nullptr);
  if (tcp < 0) fail("accept");
  return tcp;
}

int call_peer(const char* text) {
  const Endpoint peer = or_exit(Endpoint::parse(text));
  sockaddr_in there{.sin_family = AF_INET, .sin_port = htons(peer.port), .sin_addr = {}, .sin_zero = {}};
  if (::inet_pton(AF_INET, peer.host.c_str(), &there.sin_addr) != 1) fail(text, "no IPv4 address");
  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(tcp, reinterpret_cast<sockaddr*>(&there), sizeof there) != 0) fail("connect");
  return tcp;
}

// Tells the peer `ours` and returns its own.
template <std::size_t N>
std::array<std::byte, N> swap(int tcp, const std::array<std::byte, N>& ours) {
  std::array<std::byte, N> theirs;
  if (::send(tcp, ours.data(), N, MSG_NOSIGNAL) != static_cast<ssize_t>(N)) fail("send");
  const ssize_t got = ::recv(tcp, theirs.data(), N, MSG_WAITALL);
  if (got < 0) fail("recv");
  if (got != static_cast<ssize_t>(N)) fail("recv", "the peer has gone");
  return theirs;
}

void meet(int tcp) { swap(tcp, std::array<std::byte, 1>{}); }

// ---- Verbs.

// By packets, who only receives is not told of it.
bool has_gone(int tcp) {
  pollfd look{.fd = tcp, .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) != 0;
}

Completion next_completion(CompletionQueue& completions, int tcp) {
  for (;;) {
    const bool is_alone = has_gone(tcp);  // what the peer did before that is in the queue
    const auto done = completions.poll_one();
    if (!done && is_alone) fail("completion", "the peer has gone");
    if (!done) continue;
    if (done->status == CompletionStatus::Success) return *done;
    std::fprintf(stderr, "request %llu: %s\n", static_cast<unsigned long long>(done->id),
                 std::string(to_string(done->status)).c_str());
    std::exit(1);
  }
}

void expect(PostResult posted) {
  if (posted) return;
  std::fprintf(stderr, "refused: %s\n", std::string(to_string(posted.status)).c_str());
  std::exit(1);
}

// A text at the beginning of our memory, as the piece of a request.
ScatterGather put(const MemoryRegion& memory, std::uint32_t offset, std::string_view text) {
  std::ranges::copy(std::as_bytes(std::span{text}), memory.data() + offset);
  return memory.local(offset, static_cast<std::uint32_t>(text.size()));
}

void send_and_write(QueuePair& queue_pair, CompletionQueue& completions, const MemoryRegion& memory,
                    const RemoteMemory& theirs, int tcp) {
  const ScatterGather message = put(memory, 0, "a message");
  SendRequest send;
  send.id = 1;
  send.opcode = SendOpcode::Send;
  send.local = {&message, 1};

  const ScatterGather bytes = put(memory, kHalf, "bytes in place");
  SendRequest write;
  write.id = 2;
  write.opcode = SendOpcode::RdmaWriteWithImmediate;
  write.local = {&bytes, 1};
  write.remote_address = theirs.address + kHalf;
  write.rkey = theirs.rkey;
  write.immediate = kImmediate;

  expect(queue_pair.post_send(std::array{send, write}));
  for (int i = 0; i < 2; ++i)
    std::printf("done: request %d\n", static_cast<int>(next_completion(completions, tcp).id));
}

// The WRITE needs a receive for its immediate only; the bytes have their place.
void post_receives(QueuePair& queue_pair, const ScatterGather& inbox) {
  expect(queue_pair.post_receive({.id = 1, .local = {&inbox, 1}}));
  expect(queue_pair.post_receive({.id = 2, .local = {}}));
}

void print_what_arrives(CompletionQueue& completions, const MemoryRegion& memory, int tcp) {
  const auto* text = reinterpret_cast<const char*>(memory.data());
  const Completion message = next_completion(completions, tcp);
  std::printf("SEND: %.*s\n", static_cast<int>(message.byte_count), text);
  const Completion notice = next_completion(completions, tcp);
  std::printf("WRITE with immediate %d: %.*s\n", std::to_integer<int>(notice.immediate[3]),
              static_cast<int>(std::min(notice.byte_count, kHalf)), text + kHalf);
}

}  // namespace

int main(int argc, char** argv) {
  const char* where = peer_argument(argc, argv);
  const int tcp = where != nullptr ? call_peer(where) : wait_for_peer();

  Device device = or_exit(Device::open());
  const MemoryRegion memory = or_exit(device.allocate_memory(2 * kHalf));
  CompletionQueue completions = or_exit(device.create_completion_queue(16));
  QueuePair queue_pair = or_exit(device.create_queue_pair(completions));

  const auto peer = or_exit(QueuePairAddress::from_bytes(swap(tcp, queue_pair.address().to_bytes())));
  const auto theirs = or_exit(RemoteMemory::from_bytes(swap(tcp, memory.remote().to_bytes())));
  or_exit(queue_pair.connect(peer));
  if (where != nullptr) {
    meet(tcp);  // the peer has its receives
    send_and_write(queue_pair, completions, memory, theirs, tcp);
  } else {
    post_receives(queue_pair, memory.local(0, kHalf));
    meet(tcp);
    print_what_arrives(completions, memory, tcp);
  }
  meet(tcp);  // a queue pair stays until the other has its answers
  ::close(tcp);
}
