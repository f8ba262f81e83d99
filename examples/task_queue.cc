// SPDX-License-Identifier: Apache-2.0
// Many processes put tasks into one queue in the memory of the process that does them. The producers share
// the ring: it is no larger for four of them than for one, and each reserves its place in it by an atomic,
// not by asking.
//
//   task_queue                    does the tasks of four producers, and prints where
//   task_queue 127.0.0.1:7471     is a producer
#include <cstring>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
using messaging::Receiver, messaging::Sender;

constexpr std::uint32_t kProducers = 4, kTasks = 250, kNumbers = 1000;

// "Count the primes in [first, last)."
struct PrimeTask {
  std::uint32_t first = 0, last = 0;
};

messaging::Options queue_options() {
  return {.kind = {messaging::Protocol::SharedWrite},
          .max_message_bytes = sizeof(PrimeTask),
          .ring_bytes = 16 << 10,
          .max_senders = kProducers};
}

std::uint32_t count_primes(const PrimeTask& task) {
  std::uint32_t primes = 0;
  for (std::uint32_t n = std::max(task.first, 2u); n < task.last; ++n) {
    std::uint32_t divisor = 2;
    while (divisor * divisor <= n && n % divisor != 0) ++divisor;
    primes += divisor * divisor > n ? 1 : 0;
  }
  return primes;
}

void work(ProgressEngine& engine) {
  Receiver queue = or_exit(Receiver::create(engine, queue_options()));
  Listener listener = or_exit(Listener::create(engine));
  std::printf("listening on %s\n", listener.address().to_string().c_str());
  std::fflush(stdout);
  // Who is there fills the queue, and waits when it is full.
  for (std::uint32_t there = 0; there < kProducers;) {
    const auto producer = queue.accept(or_exit(listener.wait_request()));
    if (producer) ++there;
    else std::fprintf(stderr, "%s\n", producer.error().to_string().c_str());  // it speaks another protocol
  }

  std::size_t tasks = 0, primes = 0;
  auto message = queue.receive();
  for (; message; message = queue.receive()) {
    if (message->bytes().size() != sizeof(PrimeTask)) continue;
    PrimeTask task;
    std::memcpy(&task, message->bytes().data(), sizeof task);
    message->give_back();  // before the work: there is room for the next task
    primes += count_primes(task);
    ++tasks;
  }
  const auto lost = queue.counters().peers_lost;
  if (message.error().code() != ErrorCode::Disconnected && lost == 0) or_exit<void>(message.error());
  std::printf("%zu tasks done, %zu primes\n", tasks, primes);
  if (lost != 0) std::printf("%llu producers were lost, and their last tasks\n", static_cast<unsigned long long>(lost));
}

void produce(ProgressEngine& engine, const char* address) {
  Sender queue = or_exit(Sender::connect(engine, address, queue_options()));
  for (std::uint32_t i = 0; i < kTasks; ++i) {
    const PrimeTask task{i * kNumbers, (i + 1) * kNumbers};
    or_exit(queue.send(std::as_bytes(std::span{&task, 1})));
  }
  or_exit(queue.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv);
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr)
    produce(engine, peer);
  else
    work(engine);
}
