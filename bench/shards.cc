// SPDX-License-Identifier: Apache-2.0
// What threads gain from a device each. All devices are at one address; a thread has two of them and an engine, and
// sends 8 bytes from one to the other, 16 in flight.
//
//   bench_shards [roce]          prints "one<TAB>M/s" and "two<TAB>M/s": messages a second of one thread, and of two
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::size_t kDepth = 16;
constexpr auto kTime = std::chrono::milliseconds(700);

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_shards: %s\n", result.error().to_string().c_str());
  std::exit(1);
}

Device open(const std::string& address, PathChoice path) {
  return must(Device::open({.device = address, .path = path, .service_thread = false}));
}

class Shard {
 public:
  Shard(const std::string& address, PathChoice path)
      : near_device_(open(address, path)), far_device_(open(address, path)) {
    if (!engine_.add(far_device_)) std::exit(1);
    Listener listener = must(Listener::create(engine_, {.device = &far_device_}));
    listener.on_request([&] { far_.emplace(must(listener.poll_request()->accept())); });
    near_.emplace(must(Connection::connect(engine_, listener.address().to_string())));
    engine_.run_until([&] { return far_ && far_->phase() == ConnectionPhase::Established; });
  }

  // Messages until `stop`.
  std::uint64_t run(const std::atomic<bool>& stop) {
    std::uint64_t messages = 0;
    std::array<Operation, kDepth> sends, receives;
    for (std::size_t i = 0; i < kDepth; ++i) {
      receives[i].on_done([&](Operation& self) {
        ++messages;
        if (!stop) far_->receive(self, there_.local());
      });
      far_->receive(receives[i], there_.local());
      sends[i].on_done([&](Operation& self) {
        if (!stop) near_->send(self, here_.local());
      });
    }
    for (Operation& send : sends) near_->send(send, here_.local());
    while (!stop) engine_.run_once();
    for (Operation& send : sends) engine_.run_until([&] { return send.done(); });
    return messages;
  }

 private:
  Device near_device_, far_device_;
  ProgressEngine engine_ = must(ProgressEngine::create(near_device_, {.wait = WaitMode::Busy}));
  MemoryRegion here_ = must(near_device_.allocate_memory(8)), there_ = must(far_device_.allocate_memory(8));
  std::optional<Connection> near_, far_;
};

double millions_per_second(const std::string& address, PathChoice path, std::size_t threads) {
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i)
    all.emplace_back([&] {
      Shard shard(address, path);
      for (++ready; ready < threads;) std::this_thread::yield();
      messages += shard.run(stop);
    });
  while (ready < threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(kTime);
  stop = true;
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  for (std::thread& thread : all) thread.join();
  return static_cast<double>(messages) / took.count();
}

}  // namespace

int main(int argc, char** argv) {
  const bool roce = argc == 2 && std::strcmp(argv[1], "roce") == 0;
  if (argc > 2 || (argc == 2 && !roce)) return 2;
  const PathChoice path = roce ? PathChoice::Roce : PathChoice::Local;
  const Device keeper = must(Device::open({.path = path, .service_thread = false}));
  const std::string address = keeper.address().to_string();
  for (const std::size_t threads : {1u, 2u})
    std::printf("%s\t%.3f\tM/s\n", threads == 1 ? "one" : "two", millions_per_second(address, path, threads));
}
