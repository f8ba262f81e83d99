// SPDX-License-Identifier: Apache-2.0
// What a process can hold, how fast it gets there, and how soon it knows that a peer has died.
//
//   bench_capacity               prints "connections<TAB>1/s" by packets, "idle_cpu<TAB>%", the same "_adaptive"
//   bench_capacity local         the same through shared memory, and "peer_death<TAB>ms"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::size_t kConnections = 2'000;

template <class T>
T must(Result<T> result) {
  if constexpr (std::is_void_v<T>) {
    if (result) return;
  } else {
    if (result) return std::move(*result);
  }
  std::fprintf(stderr, "bench_capacity: %s\n", result.error().to_string().c_str());
  std::exit(1);
}

double seconds(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// Both ends in one thread, one connection after the other: what is measured is work, not waiting.
double connections_per_second(PathChoice path) {
  Device client = must(Device::open(OpenOptions{.path = path}));
  Device server = must(Device::open(OpenOptions{.path = path}));
  ProgressEngine engine = must(ProgressEngine::create(client, {.wait = WaitMode::Busy}));
  if (!engine.add(server)) std::exit(1);
  const ConnectionOptions small{.queues = {.max_send_requests = 16, .max_receive_requests = 16}};
  ConnectionOptions passive = small;
  passive.device = &server;
  std::vector<Connection> near, far;
  Listener listener = must(Listener::create(engine, {.device = &server}));
  listener.on_request([&] { far.push_back(must(listener.poll_request()->accept(passive))); });
  const double begin = seconds(CLOCK_MONOTONIC);
  for (std::size_t i = 0; i < kConnections; ++i)
    near.push_back(must(Connection::connect(engine, listener.address().to_string(), small)));
  return static_cast<double>(kConnections) / (seconds(CLOCK_MONOTONIC) - begin);
}

// Of a device that is open, listens, has a connection and nothing to do.
double idle_cpu_percent(PathChoice path, WaitMode wait) {
  Device device = must(Device::open(OpenOptions{.path = path}));
  Device peer = must(Device::open(OpenOptions{.path = path}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = wait}));
  if (!engine.add(peer)) std::exit(1);
  Listener listener = must(Listener::create(engine));
  std::optional<Connection> far;
  listener.on_request([&] { far.emplace(must(listener.poll_request()->accept())); });
  const Connection near =
      must(Connection::connect(engine, listener.address().to_string(), ConnectionOptions{.device = &peer}));
  engine.run_until([] { return false; }, Duration::milliseconds(200));
  const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), begin = seconds(CLOCK_MONOTONIC);
  engine.run_until([] { return false; }, Duration::seconds(1));
  return 100 * (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (seconds(CLOCK_MONOTONIC) - begin);
}

// Processes that connect to the address they are told, and do no more. Made while there are no threads.
class Victims {
 public:
  static constexpr std::size_t kCount = 11;
  Victims() {
    for (Victim& victim : all_) {
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0) std::exit(1);
      victim = {::fork(), ends[1]};
      if (victim.pid == 0) connect_and_wait(ends[0]);
      ::close(ends[0]);
    }
  }
  // From when the kernel is asked to kill one until what was posted on its connection is done.
  double death_ms(std::size_t number, ProgressEngine& engine, Listener& listener, MemoryRegion& memory) {
    const auto [pid, told] = all_[number];
    const std::string address = listener.address().to_string() + '\n';
    if (::write(told, address.data(), address.size()) < 0) std::exit(1);
    Connection connection = must(must(listener.wait_request(Duration::seconds(10))).accept());
    must(connection.wait_established());
    Operation receive;
    connection.receive(receive, memory.local());
    engine.run_until([] { return false; }, Duration::milliseconds(20));
    const double begin = seconds(CLOCK_MONOTONIC);
    ::kill(pid, SIGKILL);
    engine.run_until([&] { return receive.done(); }, Duration::seconds(10));
    const double took = seconds(CLOCK_MONOTONIC) - begin;
    ::waitpid(pid, nullptr, 0);
    if (receive.result()) std::exit(1);
    return took * 1e3;
  }

 private:
  struct Victim {
    pid_t pid = 0;
    int told = -1;
  };
  [[noreturn]] static void connect_and_wait(int told) {
    std::string address;
    for (char c = 0; ::read(told, &c, 1) == 1 && c != '\n';) address += c;
    Device device = must(Device::open(OpenOptions{.path = PathChoice::Local}));
    ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
    const Connection connection = must(Connection::connect(engine, address));
    for (;;) engine.run_until([] { return false; }, Duration::seconds(1));
  }

  std::array<Victim, kCount> all_{};
};

double median_death_ms(Victims& victims) {
  Device device = must(Device::open(OpenOptions{.path = PathChoice::Local}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  Listener listener = must(Listener::create(engine));
  MemoryRegion memory = must(device.allocate_memory(64));
  std::array<double, Victims::kCount> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = victims.death_ms(i, engine, listener, memory);
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

// Each end of a connection through shared memory is a descriptor.
void allow_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  const bool local = argc == 2 && std::strcmp(argv[1], "local") == 0;
  if (argc > 2 || (argc == 2 && !local)) return 2;
  allow_descriptors();
  const PathChoice path = local ? PathChoice::Local : PathChoice::Roce;
  if (local) {
    Victims victims;
    std::printf("peer_death\t%.2f\tms\n", median_death_ms(victims));
  }
  std::printf("idle_cpu\t%.3f\t%%\n", idle_cpu_percent(path, WaitMode::Event));
  std::printf("idle_cpu_adaptive\t%.3f\t%%\n", idle_cpu_percent(path, WaitMode::Adaptive));
  std::printf("connections\t%.0f\t1/s\n", connections_per_second(path));
}
