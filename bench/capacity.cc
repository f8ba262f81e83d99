// SPDX-License-Identifier: Apache-2.0
// What a process can hold and how fast it gets there.
//
//   bench_capacity               prints "connections<TAB>1/s" by packets, "idle_cpu<TAB>%"
//   bench_capacity local         prints "connections<TAB>1/s" through shared memory
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::size_t kConnections = 2'000;

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
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

// Of a device that is open, and listens, and has nothing to do.
double idle_cpu_percent() {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  Listener listener = must(Listener::create(engine));
  engine.run_until([] { return false; }, Duration::milliseconds(200));
  const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), begin = seconds(CLOCK_MONOTONIC);
  engine.run_until([] { return false; }, Duration::seconds(1));
  return 100 * (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (seconds(CLOCK_MONOTONIC) - begin);
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
  if (!local) std::printf("idle_cpu\t%.3f\t%%\n", idle_cpu_percent());
  std::printf("connections\t%.0f\t1/s\n", connections_per_second(local ? PathChoice::Local : PathChoice::Roce));
}
