// SPDX-License-Identifier: Apache-2.0
// An echo server inside a foreign event loop: one descriptor of the engine among those the program has anyway, here a
// timer.
//
//   echo_epoll                      serves twenty clients and prints where
//   echo_epoll 127.0.0.1:7471       is twenty clients
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "echo_client.h"
#include "peer_argument.h"

namespace {

using namespace verbena;

struct Tally {
  int clients = 0, gone = 0, words = 0;
};

Task<void> serve(Connection client, MemoryRegion memory, Tally& tally) {
  for (;;) {
    auto message = co_await client.receive(memory.local());
    if (!message) break;  // the client has closed
    auto sent = co_await client.send(memory.local(0, message->bytes));
    if (!sent) break;
    ++tally.words;
  }
  ++tally.gone;
}

Task<void> listen(Device& device, ProgressEngine& engine, Tally& tally) {
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  for (;;) {
    auto client = co_await listener.async_accept();
    if (!client) {
      print_error(client.error());  // that client has given up
      continue;
    }
    ++tally.clients;
    engine.spawn(serve(std::move(*client), or_exit(device.allocate_memory(echo::kMessageBytes)), tally));
  }
}

int ticking_every(int milliseconds) {
  const int fd = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const timespec period{0, milliseconds * 1'000'000L};
  const itimerspec spec{period, period};
  ::timerfd_settime(fd, 0, &spec, nullptr);
  return fd;
}

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr) {
    echo::call_many(device, engine, peer);
    return 0;
  }
  Tally tally;
  engine.spawn(listen(device, engine, tally));

  const int timer = ticking_every(100);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  watch(epoll, timer);
  watch(epoll, engine.fd());
  while (tally.gone < echo::kClients) {
    if (engine.run_once()) continue;
    if (!engine.prepare_wait()) continue;  // something came meanwhile
    epoll_event event{};
    if (::epoll_wait(epoll, &event, 1, -1) != 1 || event.data.fd != timer) continue;
    std::uint64_t ticks = 0;
    if (::read(timer, &ticks, sizeof ticks) == sizeof ticks)
      std::printf("%d clients came, %d went, %d words\n", tally.clients, tally.gone, tally.words);
  }
  std::printf("all %d clients are gone\n", tally.gone);
  ::close(epoll);
  ::close(timer);
}
